//! [`Row`]: the holders or the places of a key, in the order of their arrival.
//!
//! A crowd on one key makes a row long, and each request of each waiter reads it. Therefore no
//! request goes through the whole row: an entry is found by its owner, the first and the last are
//! at its ends, and one that leaves from the middle leaves a gap. The row is searched for entries
//! that are over when one may have ended, and not before.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::model::holder::OwnerToken;
use crate::store::{Claim, LockMode};

/// A hold or a place.
pub(crate) trait Entry {
    fn claim(&self) -> &Claim;
    fn ends(&self) -> Duration;
    fn set_ends(&mut self, ends: Duration);
}

/// Up to so many entries are searched: most keys have one holder, and nobody waits.
const FEW: usize = 16;

/// Each owner has at most one entry.
#[derive(Clone, Debug)]
pub(crate) struct Row<T> {
    /// The first one has not left.
    entries: VecDeque<Option<T>>,
    /// The number of the first one; the others follow.
    first: i64,
    /// The numbers by owner, once there were more than a few.
    numbers: HashMap<OwnerToken, i64>,
    len: usize,
    /// No entry ends before.
    next_end: Duration,
    /// Whoever is before this number reads.
    alone_from: i64,
    /// How often an entry came, left, or was given out to be changed.
    changes: u64,
    /// The sum of all shares.
    permits: u64,
}

impl<T: Entry> Row<T> {
    #[cfg(any(test, target_os = "linux"))]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Two states of a row differ only if these numbers do.
    #[cfg(target_os = "linux")]
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many permits the entries have together.
    pub(super) fn permits(&self) -> u64 {
        self.permits
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.entries.iter().flatten()
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.entries.front()?.as_ref()
    }

    /// Where the entry of an owner is: whoever came before it has a smaller number.
    pub(super) fn number_of(&self, owner: &OwnerToken) -> Option<i64> {
        if !self.numbers.is_empty() {
            return self.numbers.get(owner).copied();
        }
        let is_its =
            |entry: &Option<T>| (entry.as_ref()).is_some_and(|entry| entry.claim().owner == *owner);
        let index = self.entries.iter().position(is_its)?;
        Some(self.first + index as i64)
    }

    pub(super) fn get_mut(&mut self, owner: &OwnerToken) -> Option<&mut T> {
        let number = self.number_of(owner)?;
        self.changes += 1;
        self.at(number)?.as_mut()
    }

    pub(super) fn get(&self, owner: &OwnerToken) -> Option<&T> {
        let index = usize::try_from(self.number_of(owner)? - self.first).ok()?;
        self.entries.get(index)?.as_ref()
    }

    fn at(&mut self, number: i64) -> Option<&mut Option<T>> {
        let index = usize::try_from(number - self.first).ok()?;
        self.entries.get_mut(index)
    }

    /// Moves the end of an entry. False if the owner has none.
    pub(super) fn set_ends(&mut self, owner: &OwnerToken, ends: Duration) -> bool {
        let Some(entry) = self.get_mut(owner) else {
            return false;
        };
        entry.set_ends(ends);
        self.next_end = self.next_end.min(ends);
        true
    }

    /// Moves the ends of the entries to which `ends` gives a later one.
    #[cfg(target_os = "linux")]
    pub(super) fn extend(&mut self, ends: impl Fn(&T) -> Option<Duration>) {
        for entry in self.entries.iter_mut().flatten() {
            if let Some(ends) = ends(entry).filter(|ends| *ends > entry.ends()) {
                entry.set_ends(ends);
                self.changes += 1;
            }
        }
    }

    /// No entry ends before this.
    pub(super) fn next_end(&self) -> Duration {
        self.next_end
    }

    /// The first few before a number, and whether there are more.
    pub(super) fn few_before(&self, number: i64) -> (impl Iterator<Item = &T>, bool) {
        let before = usize::try_from(number - self.first).unwrap_or_default();
        let before = before.min(self.entries.len());
        let few = self.entries.range(..before.min(FEW)).flatten();
        (few, before > FEW)
    }

    /// Whether a claim of this mode has to let one pass that is before a number.
    pub(super) fn is_before(&mut self, number: i64, mode: LockMode) -> bool {
        if mode != LockMode::Read {
            return !self.is_empty() && self.first < number;
        }
        self.alone_from = self.alone_from.max(self.first);
        while self.alone_from < number {
            let alone_from = self.alone_from;
            match self.at(alone_from) {
                None => return false,
                Some(Some(entry)) if entry.claim().waits_as() != LockMode::Read => return true,
                Some(_) => self.alone_from += 1,
            }
        }
        false
    }

