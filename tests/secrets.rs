//! What must never be seen is in no log, no error and no `Debug`: owner tokens, and the text of a
//! handler's panic.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;

use leasehold::clock::ManualClock;
use leasehold::handler::{AccessLog, AcquireRequest, AcquireResponse, Event, Handler, Next};
use leasehold::run::EffectError;
use leasehold::store::{Acquired, Claim, MemoryStore, OwnerToken, Store};
use leasehold::testing::{Faulty, Operation};
use leasehold::{Abort, Error, Executor, LockManager, Settings};
use parking_lot::Mutex;
use support::over::{Changes, Over};
use support::{canary, log, ms, poll_and_drop};

/// The text of a planted panic.
const CANARY: &str = "s3cret-c4nary";

/// Notes every owner token that passes.
#[derive(Clone, Debug)]
struct Spying<S> {
    store: S,
    owners: Arc<Mutex<HashSet<OwnerToken>>>,
}

impl<S: Store> Changes for Spying<S> {
    type Store = S;

    fn beneath(&self) -> &S {
        &self.store
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.owners.lock().insert(claim.owner);
        self.store.acquire(claim).await
    }
}

/// Panics with the canary at one key.
struct Panicking;

impl Handler for Panicking {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        let answered = next.run(request).await;
        assert_ne!(request.key().as_str(), "panics", "{CANARY}");
        answered
    }
}

fn panics() {
    panic!("{CANARY}");
}

/// Panics wherever a run can, in runs whose outcome is returned and in runs that have none.
fn panic_in_runs(executor: &Executor) {
    let _ = executor.guarded(|tx| {
        tx.on_committed(|_| panics());
        Ok(())
    });
    let taken_back = executor.guarded(|tx| {
        tx.undo(panics);
        Err::<(), Abort>("enough".into())
    });
    assert!(!taken_back.unwrap_err().to_string().contains(CANARY));
    let dropped = executor.guarded_async(async |tx| {
        tx.undo(panics);
        std::future::pending::<()>().await;
        Ok(())
    });
    assert!(!poll_and_drop(1, dropped));
    let run = AssertUnwindSafe(|| {
        executor.guarded(|tx| {
            tx.step("credit 7", || Ok::<_, EffectError>(()), |_| panics())?;
            panics();
            Ok(())
        })
    });
    assert!(catch_unwind(run).is_err());
    let run = AssertUnwindSafe(|| {
        executor.guarded(|tx| {
            tx.commit_with(|_| {
                panics();
                Ok::<(), EffectError>(())
            });
            Ok(())
        })
    });
    assert!(catch_unwind(run).is_err());
}

/// The form in which a token stands in a text, if it does.
fn leak(text: &str, owner: &OwnerToken) -> Option<String> {
    let bytes = owner.as_bytes();
    let forms = [
        owner.expose(),
        owner.expose().to_uppercase(),
        u128::from_be_bytes(*bytes).to_string(),
        format!("{bytes:?}"),
    ];
    forms.into_iter().find(|form| text.contains(form))
}

