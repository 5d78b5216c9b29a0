//! [`Options`]: the options of one store, or the fields of a configuration, and the one function
//! that reads them.
//!
//! A table holds each name once, with what it accepts, its default and what it means. Values are
//! set by it, refusals are worded by it, and the guide and the tool's help are written from it.

#![cfg_attr(
    not(all(
        feature = "config",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    )),
    allow(dead_code, reason = "each store uses a part")
)]

use std::time::Duration;

use crate::model::error::Error;

/// The shortest and the longest span that is accepted.
pub(crate) type Range = [Duration; 2];

/// What can be set on a `T`.
pub(crate) struct Options<T: 'static> {
    /// Whose options these are, for messages: `Redis`.
    pub(crate) of: &'static str,
    pub(crate) fields: &'static [Field<T>],
}

/// One option.
pub(crate) struct Field<T: 'static> {
    pub(crate) name: &'static str,
    default: &'static str,
    accepts: Accepts<T>,
    doc: &'static str,
    /// Only schemes that end with it have this option.
    scheme: &'static str,
    /// Names that other frameworks use, and the unit of their numbers.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
}

/// What values an option takes, and how one is set.
pub(crate) enum Accepts<T> {
    Span(Range, fn(&mut T, Duration)),
    /// A span as a number of milliseconds.
    Millis(Range, fn(&mut T, Duration)),
    Number(fn(&mut T, u32)),
    Words(&'static [&'static str], fn(&mut T, &str)),
    /// Anything that the function takes, in words, such as `host:port`.
    Text(&'static str, fn(&mut T, &str) -> Result<(), Error>),
    /// A text that no message shows, nor what follows it in a URL: that may be the rest of it,
    /// behind a raw `&`.
    Secret(fn(&mut T, &str)),
}

impl<T> Field<T> {
    /// `default`: as it is written in a URL; empty for none.
    pub(crate) const fn new(
        name: &'static str,
        default: &'static str,
        accepts: Accepts<T>,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            default,
            accepts,
            doc,
            scheme: "",
            aliases: &[],
        }
    }

    pub(crate) const fn only(mut self, scheme: &'static str) -> Self {
        self.scheme = scheme;
        self
    }

    pub(crate) const fn or(mut self, aliases: &'static [(&'static str, &'static str)]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Sets a value. The error names neither the option nor the value, which the caller shows or
    /// hides.
    pub(crate) fn set(&self, to: &mut T, value: &str) -> Result<(), Error> {
        let unreadable = || Error::invalid(format!("it cannot be read; use {}", self.accepted()));
        let number = || value.parse::<u32>().map_err(|_| unreadable());
        match &self.accepts {
            Accepts::Span(range, set) => {
                let span = humantime::parse_duration(value).map_err(|_| unreadable())?;
                set(to, within(span, *range)?);
            }
            Accepts::Millis(range, set) => {
                let span = Duration::from_millis(number()?.into());
                set(to, within(span, *range)?);
            }
            Accepts::Number(set) => set(to, number()?),
            Accepts::Words(words, set) if words.contains(&value) => set(to, value),
            Accepts::Words(..) => return Err(unreadable()),
            Accepts::Text(_, set) => return set(to, value),
            Accepts::Secret(set) => set(to, value),
        }
        Ok(())
    }

    /// The values that it takes, in words.
    fn accepted(&self) -> String {
        match &self.accepts {
            Accepts::Span(..) => "a duration with its unit: 10s or 200ms".to_owned(),
            Accepts::Millis(..) => "a whole number of milliseconds".to_owned(),
            Accepts::Number(_) => "a whole number".to_owned(),
            Accepts::Words(words, _) => one_of(words),
            Accepts::Text(accepted, _) => (*accepted).to_owned(),
            Accepts::Secret(_) => "a text".to_owned(),
        }
    }
}

