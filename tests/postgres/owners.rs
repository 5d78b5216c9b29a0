//! Whom the schema trusts: a role that may create things in the database, and was there first.

use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::fence::{Resolve, sql};
use leasehold::postgres::{PgFence, PostgresStore, tokio_postgres};
use leasehold::run::{Doubt, HeldKey, Resolution};
use leasehold::{Error, ErrorKind, postgres};

use crate::claims::{claim, grant, release};
use crate::store_world::Locks;
use crate::world::{Bank, connect, hold, key, token};

/// Gives its maker a superuser's rights if a superuser runs it.
const TRAP: &str = "LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('is_superuser') = 'on' OR current_user = 'postgres' THEN
      EXECUTE format('ALTER ROLE %I SUPERUSER', (SELECT obj_description('leasehold'::regnamespace, 'pg_namespace')));
    END IF;
    RETURN pg_catalog.clock_timestamp();
  END $$;";

/// A database, and a role that may create schemas in it.
struct Hostile {
    locks: Locks,
    mallory: String,
    client: tokio_postgres::Client,
}

impl Hostile {
    async fn in_(locks: Locks) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mallory = format!("mallory{count}");
        locks.psql(&format!(
            "CREATE ROLE {mallory} LOGIN; GRANT CREATE ON DATABASE {} TO {mallory}",
            locks.name
        ));
        let url = locks.url("").replace('?', "");
        let url = url.replace("postgres@", &format!("{mallory}@"));
        Self {
            client: connect(&url).await,
            locks,
            mallory,
        }
    }

    async fn run(&self, statements: &str) {
        self.client.batch_execute(statements).await.unwrap();
    }

    /// A schema of mallory's, with functions under the names that the schema's own call and that
    /// clients call.
    async fn prepare(&self) {
        let mallory = &self.mallory;
        self.run(&format!(
            "CREATE SCHEMA leasehold; COMMENT ON SCHEMA leasehold IS '{mallory}'; GRANT ALL ON SCHEMA leasehold TO public"
        ))
        .await;
        for name in ["clock_timestamp", "hello", "sweep", "tidy"] {
            self.run(&format!(
                "CREATE FUNCTION leasehold.{name}() RETURNS timestamptz {TRAP}"
            ))
            .await;
        }
    }

    /// What the administrator pipes into `psql`.
    fn schemas(&self) -> Result<String, String> {
        let text = format!(
            "BEGIN; {}\n{}\nCOMMIT;",
            postgres::SCHEMA,
            sql::postgres::SCHEMA
        );
        self.locks.server().psql_in(&self.locks.name, &text)
    }

    async fn is_superuser(&self) -> bool {
        // As far as its own functions get it.
        let asked = "SELECT * FROM leasehold.ask('a', gen_random_uuid(), 'x', 1000, 0, 'm', false)";
        let _ = self.client.batch_execute(asked).await;
        let _ = self
            .client
            .batch_execute("SELECT leasehold.raise('a', 1, 1)")
            .await;
        let is = format!(
            "SELECT rolsuper FROM pg_roles WHERE rolname = '{}'",
            self.mallory
        );
        // The path of its database may lead to its own operators.
        let server = self.locks.server();
        server.psql_in("postgres", &is).unwrap() == "t"
    }

    #[track_caller]
    fn assert_denied(&self, error: &Error) {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(&self.mallory), "{error}");
    }
}

#[tokio::test]
async fn a_schema_that_another_role_made_is_refused_with_its_owner() {
    let hostile = Hostile::in_(Locks::empty()).await;
    hostile.prepare().await;
    let error = hostile.schemas().expect_err("a schema of mallory's");
    assert!(error.contains(&hostile.mallory), "{error}");
    let url = hostile.locks.url("");
    let fence = PgFence::connect(url.trim_end_matches('?')).await;
    let created = match fence {
        Ok(fence) => fence.create_schema().await,
        Err(error) => Err(error),
    };
    hostile.assert_denied(&created.unwrap_err());
    assert!(!hostile.is_superuser().await);
}

