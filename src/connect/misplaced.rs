//! Settings that are written as an option of the URL, where no store looks for them.

use crate::model::error::Error;

/// `rest` is the URL without its scheme. Some stores have a `max_ttl` of their own there.
pub(super) fn refuse_settings(rest: &str) -> Result<(), Error> {
    let (_, query) = rest.split_once('?').unwrap_or_default();
    let mut names = query
        .split('&')
        .filter_map(|option| option.split('=').next());
    match names.find(|name| matches!(*name, "ttl" | "wait" | "margin" | "lock_delay" | "max_hold"))
    {
        Some(name) => Err(Error::invalid(format!(
            "{name} is a setting and no option of a URL: in code Settings, in the environment LEASEHOLD_{}, in the tool an option if --help has it",
            name.to_ascii_uppercase()
        ))),
        None => Ok(()),
    }
}
