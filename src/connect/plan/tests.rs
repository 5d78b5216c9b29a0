//! What the plan of a URL refuses and reads, and that the guide has the tables of all options.

use super::*;
use crate::manager::LockManager;
#[cfg(all(feature = "postgres", feature = "redis", feature = "zookeeper"))]
use crate::model::options::Options;
#[cfg(all(
    feature = "zookeeper",
    not(any(feature = "postgres", feature = "redis"))
))]
use std::time::Duration;

fn refused(url: &str) -> Error {
    Plan::of(url, Settings::default()).unwrap_err()
}

#[test]
fn an_unknown_scheme_is_refused_by_name() {
    let error = refused("mysql://db");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("\"mysql\""), "{error}");
    assert!(error.to_string().contains("use memory:"), "{error}");
}

#[test]
fn a_refusal_never_shows_a_password() {
    for url in [
        "sesame",
        "sesame:sesame@db:6379",
        "x://me:sesame@db",
        "redis://me:sesame@db?colour=blue",
        "redis+sentinel://me:sesame@db,db/main",
        "redis+cluster://me:sesame@db,db",
        "redlock://me:sesame@db,db",
        "zookeeper://me:sesame@",
        "postgres://me:sesame@db?colour=blue",
        "postgres://me:sesame@",
        "s3://me:sesame@bucket",
        "az://container?account=a&key=sesame",
    ] {
        let error = refused(url);
        assert!(!format!("{error} {error:?}").contains("sesame"), "{error}");
    }
}

#[test]
fn a_scheme_whose_feature_is_off_says_which_to_switch_on() {
    for (scheme, feature) in SCHEMES {
        let error = refusal(scheme, "//host");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains(&format!("{feature:?}")),
            "{error}"
        );
    }
}

#[test]
fn settings_are_checked_before_anything_is_connected() {
    let settings = Settings {
        max_waiters: 0,
        ..Settings::default()
    };
    let error = Plan::of("memory:", settings).unwrap_err();
    assert!(error.to_string().contains("max_waiters=0"), "{error}");
}

#[test]
fn no_setting_is_too_large_to_be_refused() {
    let urls = [
        "memory:",
        #[cfg(target_os = "linux")]
        "file:",
        #[cfg(feature = "redis")]
        "redis://db",
        #[cfg(feature = "redis")]
        "redis://db?max_ttl=5s",
        #[cfg(feature = "redis")]
        "redlock://a,b,c",
        #[cfg(feature = "postgres")]
        "postgres://db/d",
        #[cfg(feature = "zookeeper")]
        "zookeeper://zk",
        #[cfg(feature = "object-store")]
        "s3://shop",
    ];
    let longest: [fn(&mut Settings); 9] = [
        |settings| settings.ttl = std::time::Duration::MAX,
        |settings| settings.max_ttl = std::time::Duration::MAX,
        |settings| settings.margin = std::time::Duration::MAX,
        |settings| settings.wait = std::time::Duration::MAX,
        |settings| settings.retry_delay = std::time::Duration::MAX,
        |settings| settings.request_timeout = std::time::Duration::MAX,
        |settings| settings.lock_delay = std::time::Duration::MAX,
        |settings| settings.commit_budget = std::time::Duration::MAX,
        |settings| settings.handoff_time = std::time::Duration::MAX,
    ];
    for url in urls {
        for (number, set) in longest.iter().enumerate() {
            let mut settings = Settings::default();
            set(&mut settings);
            let refused = Plan::of(url, settings).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{url} {number}");
        }
    }
}

#[tokio::test]
async fn one_name_is_one_store_in_this_process() {
    let ours = LockManager::connect("memory:connect/one").await.unwrap();
    let theirs = LockManager::connect("memory:connect/one").await.unwrap();
    let others = LockManager::connect("memory:connect/two").await.unwrap();
    let guard = ours.lock("k").acquire().await.unwrap();
    assert!(theirs.lock("k").try_acquire().await.unwrap().is_none());
    assert!(others.lock("k").try_acquire().await.unwrap().is_some());
    drop(guard);
}

#[cfg(all(
    feature = "kubernetes",
    feature = "object-store",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper",
    target_os = "linux"
))]
#[test]
fn the_guide_has_the_tables_of_the_code() {
    for (page, table) in [
        (
            include_str!("../../docs/stores/files.md"),
            FileOptions::OPTIONS.markdown(),
        ),
        (
            include_str!("../../docs/stores/redis.md"),
            RedisOptions::OPTIONS.markdown(),
        ),
        (
            include_str!("../../docs/stores/postgres.md"),
            PostgresOptions::OPTIONS.markdown(),
        ),
        (
            include_str!("../../docs/stores/zookeeper.md"),
            ZooKeeperOptions::OPTIONS.markdown(),
        ),
        (
            include_str!("../../docs/stores/kubernetes.md"),
            KubernetesOptions::OPTIONS.markdown(),
        ),
        (
            include_str!("../../docs/stores/objects.md"),
            BucketOptions::OPTIONS.markdown(),
        ),
    ] {
        assert!(page.contains(&table), "the page lacks:\n{table}");
    }
}

#[cfg(all(feature = "postgres", feature = "redis", feature = "zookeeper"))]
#[test]
fn a_default_that_is_written_is_the_same_as_none() {
    fn same<T: Debug>(url: &str, table: &Options<T>, parse: fn(&str) -> Result<T, Error>) {
        let (scheme, _) = url.split_once(':').unwrap();
        let written = format!("{url}?{}", table.defaults(scheme));
        let [written, none] = [&written, url].map(|url| format!("{:?}", parse(url).unwrap()));
        assert_eq!(written, none);
    }
    #[cfg(target_os = "linux")]
    same("file:///locks", &FileOptions::OPTIONS, FileOptions::parse);
    same("redis://h", &RedisOptions::OPTIONS, RedisOptions::parse);
    same(
        "unix:///socket",
        &RedisOptions::OPTIONS,
        RedisOptions::parse,
    );
    same(
        "postgres://h",
        &PostgresOptions::OPTIONS,
        PostgresOptions::parse,
    );
    same(
        "zookeeper://h",
        &ZooKeeperOptions::OPTIONS,
        ZooKeeperOptions::parse,
    );
}

