//! Fifteen contenders, each with its own session, lead one after the other through a ZooKeeper
//! queue.
//!
//! Each leads for 0.5 to 3.5 s times the scale. The example prints who waits for whom, who leads
//! for how long, and the minimum, maximum and average time from a contender's first request to the
//! end of its leadership.
//!
//! It needs a running ZooKeeper server, and creates the chroot of its URL.
//!
//! `cargo run --release --features zookeeper --example zookeeper_leaders --
//! zookeeper://127.0.0.1:2181/leaders 0.1`

use std::error::Error;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::{Label, OwnerToken, Store};
use leasehold::zookeeper::ZooKeeperStore;
use leasehold::{Key, LockManager};

const CONTENDERS: usize = 15;
const SHORTEST: Duration = Duration::from_millis(500);
const SPREAD: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .unwrap_or_else(|| "zookeeper://127.0.0.1:2181/leaders".to_owned());
    let scale: f64 = arguments.next().map_or(Ok(1.0), |scale| scale.parse())?;
    let key: Key = "leader".parse()?;
    let watcher = ZooKeeperStore::connect(&url).await?;

    println!("{CONTENDERS} contenders, each leader for 0.5 to 3.5 s, times {scale}\n");
    let mut contenders = Vec::new();
    for number in 1..=CONTENDERS {
        contenders.push(tokio::spawn(contend(
            url.clone(),
            key.clone(),
            number,
            scale,
        )));
        let queue = joined(&watcher, &key, number).await?;
        let place = queue.iter().position(|label| *label == name(number));
        match place.and_then(|place| place.checked_sub(1)) {
            Some(before) => println!("{} waits for {}", name(number), queue[before]),
            None => println!("{} waits for nobody", name(number)),
        }
    }

    let mut times = Vec::new();
    for contender in contenders {
        times.push(contender.await?.map_err(|error| error.to_string())?);
    }
    times.sort_unstable();
    let sum: Duration = times.iter().sum();
    println!(
        "\nmin {:.2?}  max {:.2?}  average {:.2?}",
        times[0],
        times[times.len() - 1],
        sum / times.len() as u32
    );
    watcher.close().await?;
    Ok(())
}

/// Acquires the lock, leads and releases. Returns how long that took.
async fn contend(
    url: String,
    key: Key,
    number: usize,
    scale: f64,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let clock = Clock::system()?;
    let asked_at = clock.stamp();
    let locks = LockManager::builder(ZooKeeperStore::connect(&url).await?)
        .label(Label::parse(&name(number))?)
        .build()?;
    // Each contender before it may lead for the longest time.
    let longest = (SHORTEST + SPREAD).mul_f64(scale) * CONTENDERS as u32 + Duration::from_secs(30);
    let guard = locks
        .lock(key)
        .acquire_within(longest)
        .await?
        .ok_or("another contender did not stop leading")?;
    let span = (SHORTEST + SPREAD.mul_f64(random()?)).mul_f64(scale);
    println!(
        "{} leads for {span:.2?} with token {}",
        name(number),
        guard.token()
    );
    clock.sleep(span).await;
    guard.release().await?;
    Ok(clock.stamp().since(&asked_at))
}

/// Returns who holds and who waits, in their order, once the contender is one of them.
async fn joined(
    watcher: &ZooKeeperStore,
    key: &Key,
    number: usize,
) -> Result<Vec<String>, Box<dyn Error>> {
    let clock = Clock::system()?;
    for _ in 0..500 {
        if let Some(info) = watcher.inspect(key).await? {
            let waiting = info.waiters.into_iter().map(|waiter| waiter.label);
            let labels = info.labels.into_iter().map(Some).chain(waiting);
            let queue: Vec<String> = labels.map(text).collect();
            if queue.contains(&name(number)) {
                return Ok(queue);
            }
        }
        clock.sleep(Duration::from_millis(2)).await;
    }
    Err(format!("{} never joined the queue", name(number)).into())
}

fn name(number: usize) -> String {
    format!("contender-{number:02}")
}

fn text(label: Option<Label>) -> String {
    label.map_or("somebody unknown".to_owned(), |label| {
        label.as_str().to_owned()
    })
}

/// 0 to 1.
fn random() -> Result<f64, leasehold::Error> {
    let token = OwnerToken::generate()?;
    Ok(f64::from(u16::from_be_bytes([
        token.as_bytes()[0],
        token.as_bytes()[1],
    ])) / f64::from(u16::MAX))
}
