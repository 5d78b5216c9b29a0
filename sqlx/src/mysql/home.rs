//! [`is_home`]: the names of the fence's tables are of the database that a connection is in.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{MySqlConnection, MySqlPool, Row};

use super::text::ask;

const HERE: &str = "SELECT CAST(DATABASE() AS BINARY) AS name, \
     CAST(@@lower_case_table_names AS SIGNED) AS lower";

/// Of the pools that name no database: that of the first connection.
static FIRST: Mutex<Vec<(Weak<MySqlConnectOptions>, String)>> = Mutex::new(Vec::new());

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
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    first.retain(|(options, _)| options.strong_count() > 0);
    let known = first.iter().find(|(known, _)| {
        let known = known.upgrade();
        known.is_some_and(|known| Arc::ptr_eq(&known, &options))
    });
    if let Some((_, home)) = known {
        return home.clone();
    }
    first.push((Arc::downgrade(&options), here.to_owned()));
    here.to_owned()
}
