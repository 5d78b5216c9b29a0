//! Deleting old names.

use std::collections::BTreeMap;

use leasehold::fence::sql::mysql;
use sqlx::{MySqlPool, Row};

use super::text::{Value, ask, filled, letters};
use crate::lent::Lent;

/// At most hourly, and up to 1,000 names at once. A failure is of no harm.
pub(super) async fn sweep(pool: MySqlPool) {
    let _ = swept(&pool).await;
}

async fn swept(pool: &MySqlPool) -> sqlx::Result<()> {
    let mut connection = Lent::by(pool).await?;
    let begin = format!("START TRANSACTION; {}", mysql::SWEEP);
    let turn = ask(&mut connection, &begin).await;
    if let Some(error) = turn.error {
        return Err(error);
    }
    if turn.changed.last() == Some(&1) {
        let old = ask(&mut connection, mysql::OLD).await.rows()?;
        let mut largest = BTreeMap::new();
        let mut deletes = String::new();
        for row in old {
            let (name, key): (String, String) =
                (letters(&row, "txn_id")?, letters(&row, "lock_key")?);
            let token: i64 = row.try_get("token")?;
            let names = [Value::Text(&name), Value::Text(&key)];
            deletes.push_str(&filled(mysql::DELETE, &names));
            deletes.push_str("; ");
            let most = largest.entry(key).or_insert(token);
            *most = token.max(*most);
        }
        // In this order: the resolver locks in the same one.
        for (key, token) in &largest {
            let (key, token) = (Value::Text(key), Value::Number(*token));
            deletes.push_str(&filled(mysql::SWEPT, &[key, token, token]));
            deletes.push_str("; ");
        }
        let deleted = ask(&mut connection, &format!("{deletes}{}", mysql::SWEEP_ONCE)).await;
        deleted.rows()?;
    }
    ask(&mut connection, "COMMIT").await.rows()?;
    connection.give_back();
    Ok(())
}
