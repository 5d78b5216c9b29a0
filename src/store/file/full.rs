//! A queue that is full: one claim more is refused at once, and all that is in it is served.

use super::FileStore;
use super::tests::{Temporary, claim, granted};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::store::{Acquired, Claim, LockMode, Released, Renewed, Store};

/// With the longest label, without and with the longest purpose.
fn reader(has_purpose: bool) -> Claim {
    let mut claim = claim("k");
    let longest = "l".repeat(Label::MAX_LEN);
    claim.label = Label::parse(&longest).unwrap();
    if has_purpose {
        claim.label = claim.label.with_purpose(&longest).unwrap();
    }
    claim.mode = LockMode::Read;
    claim
}

/// Readers that wait, until one is refused.
async fn fill(store: &FileStore, has_purpose: bool) -> (Vec<Claim>, Error) {
    let mut waiting = Vec::new();
    loop {
        let next = reader(has_purpose);
        match store.acquire(&next).await {
            Ok(Acquired::Busy { .. }) => waiting.push(next),
            Ok(other) => panic!("{other:?}"),
            Err(refused) => return (waiting, refused),
        }
    }
}

/// They hold together, and a holder takes more of the file than a place.
#[tokio::test]
async fn readers_that_fill_the_queue_all_enter_and_one_more_is_refused() {
    for (has_purpose, places) in [(false, 370), (true, 230)] {
        fills(has_purpose, places).await;
    }
}

async fn fills(has_purpose: bool, places: usize) {
    let directory = Temporary::new();
    let store = directory.store();
    let mut writer = claim("k");
    writer.mode = LockMode::Write;
    let held = granted(&store, &writer).await;
    let (waiting, refused) = fill(&store, has_purpose).await;
    assert!(waiting.len() >= places, "{} places", waiting.len());
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    let again = store.acquire(&waiting[7]).await;
    assert!(matches!(again, Ok(Acquired::Busy { .. })), "{again:?}");
    let released = store.release(&held).await;
    assert!(matches!(released, Released::Released), "{released:?}");
    for reads in &waiting {
        let _ = granted(&store, reads).await;
    }
    // Its manager does not try again by itself: nobody could be served while all of a crowd do.
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("is full"), "{refused}");
}
