//! A timer wheel: which holds are due, in constant time for each.
//!
//! One ring of millisecond slots, each a list of entries that know their place in it, so that an
//! entry is put, moved and taken out without a search. An entry that is due after more than one
//! round of the ring stays in its slot until then. (G. Varghese, T. Lauck, "Hashed and hierarchical
//! timing wheels", 1987, scheme 6.)
//!
//! The lists are vectors and not chained through the entries, so that a processor can fetch many
//! entries at once: with a hundred thousand entries, that is the cost of a round.

const SLOTS: usize = 4096;
const TICK_NANOS: u64 = 1_000_000;
const NEVER: u64 = u64::MAX;

/// The wheel's part of an entry. The owner of the entries keeps one for each index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// The tick at which the entry fires; [`NEVER`] while it is in no slot.
    tick: u64,
    /// Its place in the slot.
    place: u32,
}

impl Link {
    pub(super) const OUT: Self = Self {
        tick: NEVER,
        place: 0,
    };
}

/// Gives the wheel the link of an entry.
pub(super) trait Links {
    fn link(&mut self, index: u32) -> &mut Link;
}

#[derive(Debug)]
pub(super) struct Wheel {
    /// The first tick that has not been looked at.
    next_tick: u64,
    slots: Box<[Vec<u32>]>,
    /// One bit for each slot that is not empty.
    occupied: [u64; SLOTS / 64],
}

impl Wheel {
    pub(super) fn new(now_nanos: u64) -> Self {
        Self {
            next_tick: now_nanos / TICK_NANOS,
            slots: vec![Vec::new(); SLOTS].into_boxed_slice(),
            occupied: [0; SLOTS / 64],
        }
    }

    /// Puts or moves an entry: it fires at the first look at or after `due_nanos`, at most a tick
    /// later.
    pub(super) fn put(&mut self, links: &mut impl Links, index: u32, due_nanos: u64) {
        self.take(links, index);
        let tick = due_nanos.div_ceil(TICK_NANOS).max(self.next_tick);
        self.push(links, index, tick);
    }

    fn push(&mut self, links: &mut impl Links, index: u32, tick: u64) {
        let slot = slot_of(tick);
        let place = self.slots[slot].len() as u32;
        *links.link(index) = Link { tick, place };
        self.slots[slot].push(index);
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    /// Takes an entry out; nothing if it is in no slot.
    pub(super) fn take(&mut self, links: &mut impl Links, index: u32) {
        let link = std::mem::replace(links.link(index), Link::OUT);
        if link.tick == NEVER {
            return;
        }
        let slot = slot_of(link.tick);
        let place = link.place as usize;
        self.slots[slot].swap_remove(place);
        if let Some(&moved) = self.slots[slot].get(place) {
            links.link(moved).place = link.place;
        }
        self.note_if_empty(slot);
    }

    fn note_if_empty(&mut self, slot: usize) {
        if self.slots[slot].is_empty() {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Takes out every entry that is due at `now_nanos` and adds it to `due`.
    pub(super) fn advance(&mut self, links: &mut impl Links, now_nanos: u64, due: &mut Vec<u32>) {
        let now_tick = now_nanos / TICK_NANOS;
        while self.next_tick <= now_tick {
            match self.next_occupied(now_tick) {
                Some(tick) => {
                    self.fire(links, slot_of(tick), now_tick, due);
                    self.next_tick = tick + 1;
                }
                None => self.next_tick = now_tick + 1,
            }
        }
    }

    /// The first tick from `next_tick` to `last` whose slot is not empty. One round covers every
    /// slot.
    fn next_occupied(&self, last: u64) -> Option<u64> {
        let end = last.min(self.next_tick + SLOTS as u64 - 1);
        let mut tick = self.next_tick;
        while tick <= end {
            let slot = slot_of(tick);
            let word = self.occupied[slot / 64] >> (slot % 64);
            if word != 0 {
                let found = tick + u64::from(word.trailing_zeros());
                return (found <= end).then_some(found);
            }
            tick += 64 - (slot % 64) as u64;
        }
        None
    }

    /// Frees the slot's memory with its entries: other slots are full in the next round.
    fn fire(&mut self, links: &mut impl Links, slot: usize, now_tick: u64, due: &mut Vec<u32>) {
        let entries = std::mem::take(&mut self.slots[slot]);
        self.note_if_empty(slot);
        for index in entries {
            let link = links.link(index);
            if link.tick <= now_tick {
                *link = Link::OUT;
                due.push(index);
            } else {
                let tick = link.tick;
                self.push(links, index, tick);
            }
        }
    }

    /// When to look again at the latest; `None` if the wheel is empty. May be early: an entry of a
    /// later round.
    pub(super) fn next_look(&self) -> Option<u64> {
        self.next_occupied(u64::MAX).map(|tick| tick * TICK_NANOS)
    }
}

fn slot_of(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Plain(Vec<Link>);

    impl Links for Plain {
        fn link(&mut self, index: u32) -> &mut Link {
            &mut self.0[index as usize]
        }
    }

    #[derive(Clone, Debug)]
    enum Act {
        Put(u32, u64),
        Take(u32),
        Advance(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..8_u32, 0..12_000_000_000_u64).prop_map(|(index, ahead)| Act::Put(index, ahead)),
            (0..8_u32).prop_map(Act::Take),
            (0..9_000_000_000_u64).prop_map(Act::Advance),
        ]
    }

    proptest! {
        #[test]
        fn an_entry_fires_once_and_at_its_time(acts in proptest::collection::vec(act(), 1..60)) {
            let mut now = 5_000_000_000_u64;
            let mut wheel = Wheel::new(now);
            let mut links = Plain(vec![Link::OUT; 8]);
            let mut model = std::collections::BTreeMap::new();
            for act in acts {
                match act {
                    Act::Put(index, ahead) => {
                        wheel.put(&mut links, index, now + ahead);
                        model.insert(index, now + ahead);
                    }
                    Act::Take(index) => {
                        wheel.take(&mut links, index);
                        model.remove(&index);
                    }
                    Act::Advance(by) => {
                        now += by;
                        let mut due = Vec::new();
                        wheel.advance(&mut links, now, &mut due);
                        due.sort_unstable();
                        // An entry that was put into a tick already looked at fires in the next
                        // one.
                        let (surely, maybe): (Vec<_>, Vec<_>) = model
                            .iter()
                            .filter(|(_, at)| **at <= now)
                            .map(|(index, at)| (*index, now - at > TICK_NANOS))
                            .partition(|(_, surely)| *surely);
                        for (index, _) in surely {
                            prop_assert!(due.contains(&index), "missed {index}");
                        }
                        for index in &due {
                            prop_assert!(model.remove(index).is_some_and(|at| at <= now), "early {index}");
                        }
                        let _ = maybe;
                    }
                }
                let look = wheel.next_look();
                prop_assert_eq!(look.is_none(), model.is_empty());
                if let (Some(look), Some(first)) = (look, model.values().min()) {
                    prop_assert!(look <= (first / TICK_NANOS + 2) * TICK_NANOS, "looks too late");
                }
            }
        }
    }
}