/// A function that is not `SECURITY DEFINER` has the rights of whoever calls it.
#[tokio::test]
async fn a_superuser_calls_no_function_of_another_role() {
    let hostile = Hostile::in_(Locks::empty()).await;
    hostile.prepare().await;
    for query in ["", "create=auto"] {
        let error = PostgresStore::connect(&hostile.locks.url(query)).await;
        hostile.assert_denied(&error.unwrap_err());
        assert!(!hostile.is_superuser().await, "{query}");
    }
}

/// A function may go back from the role that a session acts as to its own.
#[tokio::test]
async fn a_superuser_that_acts_as_another_role_calls_no_function_of_that_role() {
    let hostile = Hostile::in_(Locks::empty()).await;
    let mallory = &hostile.mallory;
    hostile.run("CREATE SCHEMA leasehold").await;
    for name in ["hello", "sweep"] {
        hostile
            .run(&format!(
                "CREATE FUNCTION leasehold.{name}() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
                   SET ROLE NONE; ALTER ROLE {mallory} SUPERUSER; RETURN NULL; END $$"
            ))
            .await;
    }
    let database = &hostile.locks.name;
    hostile
        .locks
        .psql(&format!("ALTER DATABASE {database} SET role = {mallory}"));
    let url = hostile.locks.url("");
    let store = PostgresStore::connect(&url).await;
    let fence = PgFence::connect(url.trim_end_matches('?')).await;
    let is = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{mallory}'");
    assert_eq!(hostile.locks.psql(&is), "f");
    hostile.assert_denied(&store.unwrap_err());
    hostile.assert_denied(&fence.unwrap_err());
}

#[tokio::test]
async fn what_another_role_put_into_the_schema_or_may_put_there_is_refused() {
    for thing in [
        "CREATE TABLE leasehold.claim (a int)",
        "CREATE FUNCTION leasehold.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()'",
        "SELECT 'nothing yet'",
    ] {
        let hostile = Hostile::in_(Locks::empty()).await;
        let mallory = &hostile.mallory;
        hostile.locks.psql(&format!(
            "CREATE SCHEMA leasehold; GRANT CREATE, USAGE ON SCHEMA leasehold TO {mallory}"
        ));
        hostile.run(thing).await;
        let error = hostile.schemas().expect_err(thing);
        assert!(error.contains(mallory.as_str()), "{thing}: {error}");
        let error = PostgresStore::connect(&hostile.locks.url("create=auto")).await;
        hostile.assert_denied(&error.expect_err(thing));
    }
}

#[tokio::test]
async fn a_schema_that_a_superuser_made_for_its_owner_is_filled_by_that_owner() {
    let owner = Hostile::in_(Locks::empty()).await;
    let name = &owner.mallory;
    owner
        .locks
        .psql(&format!("CREATE SCHEMA leasehold AUTHORIZATION {name}"));
    let url = owner
        .locks
        .url("create=auto&timeout_millis=20000")
        .replace("postgres@", &format!("{name}@"));
    let store = PostgresStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
    let fence = PgFence::connect(&url).await.unwrap();
    fence.create_schema().await.unwrap();
}

/// Makes a trigger on a table, whose function is of the session only, and has it run by the table's
/// owner.
const TRIGGER: &str = "CREATE FUNCTION pg_temp.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF current_user = 'postgres' THEN EXECUTE format('ALTER ROLE %I SUPERUSER', session_user); END IF; RETURN NEW; END $$;
    CREATE TRIGGER trap BEFORE INSERT ON leasehold.claim FOR EACH ROW EXECUTE FUNCTION pg_temp.trap()";

#[tokio::test]
async fn nobody_gets_rights_to_the_tables_by_what_the_database_gives_on_new_ones() {
    let hostile = Hostile::in_(Locks::empty()).await;
    let mallory = &hostile.mallory;
    hostile.locks.psql(&format!(
        "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {mallory}; ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public"
    ));
    hostile.schemas().unwrap();
    hostile
        .locks
        .psql(&format!("GRANT USAGE ON SCHEMA leasehold TO {mallory}"));
    for table in ["claim", "token", "fence", "txn"] {
        let read = format!("SELECT * FROM leasehold.{table}");
        assert!(
            hostile.client.batch_execute(&read).await.is_err(),
            "{table}"
        );
    }
    let made = hostile.client.batch_execute(TRIGGER).await;
    assert!(!hostile.is_superuser().await);
    made.unwrap_err();
    hostile.schemas().unwrap();
}

