//! `leasehold sql`: the schemas of the locks and of the fence, to be run by the owner of a database.

use std::io::Write;

use leasehold::fence::sql;
use leasehold::store::postgres;
use serde_json::json;

use crate::args::{Database, SqlArgs};
use crate::exit::code;
use crate::output::Output;

pub(crate) fn sql(args: &SqlArgs, output: Output) -> u8 {
    let text = match args.database {
        Database::Postgres => format!("{}\n{}", postgres::SCHEMA, sql::postgres::SCHEMA),
        // There are no locks in SQLite.
        Database::Sqlite => sql::sqlite::SCHEMA.to_owned(),
    };
    if output.json {
        output.answer("", &json!({ "sql": text }));
    } else {
        // A reader that has gone away (`| head`) wants no more.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
    code::DONE
}
