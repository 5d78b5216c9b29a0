//! Shards on locks in files.

use leasehold::Settings;

use crate::crew::{Crew, members_come_and_go};
use crate::place::Place;

pub(crate) fn members_come_and_go_on_files() {
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let crew = Crew::new(None, Settings::default());
    let members = members_come_and_go(crew, async || place.store(), "s");
    runtime.unwrap().block_on(members);
}
