//! [`make_room`]: a map that forgets what nobody needs before it grows.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Before an insertion: if the map is full, keeps the values that are needed, and makes room for as
/// many again. So the search of the whole map costs each insertion a bounded part, also where
/// values come and go one by one.
pub(crate) fn make_room<K: Eq + Hash, V, S: BuildHasher>(
    map: &mut HashMap<K, V, S>,
    is_needed: impl Fn(&V) -> bool,
) {
    if map.len() == map.capacity() {
        map.retain(|_, value| is_needed(value));
        map.reserve(map.len() + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn values_that_come_and_go_one_by_one_are_not_searched_each_time() {
        const COUNT: u32 = 1_000;
        let (mut map, looks) = (HashMap::with_capacity(COUNT as usize), Cell::new(0));
        // As many as fit, and then each takes the place of the oldest.
        let full = u32::try_from(map.capacity()).expect("a small map");
        for number in 0..full + COUNT {
            let is_needed = |value: &u32| {
                looks.set(looks.get() + 1);
                value + full > number
            };
            make_room(&mut map, is_needed);
            map.insert(number, number);
        }
        assert!(looks.get() <= 2 * full, "{}", looks.get());
        assert!(map.capacity() <= 8 * full as usize, "{}", map.capacity());
    }
}