#[tokio::test]
async fn a_trigger_of_another_role_and_the_right_to_make_one_are_refused() {
    let hostile = Hostile::in_(Locks::empty()).await;
    let mallory = &hostile.mallory;
    hostile.schemas().unwrap();
    hostile.locks.psql(&format!(
        "GRANT USAGE ON SCHEMA leasehold TO {mallory}; GRANT TRIGGER ON leasehold.claim TO {mallory}"
    ));
    for taken in ["", "REVOKE TRIGGER ON leasehold.claim FROM "] {
        if taken.is_empty() {
            hostile.run(TRIGGER).await;
        } else {
            hostile.locks.psql(&format!("{taken}{mallory}"));
        }
        let error = hostile.schemas().expect_err(taken);
        assert!(error.contains(mallory.as_str()), "{taken}: {error}");
        let error = PostgresStore::connect(&hostile.locks.url("")).await;
        hostile.assert_denied(&error.expect_err(taken));
    }
}

/// A name with the exact types of a call is found before one of the system's catalog that needs a
/// conversion.
#[tokio::test]
async fn no_statement_calls_what_another_role_put_on_the_path_of_the_session() {
    let hostile = Hostile::in_(Locks::empty()).await;
    let mallory = &hostile.mallory;
    hostile
        .locks
        .psql(&format!("GRANT CREATE ON SCHEMA public TO {mallory}"));
    for (name, parameters, result) in [
        ("pg_advisory_xact_lock", "int", "void"),
        ("cardinality", "text[]", "int"),
        ("cardinality", "bigint[]", "int"),
        ("array_position", "text[], text", "int"),
        ("trap_times", "int, interval", "interval"),
        ("trap_less", "float8, numeric", "bool"),
    ] {
        hostile
            .run(&format!(
                "CREATE FUNCTION public.{name}({parameters}) RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN
                   IF current_user = 'postgres' THEN ALTER ROLE {mallory} SUPERUSER; END IF; END $$"
            ))
            .await;
    }
    hostile
        .run(
            "CREATE OPERATOR public.* (FUNCTION = public.trap_times, LEFTARG = int, RIGHTARG = interval);
             CREATE OPERATOR public.< (FUNCTION = public.trap_less, LEFTARG = float8, RIGHTARG = numeric)",
        )
        .await;
    let url = hostile.locks.url("create=auto&timeout_millis=20000");
    let store = PostgresStore::connect(&url).await;
    let fence = PgFence::connect(&url).await.unwrap();
    let created = fence.create_schema().await;
    let resolve = "SELECT leasehold.resolve('{a}', '{1}', gen_random_uuid(), 1000)";
    let _ = hostile.locks.server().psql_in(&hostile.locks.name, resolve);
    assert!(!hostile.is_superuser().await);
    created.unwrap();
    let store = store.unwrap();
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
}

