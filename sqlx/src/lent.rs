//! [`Lent`]: a connection of the user's pool that goes back only clean.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use crate::database::SqlxDatabase;

/// A connection of a pool. When it is dropped its socket is closed at once, and the database rolls
/// back what is open, unless it was [given back](Self::give_back).
pub(crate) struct Lent<DB: Database>(Option<PoolConnection<DB>>);

impl<DB: SqlxDatabase> Lent<DB> {
    pub(crate) async fn by(pool: &Pool<DB>) -> sqlx::Result<Self> {
        // All of them may have to be closed, and then there is a new one.
        for _ in 0..=pool.options().get_max_connections() {
            let mut lent = Self(Some(pool.acquire().await?));
            if DB::trust(pool, &mut lent).await? {
                return Ok(lent);
            }
        }
        Err(sqlx::Error::Configuration(
            "each connection of the pool is in another database than its URL names; leave USE out of after_connect and before_acquire".into(),
        ))
    }
}

impl<DB: Database> Lent<DB> {
    /// Every answer has come, and nothing is open but what the pool ends before the next caller
    /// gets the connection.
    pub(crate) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl<DB: Database> Deref for Lent<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.0 {
            Some(connection) => connection,
            None => unreachable!("it is taken by what consumes or drops it"),
        }
    }
}

impl<DB: Database> DerefMut for Lent<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match &mut self.0 {
            Some(connection) => connection,
            None => unreachable!("it is taken by what consumes or drops it"),
        }
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        // Not by the pool: it says goodbye first, in a task that sends what is queued.
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
