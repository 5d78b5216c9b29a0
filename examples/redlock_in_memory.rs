//! Redlock without a server: three stores in memory, a majority of which grants.
//!
//! One member stops, one loses its data, and the lock stays held. With two of three members stopped
//! nobody gets it. A manual clock drives the example, so it takes no time and its output is always
//! the same.
//!
//! ```text
//! cargo run --example redlock_in_memory
//! ```

use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::store::quorum::{MAX_SKEW, Quorum};
use leasehold::store::{Acquired, Claim, Grant, Label, MemoryStore, OwnerToken, Renewed, Store};
use leasehold::testing::{Faulty, Operation};
use leasehold::{Error, Key};

const TTL: Duration = Duration::from_secs(10);

/// A store in memory, and a simulated network in front of it.
struct Member {
    data: MemoryStore,
    network: Faulty<MemoryStore>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let clock = ManualClock::new();
    let members = [1, 2, 3].map(|seed| {
        let data = MemoryStore::with_clock(clock.clone());
        let network = Faulty::new(data.clone(), clock.clone(), seed);
        Member { data, network }
    });
    // Two processes: each has a quorum of its own over the same members.
    let client =
        || Quorum::with_clock(members.each_ref().map(|m| m.network.clone()), clock.clone());
    let (alice, bob) = (client()?, client()?);

    println!("1. all three members answer");
    let held = granted(alice.acquire(&claim("alice")?).await?)?;
    println!("   alice holds, token {}", held.token);
    rest().await;
    println!("   bob: {}", describe(&bob.acquire(&claim("bob")?).await));

    println!("2. member 1 stops; the renewal does not wait for it");
    stop(&members[0]);
    println!("   alice renews: {}", renewed(&alice, &held).await);

    println!("3. member 1 continues; member 2 restarts without its data");
    go_on(&members[0]).await;
    members[1].data.restart(TTL + MAX_SKEW);
    println!(
        "   alice renews with members 1 and 3: {}",
        renewed(&alice, &held).await
    );
    println!("   bob: {}", describe(&bob.acquire(&claim("bob")?).await));

    println!(
        "4. member 2 grants nothing for the longest ttl and {MAX_SKEW:?}, and then gets its vote back"
    );
    for _ in 0..4 {
        clock.advance(TTL / 3);
        println!("   alice renews: {}", renewed(&alice, &held).await);
        rest().await;
    }
    println!(
        "   keys at member 2: {}",
        members[1].data.list("").await?.len()
    );

    println!("5. alice releases; members 1 and 2 stop: there is no majority");
    println!("   alice: {:?}", alice.release(&held).await);
    stop(&members[0]);
    stop(&members[1]);
    let waiting = claim("bob")?;
    let asked = tokio::spawn({
        let (bob, waiting) = (bob.clone(), waiting.clone());
        async move { bob.acquire(&waiting).await }
    });
    rest().await;
    println!("   bob has an answer: {}", asked.is_finished());
    asked.abort();

    println!("6. they continue; bob's old claim is withdrawn, and his next claim is granted");
    go_on(&members[0]).await;
    go_on(&members[1]).await;
    let next = granted(bob.acquire(&claim("bob")?).await?)?;
    println!("   bob holds, token {} after {}", next.token, held.token);
    assert!(next.token > held.token);
    Ok(())
}

fn claim(name: &str) -> Result<Claim, Error> {
    let key = Key::parse("accounts/7")?;
    Ok(Claim::new(
        key,
        OwnerToken::generate()?,
        Label::parse(name)?,
        TTL,
    ))
}

fn granted(acquired: Acquired) -> Result<Grant, Error> {
    match acquired {
        Acquired::Granted(grant) => Ok(grant),
        _ => Err(Error::contended("another claim holds the lock; try later")),
    }
}

fn describe(answer: &Result<Acquired, Error>) -> String {
    match answer {
        Ok(Acquired::Busy {
            remaining: Some(remaining),
        }) => format!("busy, for {remaining:?} at most"),
        Ok(Acquired::Busy { remaining: None }) => "busy, for an unknown time".into(),
        other => format!("{other:?}"),
    }
}

async fn renewed(store: &impl Store, held: &Grant) -> String {
    match store.renew(std::slice::from_ref(held)).await.as_slice() {
        [Renewed::Extended(proof)] => format!("proven for {:?}", proof.ttl),
        other => format!("{other:?}"),
    }
}

fn stop(member: &Member) {
    for operation in Operation::ALL {
        member.network.stall(operation);
    }
}

async fn go_on(member: &Member) {
    for operation in Operation::ALL {
        member.network.unblock(operation);
    }
    rest().await;
}

/// Waits until the background tasks are idle.
async fn rest() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
