//! The environment variables.

use super::entry::{Entry, Origin, Section, located};
use super::field;
use crate::model::error::{Error, ErrorKind};

const PREFIX: &str = "LEASEHOLD_";

/// Variables that do not configure a manager: the tool sets them for the command that it runs.
const NOT_OURS: [&str; 3] = ["KEY", "LEASE", "TOKEN"];

pub(super) struct Environment {
    /// The file whose values the variables override.
    pub(super) file: Option<String>,
    pub(super) section: Section,
}

/// The variables of this process. Ours are text: one that is not would be another value.
pub(super) fn of_this_process() -> Result<Vec<(String, String)>, Error> {
    let ours = std::env::vars_os().filter(|(name, _)| {
        let name = name.as_encoded_bytes();
        name.starts_with(PREFIX.as_bytes())
    });
    ours.map(
        |(name, value)| match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => Ok((name, value)),
            (name, _) => {
                let name = name.unwrap_or_else(|name| name.to_string_lossy().into_owned());
                let field = name.clone();
                let message = "it is not UTF-8; write it as text";
                Err(located(
                    &Origin::Variable(name),
                    &field,
                    ErrorKind::Invalid,
                    message,
                ))
            }
        },
    )
    .collect()
}

pub(super) fn read(vars: impl IntoIterator<Item = (String, String)>) -> Result<Environment, Error> {
    let mut environment = Environment {
        file: None,
        section: Section::default(),
    };
    for (variable, value) in vars {
        let Some(name) = variable.strip_prefix(PREFIX) else {
            continue;
        };
        // As systemd writes a variable that is not set.
        if value.is_empty() {
            continue;
        }
        match name {
            "CONFIG" => environment.file = Some(value),
            name if NOT_OURS.contains(&name) => {}
            name => {
                let name = name.to_ascii_lowercase();
                // A table of the file is a part of the variable's name.
                let name = match name.strip_prefix("handlers_") {
                    Some(field) => format!("handlers.{field}"),
                    None => name,
                };
                let entry = Entry {
                    written: name.clone(),
                    value,
                    origin: Origin::Variable(variable),
                };
                field::add(&mut environment.section, &name, entry)?;
            }
        }
    }
    Ok(environment)
}
