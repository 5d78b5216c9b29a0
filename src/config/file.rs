//! A TOML file, with the position of every value.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::entry::{Entry, Origin, Section, located};
use super::field;
use crate::model::error::{Error, ErrorKind};

/// The values of a file, by manager.
#[derive(Default)]
pub(super) struct Sections {
    pub(super) top: Section,
    pub(super) managers: BTreeMap<String, Section>,
}

pub(super) fn read(path: &Path) -> Result<(String, String), Error> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|why| {
        Error::unavailable(format!(
            "the configuration file cannot be read: file={name}: {why}; check that it exists and is readable"
        ))
    })?;
    Ok((name, text))
}

pub(super) fn sections(name: &str, text: &str) -> Result<Sections, Error> {
    let file = File {
        name: Arc::from(name),
        text,
    };
    let table = DeTable::parse(text).map_err(|why| {
        let origin = file.origin(why.span().unwrap_or_default());
        located(
            &origin,
            "toml",
            ErrorKind::Invalid,
            why.message().replace('\n', " "),
        )
    })?;
    let mut sections = Sections::default();
    for (key, value) in in_order(table.into_inner()) {
        match (&**key.get_ref(), value.into_inner()) {
            ("managers", DeValue::Table(managers)) => {
                sections.managers = file.managers(managers)?;
            }
            (_, value) => file.add(&mut sections.top, "", &key, value)?,
        }
    }
    Ok(sections)
}

struct File<'a> {
    name: Arc<str>,
    text: &'a str,
}

impl File<'_> {
    fn managers(&self, tables: DeTable<'_>) -> Result<BTreeMap<String, Section>, Error> {
        let mut managers = BTreeMap::new();
        for (name, table) in in_order(tables) {
            let origin = self.origin(name.span());
            let name = name.into_inner().into_owned();
            let DeValue::Table(table) = table.into_inner() else {
                let message = format!("a table is needed here; write [managers.{name}]");
                let field = format!("managers.{name}");
                return Err(located(&origin, &field, ErrorKind::Invalid, message));
            };
            let mut section = Section::default();
            for (key, value) in in_order(table) {
                let table = format!("managers.{name}.");
                self.add(&mut section, &table, &key, value.into_inner())?;
            }
            managers.insert(name, section);
        }
        Ok(managers)
    }

    /// Adds a field, or the fields of `[handlers]`.
    fn add(
        &self,
        section: &mut Section,
        table: &str,
        key: &Name<'_>,
        value: DeValue<'_>,
    ) -> Result<(), Error> {
        let name = key.get_ref();
        let written = format!("{table}{name}");
        match value {
            DeValue::Table(handlers) if name == "handlers" => {
                for (key, value) in in_order(handlers) {
                    let field = format!("handlers.{}", key.get_ref());
                    let written = format!("{table}{field}");
                    let entry = entry(written, value.into_inner(), self.origin(key.span()))?;
                    field::add(section, &field, entry)?;
                }
                Ok(())
            }
            DeValue::Table(_) => {
                let message = format!("unknown table; use {}", tables(table));
                let origin = self.origin(key.span());
                Err(located(&origin, &written, ErrorKind::Invalid, message))
            }
            value => field::add(
                section,
                name,
                entry(written, value, self.origin(key.span()))?,
            ),
        }
    }

    fn origin(&self, span: Range<usize>) -> Origin {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Origin::File(Arc::clone(&self.name), line, column)
    }
}

/// The tables that this table may contain.
fn tables(table: &str) -> String {
    match table {
        "" => "[handlers] or [managers.NAME]".to_owned(),
        manager => format!("[{manager}handlers]"),
    }
}

/// In the order of the file, so that the first fault of a file is reported.
fn in_order(table: DeTable<'_>) -> Vec<(Name<'_>, Spanned<DeValue<'_>>)> {
    let mut pairs: Vec<_> = table.into_iter().collect();
    pairs.sort_by_key(|(name, _)| name.span().start);
    pairs
}

type Name<'a> = Spanned<DeString<'a>>;

fn entry(written: String, value: DeValue<'_>, origin: Origin) -> Result<Entry, Error> {
    let kind = value.type_str();
    let value = match value {
        DeValue::String(text) => Some(text.into_owned()),
        DeValue::Integer(number) => {
            let Ok(number) = i64::from_str_radix(number.as_str(), number.radix()) else {
                let message = "the number is too large; use one of at most 9223372036854775807";
                return Err(located(&origin, &written, ErrorKind::Invalid, message));
            };
            Some(number.to_string())
        }
        DeValue::Boolean(on) => Some(on.to_string()),
        _ => None,
    };
    match value {
        Some(value) => Ok(Entry {
            written,
            value,
            origin,
        }),
        None => {
            let message = format!(
                "a text, a whole number, true or false is needed here; it is of type={kind}"
            );
            Err(located(&origin, &written, ErrorKind::Invalid, message))
        }
    }
}