#[tokio::test]
async fn no_owner_token_and_no_panic_text_is_ever_shown() {
    log::keep();
    let shown = Arc::new(Mutex::new(String::new()));
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let faulty = Faulty::new(store.clone(), clock.clone(), 11);
    let spying = Spying {
        store: faulty.clone(),
        owners: Arc::default(),
    };
    let owners = Arc::clone(&spying.owners);
    let seen = Arc::clone(&shown);
    let mut settings = Settings::default();
    settings.handoff_count = 0;
    let locks = LockManager::builder(Over(spying.clone()))
        .clock(clock.clone())
        .settings(settings)
        .handler(Panicking)
        .observer(AccessLog::new())
        .observer(move |event: &Event<'_>| {
            let _ = writeln!(seen.lock(), "{event:?}");
        })
        .build()
        .unwrap();
    let show = |what: &dyn std::fmt::Debug| {
        let _ = writeln!(shown.lock(), "{what:?}");
    };
    let pass = async |times: usize| {
        for _ in 0..times {
            clock.advance(ms(100));
            locks.settled().await;
        }
    };

    // An orderly life, with a debt.
    let guard = locks.lock("orderly").acquire().await.unwrap();
    let owed = guard.executor().guarded(|tx| {
        tx.step(
            "debit 7",
            || Err::<(), _>(EffectError::unknown("no answer")),
            |_| (),
        )?;
        Ok(())
    });
    pass(50).await;
    show(&(&guard, &owed, &locks, locks.held(), locks.lock("orderly")));
    show(&guard.release().await);
    // Panics in runs.
    let panicking = locks.lock("runs").acquire().await.unwrap();
    panic_in_runs(&panicking.executor());
    drop(panicking);
    // A panic around the grant.
    show(&locks.lock("panics").acquire().await);
    // An attempt in doubt, which is withdrawn; a release that is not answered; renewals that are
    // not answered; a loss.
    faulty.block(Operation::Acquire);
    show(&locks.lock("in doubt").try_acquire().await);
    show(&locks.lock("in-doubt").try_acquire().await);
    faulty.unblock(Operation::Acquire);
    let unanswered = locks.lock("unanswered").acquire().await.unwrap();
    let lost = locks.lock("lost").acquire().await.unwrap();
    faulty.block(Operation::Release);
    faulty.block(Operation::Renew);
    faulty.block(Operation::Withdraw);
    show(&unanswered.release().await);
    pass(50).await;
    faulty.unblock(Operation::Renew);
    store.forget();
    pass(200).await;
    show(&lost);
    drop(lost);
    show(&(&spying, &faulty, &store));
    locks.shutdown().await;

    let shown = shown.lock().clone();
    let everything = log::text() + &shown;
    // It is a scene with something to see.
    for word in [
        "orderly",
        "debit 7",
        "a handler panicked",
        "a hook after the commit panicked",
        "the undo panicked",
        "compensation failed (it panicked)",
        "credit 7",
        "withdrawn",
        "lost",
    ] {
        assert!(everything.contains(word), "nothing about {word}");
    }
    let owners = owners.lock().clone();
    assert!(owners.len() >= 5, "{}", owners.len());
    let leaks: Vec<_> = owners.iter().filter_map(|o| leak(&everything, o)).collect();
    assert!(leaks.is_empty(), "tokens were shown as {leaks:?}");
    assert!(!everything.contains(CANARY));
}

#[test]
fn a_token_that_slips_out_is_found_in_every_form() {
    // The test above can fail.
    let owner = OwnerToken::from_bytes([0xab; 16]);
    let slips = [
        "owner=abababababababababababababababab".to_owned(),
        "owner=ABABABABABABABABABABABABABABABAB".to_owned(),
        format!("owner={}", 0xabab_abab_abab_abab_abab_abab_abab_abab_u128),
        format!("Claim {{ owner: {:?} }}", vec![0xab_u8; 16]),
    ];
    for slip in slips {
        assert!(leak(&slip, &owner).is_some(), "{slip}");
    }
    assert!(leak(&format!("{owner} {owner:?}"), &owner).is_none());
}

/// Of all tests' passwords: what is done about a program that logs one is shown on this one, run
/// again.
#[test]
fn a_test_program_that_logs_a_password_is_ended() {
    const PLANTED: &str = "LEASEHOLD_PLANTED";
    if let Some(planted) = std::env::var_os(PLANTED) {
        canary::watch();
        tracing::trace!(?planted, "what a careless store might say");
        return;
    }
    let run = |planted: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_test_program_that_logs_a_password_is_ended"])
            .env(PLANTED, planted)
            .output()
            .unwrap()
    };
    let harmless = run("redis://db.example:6379");
    assert!(harmless.status.success(), "{harmless:?}");
    for planted in [
        format!("redis://me:{}@db.example:6379", canary::CANARY),
        format!("{:?}", canary::CANARY.as_bytes()),
    ] {
        let ended = run(&planted);
        assert!(!ended.status.success(), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("a password was logged"), "{said}");
        assert!(!said.contains(canary::CANARY), "{said}");
    }
}

