//! Which member is to own which shard: a pure function of the members and the number of shards.
//!
//! Each member computes it for itself, and all have to agree. Therefore the hash and the order of
//! the steps are a part of the protocol, and a version of the crate that computes anything else
//! does not go together with this one: a test has the values.
//!
//! It is rendezvous hashing with bounded loads. Each pair of a member and a shard has a number, its
//! *score*. The pairs are taken in the order of their scores, the largest first, and a pair whose
//! shard has no owner yet is accepted if its member has room. A member has room for the whole part
//! of its share, which is `shards * weight / sum of the weights`. If its share has a fraction, it
//! has room for one more, as long as shards remain that are not in the whole part of any share. So
//! each load is within one of its share, and a member that joins or leaves moves little more than
//! its own shards: over many changes some 1.15 times what has to move. A single change of few
//! shards may move twice as many.

use super::member::Member;

/// The owner of each shard, as an index into `members`; empty without members.
pub(super) fn owners(members: &[Member], shards: u32) -> Vec<usize> {
    if members.is_empty() {
        return Vec::new();
    }
    let mut rooms = rooms(members, shards);
    let whole: u64 = rooms.iter().map(|room| room.whole).sum();
    let mut odd = u64::from(shards).saturating_sub(whole);
    let mut owners: Vec<Option<usize>> = vec![None; shards as usize];
    let mut open = shards;
    for (_, shard, index) in pairs(members, shards) {
        if open == 0 {
            break;
        }
        let (owner, room) = (&mut owners[shard as usize], &mut rooms[index]);
        if owner.is_some() {
            continue;
        }
        if room.whole > 0 {
            room.whole -= 1;
        } else if odd > 0 && std::mem::take(&mut room.has_fraction) {
            odd -= 1;
        } else {
            continue;
        }
        *owner = Some(index);
        open -= 1;
    }
    // All shares together are the number of shards, so each one was accepted by a member.
    owners.into_iter().flatten().collect()
}

/// How many more shards a member may own.
struct Room {
    whole: u64,
    has_fraction: bool,
}

fn rooms(members: &[Member], shards: u32) -> Vec<Room> {
    let weights: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
    let room = |member: &Member| {
        let shares = u64::from(shards) * u64::from(member.weight);
        Room {
            whole: shares / weights,
            has_fraction: !shares.is_multiple_of(weights),
        }
    };
    members.iter().map(room).collect()
}

/// Every pair of a shard and a member, by its score. Equal scores are in the order of the shards
/// and of the members' names.
fn pairs(members: &[Member], shards: u32) -> Vec<(u64, u32, usize)> {
    let mut by_name: Vec<usize> = (0..members.len()).collect();
    by_name.sort_by_key(|&index| members[index].label.as_str());
    let mut pairs = Vec::with_capacity(members.len() * shards as usize);
    for index in by_name {
        let name = hash(members[index].label.as_str());
        pairs.extend((0..shards).map(|shard| (score(name, shard), shard, index)));
    }
    // Stable, so the order of the names remains where all else is equal.
    pairs.sort_by_key(|&(score, shard, _)| (std::cmp::Reverse(score), shard));
    pairs
}

