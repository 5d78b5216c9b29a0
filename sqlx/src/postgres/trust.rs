//! [`trust`]: a superuser calls no function of a role that it need not trust.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold::fence::sql::postgres::OWNED;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgConnection, PgPool, Row};

use super::text::one_row;

const IS_SUPERUSER: &str = "SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user";

/// The options of the pools whose role is no superuser. sqlx has no place for it in a connection.
static TRUSTED: Mutex<Vec<Weak<PgConnectOptions>>> = Mutex::new(Vec::new());

/// Checks the owners in the schema if the role of the pool is a superuser: a function of another
/// role has the rights of whoever calls it. It is checked each time, because another database may
/// have taken the name of the former one. The role of the session counts, and not the one
/// that it acts as: any function may go back to it.
pub(super) async fn trust(pool: &PgPool, sql: &mut PgConnection) -> sqlx::Result<()> {
    let options = pool.connect_options();
    let is_known = |known: &Weak<_>| {
        let known = known.upgrade();
        known.is_some_and(|known| Arc::ptr_eq(&known, &options))
    };
    let trusted = || TRUSTED.lock().unwrap_or_else(PoisonError::into_inner);
    if trusted().iter().any(is_known) {
        return Ok(());
    }
    if one_row(sql, IS_SUPERUSER).await?.try_get(0)? {
        let owned = OWNED.replace("current_user", "session_user");
        sql.execute(&*owned).await?;
        return Ok(());
    }
    let mut trusted = trusted();
    trusted.retain(|known| known.strong_count() > 0);
    trusted.push(Arc::downgrade(&options));
    Ok(())
}
