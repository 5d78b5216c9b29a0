//! [`Standbys`]: whether those that the server waits for have what was committed.
//!
//! A commit whose wait for the standbys was cancelled is answered without an error, with a notice
//! that sqlx writes to the log only; and the wait ends without a notice where somebody empties
//! `synchronous_standby_names`. So the fence asks the server what the standbys have.

use std::time::Duration;

use leasehold::clock::Clock;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::text::one_row;

/// How long the standbys are waited for after a commit that they should have confirmed.
const CONFIRM: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// An expression: which standbys the server waits for, as the column `names`. To be read *before*
/// the commit.
pub(super) const NAMES: &str = "pg_catalog.current_setting('synchronous_standby_names')";

/// How many standbys have to have a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standbys(pub(super) i64);

impl Standbys {
    /// Of an answer with the column `names`.
    pub(super) fn of(row: &PgRow) -> Self {
        // What cannot be read demands more standbys than there are.
        row.try_get("names").map_or(Self(i64::MAX), Self::named)
    }

    fn named(names: &str) -> Self {
        let names = names.trim().to_ascii_lowercase();
        if names.is_empty() {
            return Self(0);
        }
        let after_word = ["first", "any"].iter().find_map(|word| {
            let rest = names.strip_prefix(word)?;
            rest.starts_with(char::is_whitespace)
                .then(|| rest.trim_start())
        });
        let rest = after_word.unwrap_or(&names);
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, rest) = rest.split_at(end);
        let is_list = rest.trim_start().starts_with('(');
        let number = number.parse().ok().filter(|_| is_list);
        Self(number.unwrap_or(1))
    }

    /// Whether so many of them have all that this server has written when it is first asked, soon.
    /// The role needs `pg_monitor` to see them.
    pub(super) async fn have_it(self, sql: &mut PgConnection, clock: &Clock) -> bool {
        if self.0 == 0 {
            return true;
        }
        let mut at = String::new();
        let seen = async {
            loop {
                let asked = having(&at);
                let Ok(row) = one_row(sql, &asked).await else {
                    return false;
                };
                match (row.try_get::<i64, _>(0), row.try_get::<String, _>(1)) {
                    (Ok(count), _) if count >= self.0 => return true,
                    (Ok(_), Ok(first)) => at = first,
                    _ => return false,
                }
                clock.sleep(PAUSE).await;
            }
        };
        clock.timeout(CONFIRM, seen).await == Some(true)
    }
}

/// How many standbys have the log up to that place; an empty one: up to where it is now, which is
/// the second column.
fn having(at: &str) -> String {
    let at = if at.is_empty() {
        "pg_catalog.pg_current_wal_flush_lsn()".to_owned()
    } else {
        format!("'{at}'::pg_catalog.pg_lsn")
    };
    format!(
        "SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication r \
           WHERE (r.sync_state OPERATOR(pg_catalog.=) 'sync'::pg_catalog.text OR r.sync_state OPERATOR(pg_catalog.=) 'quorum'::pg_catalog.text) \
             AND r.flush_lsn OPERATOR(pg_catalog.>=) l.at), \
         l.at::pg_catalog.text FROM (SELECT {at} AS at) l"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_standbys_have_to_confirm_as_the_setting_says() {
        for (names, count) in [
            ("", 0),
            ("  ", 0),
            ("a", 1),
            ("a, b", 1),
            ("*", 1),
            ("FIRST 2 (a, b)", 2),
            ("any 3(a, b, c)", 3),
            (" 2 ( a, b )", 2),
            ("first_one, b", 1),
            ("any", 1),
            ("\"2 (\"", 1),
        ] {
            assert_eq!(Standbys::named(names), Standbys(count), "{names}");
        }
    }
}
