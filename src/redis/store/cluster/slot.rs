//! [`Slot`]: which part of a cluster a name belongs to, by the rule of all servers and clients.
//!
//! The slot is CRC16 (XMODEM) of the name modulo 16,384; if the name has a `{tag}`, of the tag
//! alone.

use std::sync::LazyLock;

/// How many slots every cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// A part of the names, which moves between nodes as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in super::super) struct Slot(u16);

impl Slot {
    /// The slot of a name.
    pub(in super::super) fn of(name: impl AsRef<[u8]>) -> Self {
        Self(crc16(tag_of(name.as_ref())) % SLOTS)
    }

    /// `None` for a number that no slot has.
    pub(super) fn new(number: u16) -> Option<Self> {
        (number < SLOTS).then_some(Self(number))
    }

    pub(super) fn number(self) -> u16 {
        self.0
    }

    /// A hash tag for names in this slot: the smallest whole number whose digits hash to it.
    /// Servers hold such names, so the rule must never change.
    pub(in super::super) fn tag(self) -> u32 {
        TAGS[usize::from(self.0)]
    }
}

/// The part of a name that is hashed.
fn tag_of(name: &[u8]) -> &[u8] {
    let tag = || {
        let behind = &name[name.iter().position(|byte| *byte == b'{')? + 1..];
        let tag = &behind[..behind.iter().position(|byte| *byte == b'}')?];
        Some(tag).filter(|tag| !tag.is_empty())
    };
    tag().unwrap_or(name)
}

static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    let mut number = 0;
    while missing > 0 {
        let tag = &mut tags[usize::from(Slot::of(number.to_string()).0)];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
        }
        number += 1;
    }
    tags.into_iter().flatten().collect()
});

const POLYNOMIAL: u16 = 0x1021;

const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ (if crc & 0x8000 == 0 { 0 } else { POLYNOMIAL });
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (crc << 8) ^ CRC[usize::from((crc >> 8) ^ u16::from(*byte))]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_published_vector() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn a_name_is_where_the_servers_say() {
        for (name, slot) in [("foo", 12_182), ("bar", 5_061), ("hello", 866)] {
            assert_eq!(Slot::of(name).number(), slot, "{name}");
        }
    }

    #[test]
    fn only_the_first_tag_counts_and_only_if_it_is_not_empty() {
        assert_eq!(Slot::of("app:a{app:a}:fence"), Slot::of("app:a"));
        assert_eq!(Slot::of("x{a}{b}"), Slot::of("a"));
        assert_eq!(Slot::of("foo{{bar}}zap"), Slot::of("{bar"));
        assert_ne!(Slot::of("foo{}{bar}"), Slot::of("bar"));
        assert_ne!(Slot::of("foo{bar"), Slot::of("bar"));
    }

    #[test]
    fn each_slot_has_a_tag_that_is_in_it() {
        for number in 0..SLOTS {
            let slot = Slot::new(number).unwrap();
            assert_eq!(Slot::of(format!("app:{{{}}}:x", slot.tag())), slot);
        }
        assert_eq!(Slot::new(SLOTS), None);
    }

    #[test]
    fn the_tags_are_the_same_for_ever() {
        let tag = |number| Slot(number).tag();
        let sum = (0..SLOTS).fold(0_u32, |sum, number| {
            sum.wrapping_mul(31).wrapping_add(tag(number))
        });
        assert_eq!(
            (tag(0), tag(1), tag(16_383), sum),
            (3_560, 22_179, 39_296, 1_786_223_220)
        );
    }
}
