//! The name of the Lease of a key: the key itself if it suits, otherwise an escaped form of it.

use crate::model::error::Error;
use crate::model::key::Key;

/// What an escaped name begins with. No plain name contains two hyphens in a row.
const ESCAPED: &str = "k--";
/// The longest name of an object.
const LONGEST: usize = 253;

/// The name of a key's Lease: the key itself, if it is a name of Kubernetes without `--`. Otherwise
/// `k--`, and behind it the key, in which `--` and two hexadecimal digits are each byte that cannot
/// stay. Two keys have never the same name.
///
/// # Errors
///
/// `Invalid` if the name is too long.
pub(super) fn of(key: &Key) -> Result<String, Error> {
    let text = key.as_str();
    let bytes = text.as_bytes();
    let stays = |at: usize| is_plain(bytes, at);
    if (0..bytes.len()).all(stays) {
        return Ok(text.to_owned());
    }
    let mut name = ESCAPED.to_owned();
    for (at, byte) in bytes.iter().enumerate() {
        if stays(at) {
            name.push(char::from(*byte));
        } else {
            name.push_str(&format!("--{byte:02x}"));
        }
    }
    if name.len() > LONGEST {
        return Err(Error::invalid(format!(
            "the name of this key's Lease is too long: key={key} name_bytes={}; use a shorter key, or one of lowercase letters, digits, - and .",
            name.len()
        )));
    }
    Ok(name)
}

/// The key of a name; `None` if it is no name that [`of`] gives.
pub(super) fn key_of(name: &str) -> Option<Key> {
    let text = match name.strip_prefix(ESCAPED) {
        None => name.to_owned(),
        Some(escaped) => {
            let mut parts = escaped.split("--");
            let mut text = parts.next()?.to_owned();
            for part in parts {
                let (digits, rest) = part.split_at_checked(2)?;
                text.push(char::from(u8::from_str_radix(digits, 16).ok()?));
                text.push_str(rest);
            }
            text
        }
    };
    let key = Key::parse(&text).ok()?;
    (of(&key).ok()? == name).then_some(key)
}

/// Lowercase letters and digits stay everywhere, `-` and `.` only between two of these.
fn is_plain(bytes: &[u8], at: usize) -> bool {
    let letter = |at: usize| {
        (bytes.get(at)).is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    match bytes[at] {
        b'-' | b'.' => at > 0 && letter(at - 1) && letter(at + 1),
        _ => letter(at),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(key: &str) -> String {
        of(&Key::parse(key).unwrap()).unwrap()
    }

    #[test]
    fn a_key_that_is_a_name_stays() {
        for key in ["a", "my-controller", "a.b-c.7", &"k".repeat(200)] {
            assert_eq!(name(key), key);
        }
    }

    #[test]
    fn other_keys_are_escaped() {
        assert_eq!(name("accounts/7"), "k--accounts--2f7");
        assert_eq!(name("A"), "k----41");
        assert_eq!(name("a-"), "k--a--2d");
        assert_eq!(name("k--a"), "k--k--2d--2da");
        let long = Key::parse(&"K".repeat(64)).unwrap();
        let error = of(&long).unwrap_err();
        assert!(error.to_string().contains("name_bytes=259"), "{error}");
    }

    proptest! {
        #[test]
        fn each_name_leads_back_to_its_key(text in "[a-cA-C0-1._:/-]{1,12}") {
            let Ok(key) = Key::parse(&text) else { return Ok(()) };
            let name = of(&key).unwrap();
            prop_assert_eq!(key_of(&name), Some(key));
            let is_label = name.split('.').all(|label| {
                let (bytes, alone) = (label.as_bytes(), |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit());
                !bytes.is_empty() && alone(bytes[0]) && alone(bytes[bytes.len() - 1])
                    && bytes.iter().all(|b| alone(*b) || *b == b'-')
            });
            prop_assert!(is_label, "{}", name);
        }
    }
}