fn score(name: u64, shard: u32) -> u64 {
    mixed(name ^ mixed(u64::from(shard).wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// FNV-1a, 64 bits, and a finalizer, because its high bits change little with the last characters.
fn hash(text: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    mixed(text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// The finalizer of splitmix64.
const fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::model::random::Jitter;

    fn member(number: u64, weight: u32) -> Member {
        Member::new(
            &format!("host:{number}"),
            u128::from(mixed(number)),
            weight,
            1,
        )
    }

    fn crew(weights: &[u32]) -> Vec<Member> {
        (1..)
            .zip(weights)
            .map(|(number, &weight)| member(number, weight))
            .collect()
    }

    fn by_name(members: &[Member], shards: u32) -> Vec<String> {
        let owners = owners(members, shards).into_iter();
        owners
            .map(|index| members[index].label.to_string())
            .collect()
    }

    fn load(owners: &[String], member: &Member) -> u64 {
        let name = member.label.as_str();
        owners.iter().filter(|owner| *owner == name).count() as u64
    }

    /// Members of all versions have to compute these. They come from another program.
    #[test]
    fn the_assignment_is_a_part_of_the_protocol() {
        let scores = (mixed(1), score(1, 0), score(1, 1), hash("host:1"));
        assert_eq!(
            scores,
            (
                6_238_072_747_940_578_789,
                11_385_487_063_155_714_807,
                6_652_587_683_579_779_273,
                9_568_586_507_186_453_719
            )
        );
        let twelve = [1, 1, 2, 0, 0, 2, 0, 1, 0, 2, 2, 1];
        assert_eq!(owners(&crew(&[1, 1, 1]), 12), twelve);
        let twenty = [1, 2, 3, 0, 0, 1, 2, 2, 1, 2, 1, 3, 2, 3, 0, 1, 2, 2, 1, 2];
        assert_eq!(owners(&crew(&[1, 2, 3, 1]), 20), twenty);
    }

    proptest! {
        #[test]
        fn every_order_of_the_members_gives_the_same(
            weights in prop::collection::vec(1..5_u32, 1..12),
            shards in 1..300_u32,
            turn in 0..12_usize,
        ) {
            let members = crew(&weights);
            let expected = by_name(&members, shards);
            let mut others = members;
            others.reverse();
            let turn = turn % others.len();
            others.rotate_left(turn);
            prop_assert_eq!(by_name(&others, shards), expected);
        }

        #[test]
        fn each_load_is_within_one_of_its_share(
            weights in prop::collection::vec(1..=1000_u32, 1..12),
            shards in 1..300_u32,
        ) {
            let members = crew(&weights);
            let owners = by_name(&members, shards);
            prop_assert_eq!(owners.len(), shards as usize);
            let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            for member in &members {
                let shares = u64::from(shards) * u64::from(member.weight);
                let load = load(&owners, member);
                prop_assert!(load * sum < shares + sum && (load + 1) * sum > shares, "{load} of {shares}/{sum}");
            }
        }
    }

    /// How many shards have to move at least: those of members that left, or what the others lack
    /// of the whole part of their share.
    fn least(before: &[String], members: &[Member]) -> u64 {
        let is_gone = |owner: &&String| !members.iter().any(|m| m.label.as_str() == owner.as_str());
        let gone = before.iter().filter(is_gone).count() as u64;
        let rooms = rooms(members, before.len() as u32);
        let lacks = rooms.iter().zip(members);
        let lacks = lacks.map(|(room, member)| room.whole.saturating_sub(load(before, member)));
        gone.max(lacks.sum())
    }

    #[test]
    fn a_change_of_the_members_moves_little_more_than_it_has_to() {
        let dice = Jitter::new(7);
        let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for history in 0..1000 {
            let most_weight = [1, 4][history % 2];
            let shards = 1 + dice.below(256) as u32;
            let mut next = 0;
            let mut join = |members: &mut Vec<Member>| {
                next += 1;
                let weight = 1 + dice.below(most_weight) as u32;
                members.push(member(dice.below(1 << 40) + next, weight));
            };
            let mut members = Vec::new();
            for _ in 0..=dice.below(8) {
                join(&mut members);
            }
            let mut before = by_name(&members, shards);
            for _ in 0..6 {
                if members.len() > 1 && dice.below(2) == 0 {
                    members.remove(dice.below(members.len() as u64) as usize);
                } else {
                    join(&mut members);
                }
                let after = by_name(&members, shards);
                let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count() as u64;
                let sum = sums.entry(most_weight).or_default();
                *sum = (sum.0 + moved, sum.1 + least(&before, &members));
                before = after;
            }
        }
        for (most_weight, (moved, least)) in sums {
            let is_little = moved * 10 <= least * 13;
            assert!(
                is_little,
                "weights to {most_weight}: {moved} moved, {least} had to"
            );
        }
    }
}
