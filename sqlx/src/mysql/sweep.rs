//! Deleting old names.

use std::collections::BTreeMap;

use leasehold::fence::sql::mysql;
use sqlx::{MySqlConnection, MySqlPool};

use super::text::{UNWAIT, Value, WAIT, ask, filled, letters};
use crate::lent::Lent;

/// At most hourly, and up to 1,000 names at once. A failure is of no harm: a connection on which
/// there was one is closed.
pub(super) async fn sweep(pool: MySqlPool) {
    let _ = swept(&pool).await;
}

async fn swept(pool: &MySqlPool) -> sqlx::Result<()> {
    let mut connection = Lent::by(pool).await?;
    let begin = format!("{WAIT}; START TRANSACTION; {}", mysql::SWEEP);
    let turn = ask(&mut connection, &begin).await;
    if let Some(error) = turn.error {
        return Err(error);
    }
    let is_turn = turn.changed.last() == Some(&1);
    let mut end = "COMMIT".to_owned();
    if is_turn {
        let deletes = deletes(&mut connection).await?;
        // Apart: a transaction of the user's may hold what it deletes.
        end = format!(
            "{deletes}COMMIT; START TRANSACTION; {}; COMMIT",
            mysql::SWEEP_ONCE
        );
    }
    let ended = ask(&mut connection, &format!("{end}; {UNWAIT}")).await;
    ended.rows()?;
    connection.give_back();
    Ok(())
}

/// What deletes the oldest names, and notes the largest of each key.
async fn deletes(sql: &mut MySqlConnection) -> sqlx::Result<String> {
    let old = ask(sql, mysql::OLD).await.rows()?;
    let mut largest = BTreeMap::new();
    let mut deletes = String::new();
    let mut send = |statement, values: &[Value<'_>]| {
        deletes.push_str(&filled(statement, values));
        deletes.push_str("; ");
    };
    for row in &old {
        let (name, key): (String, String) = (letters(row, "txn_id")?, letters(row, "lock_key")?);
        send(mysql::DELETE, &[Value::Text(&name), Value::Text(&key)]);
        // They are in order.
        largest.insert(key, name);
    }
    // In this order: the resolver locks in the same one.
    for (key, name) in &largest {
        let (key, name) = (Value::Text(key), Value::Text(name));
        send(mysql::SWEPT, &[key, name, name]);
    }
    if old.len() == mysql::OLD_AT_ONCE {
        send(mysql::SWEEP_ON, &[]);
    }
    Ok(deletes)
}