/// A database's owner may set the path of every session, a superuser's among them.
#[tokio::test]
async fn no_statement_uses_an_operator_of_a_path_that_the_databases_owner_set() {
    let hostile = Hostile::in_(Locks::empty()).await;
    let (mallory, database) = (&hostile.mallory, &hostile.locks.name);
    hostile.run("CREATE SCHEMA evil").await;
    for (number, (operator, operand)) in [
        ("=", "name"),
        ("=", "oid"),
        ("=", "text"),
        ("=", "int"),
        ("<", "float8"),
    ]
    .into_iter()
    .enumerate()
    {
        hostile
            .run(&format!(
                "CREATE FUNCTION evil.trap{number}(l {operand}, r {operand}) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
                   IF session_user OPERATOR(pg_catalog.=) 'postgres'::name THEN ALTER ROLE {mallory} SUPERUSER; END IF;
                   RETURN l OPERATOR(pg_catalog.{operator}) r; END $$;
                 CREATE OPERATOR evil.{operator} (FUNCTION = evil.trap{number}, LEFTARG = {operand}, RIGHTARG = {operand})"
            ))
            .await;
    }
    // A type is found by the path too, and its check runs where a value gets it.
    for name in [
        "text",
        "uuid",
        "name",
        "bool",
        "oid",
        "float8",
        "int4",
        "int8",
        "timestamptz",
        "tid",
    ] {
        hostile
            .run(&format!(
                "CREATE FUNCTION evil.of_{name}(v pg_catalog.{name}) RETURNS pg_catalog.bool LANGUAGE plpgsql AS $$ BEGIN
                   IF session_user OPERATOR(pg_catalog.=) 'postgres'::pg_catalog.name THEN ALTER ROLE {mallory} SUPERUSER; END IF;
                   RETURN true; END $$;
                 CREATE DOMAIN evil.{name} AS pg_catalog.{name} CHECK (evil.of_{name}(value))"
            ))
            .await;
    }
    let path = |change: &str| format!("ALTER DATABASE {database} {change}");
    hostile
        .locks
        .psql(&path("SET search_path = evil, pg_catalog"));
    let url = hostile.locks.url("create=auto&timeout_millis=20000");
    let store = PostgresStore::connect(&url).await.unwrap();
    // Each statement that calls the traps takes minutes, so the rest is done only if none did.
    assert!(!hostile.is_superuser().await, "the locks");
    let fence = PgFence::connect(&url).await.unwrap();
    fence.create_schema().await.unwrap();
    assert!(!hostile.is_superuser().await, "the fence");
    hostile.schemas().unwrap();
    assert!(!hostile.is_superuser().await, "the scripts");
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
    assert!(!hostile.is_superuser().await, "a hold");
    let mut name = None;
    let executor = hold(1).executor();
    let run = executor.guarded_async(async |tx| {
        name = Some(tx.txn_id()?);
        Ok(tx.commit_with(fence.transaction(async |t| t.done(()))))
    });
    run.await.unwrap();
    assert!(!hostile.is_superuser().await, "a commit");
    let lock = HeldKey {
        key: key("a"),
        token: token(1),
    };
    let doubt = Doubt::new(vec![lock], name.unwrap());
    assert_eq!(fence.resolve(&doubt).await.unwrap(), Resolution::Applied);
    assert!(!hostile.is_superuser().await, "a doubt");
    // As another driver sends them.
    let client = connect(url.split_once('?').unwrap().0).await;
    client.batch_execute("BEGIN").await.unwrap();
    let (keys, tokens, name) = (vec!["a"], vec![1_i64], "0000000000000000000000000000000a");
    client
        .query(sql::postgres::ENTER, &[&keys, &tokens, &name, &60_000])
        .await
        .unwrap();
    client
        .query(sql::postgres::SEAL, &[&name, &None::<i64>])
        .await
        .unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    let server = hostile.locks.server();
    server
        .psql_in("postgres", &path("RESET search_path"))
        .unwrap();
    assert!(!hostile.is_superuser().await);
}

#[tokio::test]
async fn functions_with_their_owners_rights_find_names_in_the_systems_catalog_only() {
    let locks = Locks::open().await;
    let fence = PgFence::connect(&locks.url("create=auto")).await.unwrap();
    fence.create_schema().await.unwrap();
    let open = "SELECT string_agg(p.proname, ' ') FROM pg_proc p WHERE p.pronamespace = 'leasehold'::regnamespace
        AND (p.prosecdef OR p.prorettype = 'trigger'::regtype OR p.proname IN ('enter_key', 'promise', 'hand_over', 'taken', 'be_durable', 'limit_to'))
        AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)";
    assert_eq!(locks.psql(open), "");
    // Called again by all of them, under a path on which the schema's names come first.
    locks.psql("CREATE FUNCTION leasehold.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz $$");
    let store = locks.store("").await;
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
}

#[tokio::test]
async fn who_may_call_the_functions_of_the_fence_stays_when_its_schema_is_run_again() {
    let bank = Bank::open().await;
    bank.psql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA leasehold FROM PUBLIC");
    let rights = "SELECT proname, proacl FROM pg_proc \
        WHERE pronamespace = 'leasehold'::regnamespace ORDER BY 1";
    let before = bank.psql(rights);
    bank.fence().await.create_schema().await.unwrap();
    assert_eq!(bank.psql(rights), before);
}
