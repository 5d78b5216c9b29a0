//! [`is_home`]: the names of the fence's tables are of the database that a connection is in.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{MySqlConnection, MySqlPool, Row};

use super::text::ask;
use crate::per_pool::PerPool;

const HERE: &str = "SELECT CAST(DATABASE() AS BINARY) AS name, \
     CAST(@@lower_case_table_names AS SIGNED) AS lower";

/// Of the pools that name no database: that of the first connection.
static FIRST: PerPool<MySqlConnectOptions, String> = PerPool::new();

/// Whether the connection is in the database of its pool. A `USE` that somebody left on it would
/// split the fence: this holder in one database, and the next one in another.
pub(super) async fn is_home(pool: &MySqlPool, sql: &mut MySqlConnection) -> sqlx::Result<bool> {
    let row = ask(sql, HERE).await.row()?;
    let here: Option<String> = row.try_get_unchecked("name")?;
    let Some(here) = here else {
        // The statements of the fence say so, unless the database was dropped.
        return Ok(pool.connect_options().get_database().is_none());
    };
    let home = home(pool, &here);
    Ok(match row.try_get::<i64, _>("lower")? {
        0 => home == here,
        _ => home.to_lowercase() == here.to_lowercase(),
    })
}

fn home(pool: &MySqlPool, here: &str) -> String {
    let options = pool.connect_options();
    if let Some(database) = options.get_database() {
        return database.to_owned();
    }
    if FIRST.get(&options).is_none() {
        FIRST.add(&options, here.to_owned());
    }
    FIRST.get(&options).unwrap_or_default()
}