#[cfg(feature = "redis")]
#[test]
fn the_longest_ttl_is_set_in_the_url_or_in_the_settings() {
    let longest = |url: &str, max_ttl: Option<u64>| {
        let mut settings = Settings::default();
        if let Some(max_ttl) = max_ttl {
            settings.max_ttl = Duration::from_secs(max_ttl);
        }
        let plan = Plan::of(url, settings)?;
        let Source::Redis(options) = &plan.source else {
            panic!("{:?}", plan.source);
        };
        assert_eq!(options.longest_ttl(), plan.settings.max_ttl);
        Ok::<u64, Error>(plan.settings.max_ttl.as_secs())
    };
    assert_eq!(longest("redis://db", None).unwrap(), 30);
    assert_eq!(longest("redis://db", Some(60)).unwrap(), 60);
    assert_eq!(longest("redis://db?max_ttl=1m", None).unwrap(), 60);
    assert_eq!(longest("redis://db?max%5Fttl=1m", None).unwrap(), 60);
    assert_eq!(longest("redis://db?max_ttl=1m", Some(60)).unwrap(), 60);
    assert_eq!(longest("redis://db?max_ttl=5s", None).unwrap(), 5);
    let error = longest("redis://db?max_ttl=1m", Some(90)).unwrap_err();
    assert!(error.to_string().contains("set it in one place"), "{error}");
}

#[cfg(feature = "redis")]
#[test]
fn a_ttl_that_nobody_set_is_no_longer_than_the_url_allows() {
    let ttl = |url: &str, ttl: Duration| {
        let settings = Settings {
            ttl,
            ..Settings::default()
        };
        Ok::<_, Error>(Plan::of(url, settings)?.settings.ttl)
    };
    let [default, short] = [Settings::default().ttl, Duration::from_secs(5)];
    assert_eq!(ttl("redis://db?max_ttl=5s", default).unwrap(), short);
    assert_eq!(ttl("redlock://a,b?max_ttl=5s", default).unwrap(), short);
    assert_eq!(ttl("redis://db?max_ttl=1m", default).unwrap(), default);
    let least = Duration::from_millis(100);
    assert_eq!(ttl("redis://db?max_ttl=100ms", default).unwrap(), least);
    let long = Duration::from_secs(6);
    let error = ttl("redis://db?max_ttl=5s", long).unwrap_err();
    assert!(error.to_string().contains("ttl=6s"), "{error}");
}

#[cfg(feature = "zookeeper")]
#[test]
fn the_session_timeout_is_the_ttl_and_is_set_in_one_place() {
    let ttl = |url: &str, ttl: Option<u64>| {
        let mut settings = Settings::default();
        if let Some(ttl) = ttl {
            settings.ttl = Duration::from_secs(ttl);
        }
        let plan = Plan::of(url, settings)?;
        let Source::ZooKeeper(options) = &plan.source else {
            panic!("{:?}", plan.source);
        };
        assert_eq!(options.session_timeout, plan.settings.ttl);
        Ok::<u64, Error>(plan.settings.ttl.as_secs())
    };
    assert_eq!(ttl("zookeeper://zk", None).unwrap(), 10);
    assert_eq!(ttl("zookeeper://zk", Some(20)).unwrap(), 20);
    assert_eq!(ttl("zookeeper://zk?session_timeout=1m", None).unwrap(), 60);
    let error = ttl("zookeeper://zk?session_timeout=1m", Some(20)).unwrap_err();
    assert!(error.to_string().contains("set it in one place"), "{error}");
    // Fewer than four ticks of two seconds.
    assert!(ttl("zookeeper://zk", Some(5)).is_err());
}

#[cfg(feature = "redis")]
#[test]
fn a_server_has_one_vote() {
    for url in [
        "redlock://a:1,b:2,a:1",
        "redlock://127.0.0.1:6379,127.0.0.1,127.0.0.1:1",
        "redlock://:pw@127.0.0.1:1,:pw@127.0.0.1:2",
        "redlock://",
        "redlock://a,,b",
        "redlock:a",
    ] {
        assert_eq!(refused(url).kind(), ErrorKind::Invalid, "{url}");
    }
}

#[cfg(feature = "object-store")]
#[test]
fn a_bucket_has_longer_time_outs_and_a_least_ttl() {
    let seconds = std::time::Duration::from_secs;
    let plan = Plan::of("s3://shop", Settings::default()).unwrap();
    assert_eq!(plan.settings.ttl, Settings::default().ttl);
    assert_eq!(plan.settings.request_timeout, seconds(10) / 4);
    assert_eq!(plan.settings.max_poll_interval, seconds(3));
    let with = |ttl| {
        let settings = Settings {
            ttl,
            ..Settings::default()
        };
        Plan::of("az://shop/locks", settings)
    };
    let plan = with(seconds(30)).unwrap();
    assert_eq!(plan.settings.request_timeout, seconds(3));
    let plan = with(seconds(5)).unwrap();
    assert_eq!(plan.settings.request_timeout, seconds(5) / 4);
    let error = with(seconds(4)).unwrap_err();
    assert!(error.to_string().contains("ttl=4s"), "{error}");
}
