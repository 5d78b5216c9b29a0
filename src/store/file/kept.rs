//! [`Kept`]: which free file a process leaves where it is, so that a lock that it takes again and
//! again is not made and deleted each time.
//!
//! The file stays if its key was also the one that this process freed before. It is not kept open:
//! the next step opens and checks it as any other, and any process may use it or delete it.

use parking_lot::Mutex;

use crate::model::key::Key;

/// The key that this process freed last, and whether its file stayed.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Option<(Key, bool)>>);

/// What becomes of the file of a key that is free now.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Freed {
    Stays,
    /// It is deleted; the file of the key before stayed until now, and is deleted too.
    Goes(Option<Key>),
}

impl Kept {
    pub(super) fn free(&self, key: &Key) -> Freed {
        let mut last = self.0.lock();
        if let Some((before, stays)) = last.as_mut()
            && before == key
        {
            *stays = true;
            return Freed::Stays;
        }
        let before = last.replace((key.clone(), false));
        Freed::Goes(stayed(before))
    }

    /// The key whose file stayed, which is deleted now.
    pub(super) fn take(&self) -> Option<Key> {
        stayed(self.0.lock().take())
    }
}

fn stayed(last: Option<(Key, bool)>) -> Option<Key> {
    last.and_then(|(key, stays)| stays.then_some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_key_that_is_freed_twice_in_a_row_stays_until_another_is_freed() {
        let [a, b] = ["a", "b"].map(|key| Key::parse(key).unwrap());
        let kept = Kept::default();
        assert_eq!(kept.free(&a), Freed::Goes(None));
        assert_eq!(kept.free(&b), Freed::Goes(None));
        assert_eq!(kept.free(&b), Freed::Stays);
        assert_eq!(kept.free(&b), Freed::Stays);
        assert_eq!(kept.free(&a), Freed::Goes(Some(b)));
        assert_eq!(kept.take(), None);
        assert_eq!(kept.free(&a), Freed::Goes(None));
        assert_eq!(kept.free(&a), Freed::Stays);
        assert_eq!(kept.take(), Some(a));
    }
}
