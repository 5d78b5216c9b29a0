//! [`trust`]: a superuser calls no function of a role that it need not trust.

use leasehold::fence::sql::postgres::OWNED;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgConnection, PgPool, Row};

use super::text::one_row;
use crate::per_pool::PerPool;

const IS_SUPERUSER: &str = "SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user";

/// The pools whose role is no superuser.
static TRUSTED: PerPool<PgConnectOptions, ()> = PerPool::new();

/// Checks the owners in the schema if the role of the pool is a superuser: a function of another
/// role has the rights of whoever calls it. It is checked each time, because another database may
/// have taken the name of the former one. The role of the session counts, and not the one that it
/// acts as: any function may go back to it.
pub(super) async fn trust(pool: &PgPool, sql: &mut PgConnection) -> sqlx::Result<()> {
    let options = pool.connect_options();
    if TRUSTED.get(&options).is_some() {
        return Ok(());
    }
    if one_row(sql, IS_SUPERUSER).await?.try_get(0)? {
        let owned = OWNED.replace("current_user", "session_user");
        sql.execute(&*owned).await?;
    } else {
        TRUSTED.add(&options, ());
    }
    Ok(())
}