/// What a connect says of passwords from files and from providers, of certificates, and of files
/// that hold something else.
#[cfg(all(
    feature = "postgres",
    feature = "redis",
    feature = "tls",
    feature = "zookeeper"
))]
#[tokio::test]
async fn no_content_of_a_file_and_no_answer_of_a_provider_is_ever_shown() {
    use leasehold::postgres::{PgFence, PostgresOptions, PostgresStore};
    use leasehold::redis::{RedisOptions, RedisStore};
    use leasehold::zookeeper::ZooKeeperOptions;
    use leasehold::{BoxError, Credentials};

    log::keep();
    let name = format!("leasehold-secrets-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let file = folder.join(name);
        std::fs::write(&file, bytes).unwrap();
        file.display().to_string()
    };
    let secret = canary::CANARY;
    let good = put("good", secret.as_bytes());
    let binary = put("binary", &[secret.as_bytes(), b"\xff"].concat());
    let begin = "-----BEGIN PRIVATE KEY-----";
    let pem = put("pem", format!("{begin}\n{secret}\n").as_bytes());
    // Nobody answers there.
    let (redis, postgres) = ("127.0.0.1:1", "127.0.0.1:1/db");
    let mut shown = String::new();
    for query in [
        format!("password_file={good}"),
        format!("password_file={binary}"),
        format!("user_file={good}&password_file={good}"),
        format!("password_file={good}&ca={pem}"),
        format!("password_file={good}&cert={pem}&key={pem}"),
    ] {
        let options = RedisOptions::parse(&format!("rediss://{redis}?{query}")).unwrap();
        let refused = RedisStore::connect_with(options.clone()).await.unwrap_err();
        let _ = writeln!(shown, "{options:?} {refused} {refused:?}");
        let query = (query.replace("ca=", "sslrootcert="))
            .replace("cert=", "sslcert=")
            .replace("sslrootsslcert", "sslrootcert")
            .replace("&key=", "&sslkey=");
        let url = format!("postgres://{postgres}?sslmode=verify-full&{query}");
        let options = PostgresOptions::parse(&url).unwrap();
        let refused = PostgresStore::connect_with(options.clone()).await;
        let refused = refused.unwrap_err();
        let _ = writeln!(shown, "{options:?} {refused} {refused:?}");
        let refused = PgFence::connect_with(options).await.unwrap_err();
        let _ = writeln!(shown, "{refused} {refused:?}");
    }
    async fn provider() -> Result<Credentials, BoxError> {
        Ok(Credentials::new(canary::CANARY, canary::CANARY))
    }
    let _ = writeln!(shown, "{:?}", provider().await);
    let url = format!("redis://{redis}");
    let options = RedisOptions::parse(&url)
        .unwrap()
        .credentials_from(provider);
    let refused = RedisStore::connect_with(options.clone()).await.unwrap_err();
    let _ = writeln!(shown, "{options:?} {refused:?}");
    let options = ZooKeeperOptions::new(redis).credentials_from(provider);
    let _ = writeln!(shown, "{options:?}");
    std::fs::remove_dir_all(&folder).unwrap();

    let named = [&good, &binary, &pem].map(String::as_str);
    for word in ["it is not UTF-8", "in PEM", "redacted"]
        .iter()
        .chain(&named)
    {
        assert!(shown.contains(word), "nothing about {word}: {shown}");
    }
    assert!(!canary::is_in((log::text() + &shown).as_bytes()));
    assert!(!canary::is_in(
        &std::fs::read("/proc/self/cmdline").unwrap()
    ));
}
