//! `leasehold sql`: the schemas of the locks and of the fence, to be run by the owner of a
//! database.

use leasehold::fence::sql;
use leasehold::postgres;
use serde_json::json;

use crate::args::{Database, SqlArgs};
use crate::exit::{Failure, code};
use crate::output::{Output, print};

pub(crate) fn sql(args: &SqlArgs, output: Output) -> Result<u8, Failure> {
    let text = match args.database {
        // As a whole or not at all, also by a client that goes on after an error: where the first
        // statement refuses the schema, the others must not fill it.
        Database::Postgres => format!(
            "BEGIN;\n{}\n{}COMMIT;\n",
            postgres::SCHEMA,
            sql::postgres::SCHEMA
        ),
        // There are no locks in SQLite.
        Database::Sqlite => sql::sqlite::SCHEMA.to_owned(),
    };
    if output.json {
        output.answer("", &json!({ "sql": text }))?;
    } else {
        print(&text)?;
    }
    Ok(code::DONE)
}
