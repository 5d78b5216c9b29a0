//! The counter in a table of the PostgreSQL database that grants the lock, behind a fence.

use std::sync::Arc;

use leasehold::BoxError;
use leasehold::postgres::PgFence;
use leasehold::postgres::tokio_postgres::{Client, NoTls, connect};

use crate::exit::Failure;

#[derive(Clone)]
pub(in crate::counter) struct InPostgres {
    pub(super) fence: PgFence,
    plain: Arc<Client>,
    name: String,
}

/// Makes the schema of the fence too, since only a test counts.
pub(super) async fn make(url: &str, name: &str) -> Result<(), BoxError> {
    PgFence::connect(url).await?.create_schema().await?;
    let plain = plain(url).await?;
    let table = "CREATE TABLE IF NOT EXISTS leasehold_counter (name text PRIMARY KEY, number bigint NOT NULL)";
    plain.batch_execute(table).await?;
    let row = "INSERT INTO leasehold_counter VALUES ($1, 0)";
    plain.execute(row, &[&name]).await?;
    Ok(())
}

pub(super) async fn remove(url: &str, name: &str) -> Result<(), BoxError> {
    let plain = plain(url).await?;
    let row = "DELETE FROM leasehold_counter WHERE name = $1";
    plain.execute(row, &[&name]).await?;
    Ok(())
}

impl InPostgres {
    pub(super) async fn open(url: &str, name: &str) -> Result<Self, Failure> {
        let opened = plain(url).await;
        Ok(Self {
            fence: PgFence::connect(url).await?,
            plain: Arc::new(
                opened.map_err(|why| Failure::system("the counter could not be opened", &why))?,
            ),
            name: name.to_owned(),
        })
    }

    pub(super) async fn read(&self) -> Result<u64, BoxError> {
        let row = "SELECT number FROM leasehold_counter WHERE name = $1";
        let number: i64 = self.plain.query_one(row, &[&self.name]).await?.try_get(0)?;
        Ok(u64::try_from(number)?)
    }

    /// Writes `number` as the commit of a run.
    pub(super) fn commit(&self, tx: &leasehold::AsyncTx, number: u64) {
        let name = self.name.clone();
        let number = number.cast_signed();
        drop(tx.commit_with(self.fence.transaction(async move |t| {
            let row = "UPDATE leasehold_counter SET number = $1 WHERE name = $2";
            t.execute(row, &[&number, &name]).await?;
            t.done(())
        })));
    }
}

async fn plain(url: &str) -> Result<Client, BoxError> {
    let (client, connection) = connect(&database(url), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// For the driver: the primary, without the options of the store, which the driver does not know.
fn database(url: &str) -> String {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let socket = options
        .split('&')
        .find(|option| option.starts_with("host="));
    let socket = socket.map_or_else(String::new, |socket| format!("{socket}&"));
    format!("{address}?{socket}target_session_attrs=read-write")
}