    pub(super) fn push(&mut self, entry: T) {
        self.close_gaps();
        self.changes += 1;
        self.next_end = self.next_end.min(entry.ends());
        let number = self.first + self.entries.len() as i64;
        let owner = entry.claim().owner;
        self.permits += permits(&entry);
        self.entries.push_back(Some(entry));
        self.len += 1;
        if !self.numbers.is_empty() {
            self.numbers.insert(owner, number);
        } else if self.entries.len() > FEW {
            self.count();
        }
    }

    /// Puts these before all others, in their order.
    pub(super) fn put_before(&mut self, entries: Vec<T>) {
        for entry in entries.into_iter().rev() {
            self.next_end = self.next_end.min(entry.ends());
            self.entries.push_front(Some(entry));
            self.len += 1;
            self.changes += 1;
        }
        self.count();
    }

    pub(super) fn pop_first(&mut self) -> Option<T> {
        let owner = self.first()?.claim().owner;
        self.remove(&owner)
    }

    pub(super) fn remove(&mut self, owner: &OwnerToken) -> Option<T> {
        let number = self.number_of(owner)?;
        let removed = self.at(number)?.take();
        self.permits -= removed.as_ref().map_or(0, permits);
        self.numbers.remove(owner);
        self.len -= 1;
        self.changes += 1;
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        if self.is_empty() {
            (self.first, self.alone_from, self.next_end) = (0, 0, Duration::MAX);
        }
        removed
    }

    /// Removes what is over.
    pub(super) fn forget_what_is_over(&mut self, now: Duration) {
        if now >= self.next_end {
            self.retain(|entry| entry.ends() > now);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let before = self.len;
        self.entries
            .retain(|entry| entry.as_ref().is_some_and(&keep));
        self.count();
        self.changes += (before - self.len) as u64;
    }

    /// At most half of a long row are gaps.
    fn close_gaps(&mut self) {
        let is_long = self.entries.len() > FEW && self.entries.len() == self.entries.capacity();
        if is_long && self.len <= self.entries.len() / 2 {
            self.retain(|_| true);
        }
    }

    /// Numbers all entries anew.
    fn count(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        let changes = self.changes;
        *self = Self::default();
        (self.entries, self.changes) = (entries, changes);
        self.len = self.iter().count();
        self.permits = self.iter().map(permits).sum();
        self.next_end = (self.iter().map(T::ends).min()).unwrap_or(Duration::MAX);
        if self.entries.len() > FEW {
            let numbered = (0..).zip(&self.entries);
            let numbers = numbered
                .filter_map(|(number, entry)| Some((entry.as_ref()?.claim().owner, number)));
            self.numbers = numbers.collect();
        }
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.iter().all(|entry| entry.ends() <= now)
    }
}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            numbers: HashMap::new(),
            len: 0,
            next_end: Duration::MAX,
            alone_from: 0,
            changes: 0,
            permits: 0,
        }
    }
}

fn permits<T: Entry>(entry: &T) -> u64 {
    let share = entry.claim().share;
    share.map_or(0, |share| u64::from(share.permits))
}

impl<T: Entry> FromIterator<T> for Row<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut row = Self::default();
        entries.into_iter().for_each(|entry| row.push(entry));
        row
    }
}

