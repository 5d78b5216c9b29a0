//! The path of an object, and the command that forgets one of its fences.

use super::annotations::TOKENS;

/// Whether this is the path of one object, and of no part of it.
pub(super) fn is_object(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    let place = match parts[..] {
        ["", "api", _, ref place @ ..] | ["", "apis", _, _, ref place @ ..] => place,
        _ => return false,
    };
    let is_plain = |part: &&str| !part.is_empty() && !part.contains(['?', '#']);
    let has_parts = match place {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest.len() == 2,
        place => place.len() == 2,
    };
    has_parts && parts[1..].iter().all(is_plain)
}

/// The command that leaves the fences of the other keys at an object, unless it was changed since.
/// No key has a quotation mark.
pub(super) fn forget(path: &str, version: &str, others: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, place) = match parts[..] {
        ["apis", group, _, ref place @ ..] => (format!(".{group}"), place),
        ["api", _, ref place @ ..] => (String::new(), place),
        _ => (String::new(), &parts[..]),
    };
    let (space, object) = match place {
        ["namespaces", space, object @ ..] if object.len() > 1 => (format!(" -n {space}"), object),
        object => (String::new(), object),
    };
    let (kind, name) = match object {
        [kind, name, ..] => (*kind, *name),
        _ => ("the object", path),
    };
    format!(
        "kubectl annotate --overwrite --resource-version={version}{space} {kind}{group} {name} {TOKENS}='{others}'"
    )
}
