//! [`Dice`]: the only source of chance. Each part of the world has a stream of its own, so that one
//! more draw in one part changes nothing in another.

/// splitmix64: small, and the same in every version of every library.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn falls(&mut self, probability: f64) -> bool {
        self.part() < probability
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Milliseconds as nanoseconds, evenly between two bounds.
    pub(crate) fn ms(&mut self, least: f64, most: f64) -> u64 {
        ((least + (most - least) * self.part()) * 1e6) as u64
    }

    /// As likely to be between 1 and 10 as between 10 and 100.
    pub(crate) fn log(&mut self, least_exponent: f64, most_exponent: f64) -> f64 {
        10_f64.powf(least_exponent + (most_exponent - least_exponent) * self.part())
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