impl<T: Entry + PartialEq> PartialEq for Row<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::state::{Origin, Place};
    use super::*;
    use crate::model::holder::Label;
    use crate::model::key::Key;

    fn place(number: u8, mode: LockMode, ends: u64) -> Place {
        let (key, label) = (Key::parse("a").unwrap(), Label::parse("b").unwrap());
        let owner = OwnerToken::from_bytes([number; 16]);
        let mut claim = Claim::new(key, owner, label, Duration::from_secs(10));
        claim.mode = mode;
        Place {
            claim,
            ends: Duration::from_secs(ends),
            origin: Origin::default(),
        }
    }

    #[derive(Clone, Debug)]
    enum Act {
        Push(u8, bool, u64),
        PutBefore(u8, bool, u64),
        Remove(u8),
        PopFirst,
        SetEnds(u8, u64),
        Extend(u64),
        Forget(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => (0..60_u8, any::<bool>(), 0..100_u64).prop_map(|(owner, reads, ends)| Act::Push(owner, reads, ends)),
            1 => (0..60_u8, any::<bool>(), 0..100_u64).prop_map(|(owner, reads, ends)| Act::PutBefore(owner, reads, ends)),
            3 => (0..60_u8).prop_map(Act::Remove),
            1 => Just(Act::PopFirst),
            2 => (0..60_u8, 0..100_u64).prop_map(|(owner, ends)| Act::SetEnds(owner, ends)),
            1 => (0..100_u64).prop_map(Act::Extend),
            1 => (0..40_u64).prop_map(Act::Forget),
        ]
    }

    /// An entry that counts how often anything is read.
    struct Counted<'a>(Place, &'a std::cell::Cell<usize>);

    impl Entry for Counted<'_> {
        fn claim(&self) -> &Claim {
            self.1.set(self.1.get() + 1);
            &self.0.claim
        }

        fn ends(&self) -> Duration {
            self.1.set(self.1.get() + 1);
            self.0.ends
        }

        fn set_ends(&mut self, ends: Duration) {
            self.0.ends = ends;
        }
    }

    fn owner(number: u32) -> OwnerToken {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        OwnerToken::from_bytes(bytes)
    }

    #[test]
    fn a_request_looks_at_the_same_few_entries_however_many_there_are() {
        const CROWD: u32 = 10_000;
        for mode in [LockMode::Read, LockMode::Write] {
            let looks = std::cell::Cell::new(0);
            let mut row = Row::default();
            for number in 0..CROWD {
                let mut place = place(0, mode, 4);
                place.claim.owner = owner(number);
                row.push(Counted(place, &looks));
            }
            // Each keeps its place twice; every second one gives up; the others are served.
            for second in 1..=2 {
                let now = Duration::from_secs(2 * second);
                for number in 0..CROWD {
                    row.forget_what_is_over(now - Duration::from_secs(1));
                    assert!(row.set_ends(&owner(number), now + Duration::from_secs(4)));
                    let number = row.number_of(&owner(number)).unwrap();
                    row.is_before(number, mode);
                    assert!(row.few_before(number).0.count() <= FEW);
                }
            }
            for number in (1..CROWD).step_by(2) {
                assert!(row.remove(&owner(number)).is_some());
            }
            while row.pop_first().is_some() {}
            let each = looks.get() / CROWD as usize;
            assert!(each < 20, "{mode}: {each} looks for each");
        }
    }

    proptest! {
        /// The model is a plain list that is searched.
        #[test]
        fn a_row_is_a_list(acts in proptest::collection::vec(act(), 1..150)) {
            let mut row: Row<Place> = Row::default();
            let mut list: Vec<Place> = Vec::new();
            let mode = |reads| if reads { LockMode::Read } else { LockMode::Write };
            for act in acts {
                let before = (row.changes, list.clone());
                let has = |list: &[Place], owner: u8| list.iter().position(|place| place.claim.owner == OwnerToken::from_bytes([owner; 16]));
                match act {
                    Act::Push(owner, reads, ends) if has(&list, owner).is_none() => {
                        row.push(place(owner, mode(reads), ends));
                        list.push(place(owner, mode(reads), ends));
                    }
                    Act::PutBefore(owner, reads, ends) if has(&list, owner).is_none() => {
                        row.put_before(vec![place(owner, mode(reads), ends)]);
                        list.insert(0, place(owner, mode(reads), ends));
                    }
                    Act::Push(..) | Act::PutBefore(..) => {}
                    Act::Remove(owner) => {
                        let removed = has(&list, owner).map(|index| list.remove(index));
                        prop_assert_eq!(row.remove(&OwnerToken::from_bytes([owner; 16])), removed);
                    }
                    Act::PopFirst => {
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(row.pop_first(), first);
                    }
                    Act::SetEnds(owner, ends) => {
                        let ends = Duration::from_secs(ends);
                        let index = has(&list, owner);
                        prop_assert_eq!(row.set_ends(&OwnerToken::from_bytes([owner; 16]), ends), index.is_some());
                        index.into_iter().for_each(|index| list[index].ends = ends);
                    }
                    Act::Extend(ends) => {
                        let ends = Duration::from_secs(ends);
                        let reads = |place: &Place| place.claim.mode == LockMode::Read;
                        row.extend(|place| reads(place).then_some(ends));
                        for place in list.iter_mut().filter(|place| reads(place)) {
                            place.ends = place.ends.max(ends);
                        }
                    }
                    Act::Forget(now) => {
                        let now = Duration::from_secs(now);
                        row.forget_what_is_over(now);
                        list.retain(|place| place.ends > now);
                    }
                }
                prop_assert!(row.changes != before.0 || list == before.1, "a change is not counted");
                prop_assert!(row.iter().eq(list.iter()));
                prop_assert_eq!(row.len(), list.len());
                prop_assert!(list.iter().all(|place| place.ends >= row.next_end()));
                for (index, place) in list.iter().enumerate() {
                    let number = row.number_of(&place.claim.owner).expect("it is there");
                    for reads in [true, false] {
                        let is_blocked = list[..index].iter().any(|ahead| !ahead.claim.mode.is_compatible_with(mode(reads)));
                        prop_assert_eq!(row.is_before(number, mode(reads)), is_blocked);
                    }
                }
            }
        }
    }
}
