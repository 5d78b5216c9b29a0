//! Ending the connections of holders that hang: a raise waits for their transactions.

use leasehold::Key;
use leasehold::fence::sql::mysql;
use sqlx::{MySqlPool, Row};

use super::text::{Value, ask, filled, letters};
use crate::lent::Lent;

/// Ends the connections that have a transaction open under a token of `key` below `below` whose
/// lease is over. Another user's is left to its time-out.
pub(super) async fn end(pool: &MySqlPool, key: &Key, below: i64) -> sqlx::Result<()> {
    let mut connection = Lent::by(pool).await?;
    let (key, below) = (Value::Text(key.as_str()), Value::Number(below));
    let hung = filled(mysql::HUNG, &[key, below, key, below]);
    // A name is in both answers if it is committed, and its connection has gone on.
    let mut seen = Vec::new();
    for row in ask(&mut connection, &hung).await.rows()? {
        let name: (String, u64) = (letters(&row, "txn_id")?, row.try_get("conn")?);
        seen.push(name);
    }
    let own = ask(&mut connection, mysql::OWN).await.rows()?;
    let own: Vec<u64> = own
        .iter()
        .map(|row| row.try_get("conn"))
        .collect::<Result<_, _>>()?;
    for name in &seen {
        let is_open = seen.iter().filter(|other| *other == name).count() == 1;
        // Whoever may write the row may write any number.
        if is_open && own.contains(&name.1) {
            let id = i64::try_from(name.1).unwrap_or(i64::MAX);
            let kill = filled(mysql::KILL, &[Value::Number(id)]);
            // 1094: it has ended.
            let _ = ask(&mut connection, &kill).await;
        }
    }
    connection.give_back();
    Ok(())
}