impl<T> Options<T> {
    /// Sets what a URL of `scheme` gives.
    ///
    /// # Errors
    ///
    /// `Invalid` for an option that is unknown, given twice, or has a value that is not accepted.
    pub(crate) fn read<'a>(
        &self,
        scheme: &str,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
        to: &mut T,
    ) -> Result<(), Error> {
        let mut before: Vec<&Field<T>> = Vec::new();
        for (name, value) in given {
            let is_hidden =
                (before.iter()).any(|field| matches!(field.accepts, Accepts::Secret(_)));
            let field = (self.of_scheme(scheme).find(|field| field.name == name))
                .ok_or_else(|| self.unknown(scheme, if is_hidden { "" } else { name }))?;
            if before.iter().any(|other| other.name == name) {
                return Err(Error::invalid(format!(
                    "the URL of {} has an option twice: name={name}; write it once",
                    self.of
                )));
            }
            let shown = match &field.accepts {
                Accepts::Text(..) | Accepts::Secret(_) => String::new(),
                _ if is_hidden => String::new(),
                _ => format!("={:?}", value.chars().take(40).collect::<String>()),
            };
            (field.set(to, value)).map_err(|why| self.named(name, &shown, &why))?;
            before.push(field);
        }
        Ok(())
    }

    /// A value within its range, for the methods that set it in code.
    pub(crate) fn within(
        &self,
        name: &str,
        value: Duration,
        range: Range,
    ) -> Result<Duration, Error> {
        within(value, range).map_err(|why| self.named(name, &format!("={value:?}"), &why))
    }

    fn named(&self, name: &str, value: &str, why: &Error) -> Error {
        let kind = why.kind();
        let why = why.to_string();
        let why = why.strip_prefix(&format!("{kind}: ")).unwrap_or(&why);
        Error::new(kind, format!("option {name}{value} of {}: {why}", self.of))
    }

    fn of_scheme(&self, scheme: &str) -> impl Iterator<Item = &'static Field<T>> {
        let fields = self.fields.iter();
        fields.filter(move |field| scheme.ends_with(field.scheme))
    }

    fn unknown(&self, scheme: &str, name: &str) -> Error {
        let names: Vec<_> = self.of_scheme(scheme).map(|field| field.name).collect();
        Error::invalid(format!(
            "{} has no such option: {}; {}use {}",
            self.of,
            shown(name),
            meant(name, &names),
            names.join(", ")
        ))
    }

    /// The options with their values, defaults and meanings, in lines for a program's help.
    pub(crate) fn help(&self) -> String {
        let lines = self.fields.iter().map(|field| {
            let (accepted, doc) = (field.accepted(), field.doc.replace('`', ""));
            let default = match field.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            format!("  {:<18} {accepted}{default}\n{:21}{doc}\n", field.name, "")
        });
        format!("{}:\n{}", self.of, lines.collect::<String>())
    }

    /// The field of a name, and the unit of its numbers if the name is an alias that has one.
    pub(crate) fn find(&self, name: &str) -> Result<(&'static Field<T>, &'static str), String> {
        // Spring writes its properties with dashes.
        let plain = name.replace('-', "_");
        for field in self.fields {
            if field.name == name {
                return Ok((field, ""));
            }
            if let Some((_, unit)) = field.aliases.iter().find(|(alias, _)| *alias == plain) {
                return Ok((field, unit));
            }
        }
        let names: Vec<_> = self.fields.iter().map(|field| field.name).collect();
        let meant = meant(name, &names);
        Err(format!("unknown name; {meant}use {}", names.join(", ")))
    }
}

/// Refuses what is out of range.
fn within(value: Duration, [least, most]: Range) -> Result<Duration, Error> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Error::invalid(format!(
        "it is out of range; set it from {least:?} to {most:?}"
    )))
}

/// A name that cannot be one may be a part of a password.
fn shown(name: &str) -> String {
    let can_be_one = |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte == b'-';
    if (1..=32).contains(&name.len()) && name.bytes().all(can_be_one) {
        format!("name={name}")
    } else {
        "its name may be a part of a password and is not shown".to_owned()
    }
}

/// `a, b or c`.
fn one_of<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.concat(),
    }
}

/// Suggests the known name that differs least, if it is near.
fn meant(name: &str, known: &[&str]) -> String {
    let nearest = (known.iter()).min_by_key(|known| distance(name, known));
    match nearest {
        Some(known) if distance(name, known) <= name.len().div_ceil(3) => {
            format!("did you mean {known}? ")
        }
        _ => String::new(),
    }
}

