"""The integers of `src/lease/deadline.rs`: a lease is never longer than the formula of I1.

For every TTL and margin (a `Duration`), every drift (`u32`) and every clock (`u64`): no operation
leaves its type, and what is rounded is rounded to the safe side. The last part is in real numbers:
it shows that the formula, in units of what clocks may differ by, is what `leases.py` uses.
"""

from z3 import And, If, Implies, Ints, Reals

from report import Facts

RULES = """
rounds_down: What is usable is rounded down.
    src/lease/deadline.rs: let scaled = ttl.as_nanos() * kept / whole;
    mutant: deadline-rounds-up
usable_saturates: A lease without any time left is over, and does not wrap.
    src/lease/deadline.rs: scaled.saturating_sub(GRANULARITY.as_nanos() + self.margin.as_nanos())
    mutant: deadline-wraps-below-zero
fits: A TTL that does not fit saturates to an earlier end.
    src/lease/deadline.rs: Duration::from_nanos(u64::try_from(usable).unwrap_or(u64::MAX))
    mutant: deadline-wraps
deadline_saturates: A deadline that does not fit saturates to an earlier end.
    src/clock/mod.rs: nanos: self.nanos.map(|nanos| nanos.saturating_add(span)),
    mutant: stamp-wraps
takes_off: The granularity of the store is taken off.
    src/lease/deadline.rs: scaled.saturating_sub(GRANULARITY.as_nanos() + self.margin.as_nanos())
    mutant: deadline-forgets-the-granularity
own_drift: Our own clock may be slow.
    src/lease/deadline.rs: let kept = u128::from(1_000_000 - LOCAL_DRIFT_PPM);
    mutant: deadline-forgets-our-own-drift
"""

NANOS = 1_000_000_000
U32, U64, U128 = 2**32 - 1, 2**64 - 1, 2**128 - 1
KEPT, GRAIN = 1_000_000 - 500, 1_000_000


def integers(without):
    ttl, margin, drift, sent_at = Ints("ttl margin drift sent_at")
    longest = U64 * NANOS + NANOS - 1
    given = And(ttl >= 0, ttl <= longest, margin >= 0, margin <= longest, drift >= 0,
                drift <= U32, sent_at >= 1, sent_at <= U64)
    kept = 1_000_000 if without == "own_drift" else KEPT
    taken = (0 if without == "takes_off" else GRAIN) + margin
    product, whole = ttl * kept, 1_000_000 + drift
    # The solver is better without `/`. This is what it means.
    quotient, rest = Ints("quotient rest")
    rounded = quotient * whole - rest if without == "rounds_down" else quotient * whole + rest
    divided = And(rounded == product, rest >= 0, rest < whole, quotient >= 0)
    less = quotient - taken
    usable = If(less < 0, U128 + 1 + less if without == "usable_saturates" else 0, less)
    over = usable - U64 - 1 if without == "fits" else U64
    usable = If(usable > U64, over, usable)
    ends = sent_at + usable
    over = ends - U64 - 1 if without == "deadline_saturates" else U64
    ends = If(ends > U64, over, ends)

    yield "the product and the sums fit u128", [given], And(
        ttl * KEPT <= U128, whole <= U128, GRAIN + margin <= U128)
    # All that the solver has to know about products of two variables.
    x, y, z = Reals("x y z")
    yield "a smaller factor, a smaller product", [x <= y, z > 0], x * z <= y * z
    smaller = Implies(usable + taken <= quotient, (usable + taken) * whole <= quotient * whole)
    yield "usable is never more than the formula", [given, divided, smaller], Implies(
        usable > 0, (usable + GRAIN + margin) * whole <= ttl * KEPT)
    yield "usable is a u64", [given, divided], And(usable >= 0, usable <= U64)
    # A span that does not fit is cut: to the largest that does, and not to what is left over.
    yield "a span is cut, and does not wrap", [given, divided], If(
        less > U64, usable == U64, usable <= If(less > 0, less, 0))
    yield "a deadline is its formula, or the last one that fits", [given, divided], If(
        sent_at + usable > U64, ends == U64, ends == sent_at + usable)
    if not without:
        # `Words::new` makes 1 of 0. A system's clock begins at a second.
        yield "no word is later than its deadline", [given, divided], If(ends > 1, ends, 1) == ends


def clocks(_):
    k, d, t, dc, ds, ttl, slack, usable = Reals("k d t dc ds ttl slack usable")
    grain = Reals("grain")[0]
    drifts = And(k > 0, k <= 1, d >= 1, t >= 0)
    yield "a client's clock, in units of true time", [drifts, dc >= k * t], dc / k >= t
    yield "the server's clock, in units of true time", [drifts, ds <= d * t], ds / d <= t
    yield "a lease of I1, in these units", [
        drifts, ttl >= 0, slack >= 0, usable * d <= ttl * k - slack * d
    ], usable / k <= ttl / d - slack / k
    yield "the granularity, in these units", [drifts, grain >= 0, slack >= grain], (
        grain / d <= slack / k)


CHECKS = [
    Facts("a lease is never longer than the formula of I1", integers),
    Facts("every drift is one unit", clocks),
    *(Facts("", integers, rule) for rule in (
        "rounds_down", "usable_saturates", "fits", "deadline_saturates", "takes_off",
        "own_drift")),
]