/// How many letters have to be put in, left out or replaced.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Options<T> {
        /// The same as a table of the guide.
        pub(crate) fn markdown(&self) -> String {
            let mut table =
                "| option | value | default | meaning |\n|---|---|---|---|\n".to_owned();
            for field in self.fields {
                let value = match &field.accepts {
                    Accepts::Span([least, most], _) => {
                        let [least, most] = [*least, *most].map(humantime::format_duration);
                        format!("a duration, {least} to {most}")
                    }
                    Accepts::Words(words, _) => {
                        let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                        one_of(&words)
                    }
                    _ => field.accepted(),
                };
                let default = match field.default {
                    "" => "none".to_owned(),
                    default => format!("`{default}`"),
                };
                let (name, doc) = (field.name, field.doc);
                table += &format!("| `{name}` | {value} | {default} | {doc} |\n");
            }
            table
        }

        /// What a URL gives that writes every default.
        pub(crate) fn defaults(&self, scheme: &str) -> String {
            let given = self
                .of_scheme(scheme)
                .filter(|field| !field.default.is_empty());
            let given: Vec<_> =
                (given.map(|field| format!("{}={}", field.name, field.default))).collect();
            given.join("&")
        }
    }

    #[derive(Default)]
    struct Door {
        open: Duration,
        keys: u32,
    }

    const TABLE: Options<Door> = Options {
        of: "a door",
        fields: &[
            Field::new(
                "open_for",
                "1s",
                Accepts::Span(
                    [Duration::from_secs(1), Duration::from_secs(9)],
                    |door, span| {
                        door.open = span;
                    },
                ),
                "how long it is open",
            ),
            Field::new(
                "keys",
                "0",
                Accepts::Number(|door, keys| door.keys = keys),
                "how many",
            ),
            Field::new("code", "", Accepts::Secret(|_, _| ()), "what opens it"),
            Field::new("bell", "", Accepts::Secret(|_, _| ()), "of a front door").only("front"),
        ],
    };

    fn refused(given: &[(&str, &str)]) -> String {
        let refused = TABLE.read("back", given.iter().copied(), &mut Door::default());
        refused.unwrap_err().to_string()
    }

    #[test]
    fn a_value_is_set_by_its_name() {
        let mut door = Door::default();
        let given = [("keys", "3"), ("open_for", "2s"), ("bell", "x")];
        TABLE.read("front", given, &mut door).unwrap();
        assert_eq!((door.open, door.keys), (Duration::from_secs(2), 3));
    }

    #[test]
    fn a_refusal_names_the_option_whose_it_is_and_what_is_accepted() {
        assert_eq!(
            refused(&[("open_for", "1h")]),
            "invalid: option open_for=\"1h\" of a door: it is out of range; set it from 1s to 9s"
        );
        assert_eq!(
            refused(&[("keys", "many")]),
            "invalid: option keys=\"many\" of a door: it cannot be read; use a whole number"
        );
        assert_eq!(
            refused(&[("openfor", "1s")]),
            "invalid: a door has no such option: name=openfor; did you mean open_for? use open_for, keys, code"
        );
        assert!(refused(&[("bell", "x")]).contains("name=bell; use"));
        assert!(refused(&[("keys", "1"), ("keys", "1")]).contains("twice: name=keys"));
    }

    #[test]
    fn what_follows_a_secret_is_not_shown() {
        for rest in [("sesame", ""), ("keys", "sesame"), ("Sesame9", "1")] {
            let message = refused(&[("code", "open"), rest]);
            assert!(!message.to_lowercase().contains("sesame"), "{message}");
        }
    }

    #[test]
    fn a_name_is_suggested_if_few_letters_differ() {
        assert_eq!(
            meant("max_tll", &["prefix", "max_ttl"]),
            "did you mean max_ttl? "
        );
        assert_eq!(meant("colour", &["prefix", "max_ttl", "replicas"]), "");
        assert_eq!(meant("", &["prefix"]), "");
    }
}
