"""The three words of a lease (I2): once somebody found it over, nobody finds it live again.

Each step is one atomic access of `src/lease/words.rs`, by any number of threads. What a thread
reads on a clock is any number: clocks may stop, jump and go back, and a thread may be stopped for
any time between its reading and its access.
"""

from z3 import And, BoolVal, If, Implies, Not, Or

from engine import NO, YES, System, is_true_of, name_of
from report import Broken, Proved, Seen

RULES = """
renews_a_live_word: A renewal moves a live word only.
    src/lease/words.rs: if now[lane] >= seen {
    mutant: lease-renewal-may-leave-lost
renewal_exchanges: A renewal compares and exchanges.
    src/lease/words.rs: word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire)
    mutant: lease-renewal-stores
renewal_goes_forward: A renewal never moves a deadline back.
    src/lease/words.rs: let next = seen.max(deadlines[lane]);
    mutant: lease-renewal-moves-back
late_renewal_ends: A renewal that finds a word over ends the lease on all clocks.
    src/lease/words.rs: return Err(self.revoke());
    mutant: lease-late-renewal-does-not-mark
reader_marks: A reader that finds the lease over marks it.
    src/lease/words.rs: Err(self.revoke()) }
    mutant: lease-lapse-is-not-marked
marks_every_word: It marks all three words before it answers.
    src/lease/words.rs: Err(self.revoke()) }
    mutant: lease-look-ends-its-own-lane-only
helps: A reader that finds a word at 0 swaps the others too.
    src/lease/words.rs: Ok(deadline - now)
    mutant: lease-look-at-a-lost-word-does-not-help
revokes_by_a_swap: The end is a swap, so one caller is the first.
    src/lease/words.rs: let before = self.0[0].swap(LOST, Ordering::AcqRel);
    mutant: lease-revocation-is-a-load-and-a-store
"""

IDLE, STORE = 0, 1
SWAP, LOAD, EXCHANGE = 11, 21, 31    # SWAP + lane: about to swap this word, and so on
LANES = range(3)


class Words(System):
    sorts = ("Thread",)
    variables = {
        "w0": ((), "Int"), "w1": ((), "Int"), "w2": ((), "Int"),
        # Of each thread: what it does next, the word that it loaded, the readings and the
        # deadlines of its renewal.
        "pc": (("Thread",), "Int"), "seen": (("Thread",), "Int"),
        "n0": (("Thread",), "Int"), "n1": (("Thread",), "Int"), "n2": (("Thread",), "Int"),
        "d0": (("Thread",), "Int"), "d1": (("Thread",), "Int"), "d2": (("Thread",), "Int"),
        # Somebody was answered "over"; "live" was answered after that; how many were the first;
        # the latest deadlines that were proven.
        "over": ((), "Bool"), "revived": ((), "Bool"), "firsts": ((), "Int"),
        "p0": ((), "Int"), "p1": ((), "Int"), "p2": ((), "Int"),
    }
    rules = ("renews_a_live_word", "renewal_exchanges", "renewal_goes_forward",
             "late_renewal_ends", "reader_marks", "marks_every_word", "helps",
             "revokes_by_a_swap")

    def steps(self):
        out = {}
        word = lambda s, lane: s.values[f"w{lane}"]
        of = lambda s, name, lane, th: s.values[f"{name}{lane}"](th)
        over = {"over": YES}

        def finds_live(s, p, lane):
            return (And(s.pc(p.th_Thread) == IDLE, p.n_Int >= 0, p.n_Int < word(s, lane)),
                    {"revived": Or(s.revived, s.over)})

        def finds_over(s, p, lane):
            th = p.th_Thread
            guard = And(s.pc(th) == IDLE, p.n_Int >= 0, p.n_Int >= word(s, lane))
            if not self.has("reader_marks"):
                return guard, over
            ends = SWAP if self.has("marks_every_word") else SWAP + lane
            if self.has("helps"):
                return guard, {"pc": {th: ends}}
            is_lost = word(s, lane) == 0
            return guard, {"pc": {th: If(is_lost, IDLE, ends)}, "over": Or(s.over, is_lost)}

        def revokes(s, p, lane):
            return s.pc(p.th_Thread) == IDLE, {"pc": {p.th_Thread: SWAP}}

        def swaps(s, p, lane):
            th = p.th_Thread
            last = lane == 2 or not self.has("marks_every_word")
            updates = {f"w{lane}": 0, "pc": {th: IDLE if last else SWAP + lane + 1}}
            if lane == 0 and not self.has("revokes_by_a_swap"):
                # It loads first, and stores later.
                return s.pc(th) == SWAP, {"seen": {th: s.w0}, "pc": {th: STORE}}
            if lane == 0:
                updates["firsts"] = If(s.w0 != 0, s.firsts + 1, s.firsts)
            return s.pc(th) == SWAP + lane, {**updates, **(over if last else {})}

        def stores(s, p, lane):
            th = p.th_Thread
            first = If(s.seen(th) != 0, s.firsts + 1, s.firsts)
            return s.pc(th) == STORE, {"w0": 0, "firsts": first, "pc": {th: SWAP + 1}}

        def begins_to_renew(s, p, lane):
            th, updates, fine = p.th_Thread, {"pc": {p.th_Thread: LOAD}}, []
            for i in LANES:
                n, d = getattr(p, f"n{i}_Int"), getattr(p, f"d{i}_Int")
                proven = s.values[f"p{i}"]
                updates.update({f"n{i}": {th: n}, f"d{i}": {th: d},
                                f"p{i}": If(d > proven, d, proven)})
                fine += [n >= 0, d >= 0]
            return And(s.pc(th) == IDLE, *fine), updates

        def lapsed(s, lane, th, value):
            is_lapsed = of(s, "n", lane, th) >= value
            if not self.has("renews_a_live_word"):
                # As the mutant: it knows the others, but not 0.
                is_lapsed = And(value != 0, is_lapsed)
            return is_lapsed

        def ends_late(s, th, is_lapsed, otherwise):
            """Where it goes, and whether it has answered."""
            if self.has("late_renewal_ends"):
                return {"pc": {th: If(is_lapsed, SWAP, otherwise)}}
            return {"pc": {th: If(is_lapsed, IDLE, otherwise)}, "over": Or(s.over, is_lapsed)}

        def loads(s, p, lane):
            th, seen = p.th_Thread, word(s, lane)
            ends = ends_late(s, th, lapsed(s, lane, th, seen), EXCHANGE + lane)
            return s.pc(th) == LOAD + lane, {"seen": {th: seen}, **ends}

        def exchanges(s, p, lane):
            th, now = p.th_Thread, word(s, lane)
            seen, new = s.seen(th), of(s, "d", lane, th)
            later = If(seen > new, seen, new) if self.has("renewal_goes_forward") else new
            done = IDLE if lane == 2 else LOAD + lane + 1
            if not self.has("renewal_exchanges"):
                return s.pc(th) == EXCHANGE + lane, {f"w{lane}": later, "pc": {th: done}}
            fails = And(now != seen, lapsed(s, lane, th, now))
            ends = ends_late(s, th, fails, If(now == seen, done, EXCHANGE + lane))
            return (s.pc(th) == EXCHANGE + lane,
                    {f"w{lane}": If(now == seen, later, now), "seen": {th: now}, **ends})

        for lane in LANES:
            for step in (finds_live, finds_over, swaps, loads, exchanges):
                out[f"{step.__name__}_{lane}"] = lambda s, p, st=step, la=lane: st(s, p, la)
        alone = (revokes, begins_to_renew) + (() if self.has("revokes_by_a_swap") else (stores,))
        for step in alone:
            out[f"{step.__name__}_0"] = lambda s, p, st=step: st(s, p, 0)
        return out

    def first(self, s):
        words = [And(s.values[f"w{i}"] > 0, s.values[f"p{i}"] == s.values[f"w{i}"]) for i in LANES]
        return And(*words, Not(s.over), Not(s.revived), s.firsts == 0,
                   self.all("Thread", lambda t: s.pc(t) == IDLE))

    def invariant(self, s):
        w = [s.w0, s.w1, s.w2]
        is_at = lambda t, base: Or([s.pc(t) == base + i for i in LANES])
        return {
            "what is over is 0": Implies(s.over, And([x == 0 for x in w])),
            "swaps are in order": self.all("Thread", lambda t: And(
                Implies(s.pc(t) == SWAP + 1, s.w0 == 0),
                Implies(s.pc(t) == SWAP + 2, And(s.w0 == 0, s.w1 == 0)))),
            "what is exchanged was live": self.all("Thread", lambda t: Implies(
                is_at(t, EXCHANGE), s.seen(t) > 0)),
            "words are proven": And([
                And(s.values[f"w{i}"] >= 0, s.values[f"w{i}"] <= s.values[f"p{i}"])
                for i in LANES]),
            "renewals are proven": self.all("Thread", lambda t: Implies(
                Or(is_at(t, LOAD), is_at(t, EXCHANGE)), And([
                    And(s.values[f"n{i}"](t) >= 0, s.values[f"d{i}"](t) <= s.values[f"p{i}"])
                    for i in LANES]))),
            "one caller ends it": s.firsts == If(s.w0 == 0, 1, 0),
            "never live again": Not(s.revived),
        }

    def moves(self, before, after):
        pairs = [(before.values[f"w{i}"], after.values[f"w{i}"]) for i in LANES]
        return {"a word goes forward, or to 0 for good": And([
            And(Or(b >= a, b == 0), Implies(a == 0, b == 0)) for a, b in pairs])}

    def claims(self, s):
        return {
            "final": Not(s.revived),
            "one end": And(s.firsts <= 1, Implies(s.over, s.firsts == 1)),
            "proven": And(s.w0 <= s.p0, s.w1 <= s.p1, s.w2 <= s.p2),
            # Only for the search of a run: a deadline that was proven is not taken away while
            # nobody ends the lease.
            **({} if self.has("renewal_goes_forward") else {"forward": Or(s.w0 == 0, s.w0 >= 10)}),
        }

    def scene(self, s):
        return And(s.w0 == 10, s.w1 == 10, s.w2 == 10)

    def realistic(self, s, p):
        small = [getattr(p, f"{x}{i}_Int") <= 30 for i in LANES for x in "nd"]
        return And(p.n_Int <= 30, *small)

    def describe(self, m, s, name, p):
        name, lane = name.rsplit("_", 1)
        who = name_of(m, p.th_Thread)
        words = f"words {m.eval(s.w0)}, {m.eval(s.w1)}, {m.eval(s.w2)}"
        value = lambda x: m.eval(x, model_completion=True)
        many = lambda x: ", ".join(str(value(getattr(p, f"{x}{i}_Int"))) for i in LANES)
        again = ": the lease is live again" if is_true_of(m, s.revived) else ""
        return {
            "finds_live": f"{who} reads {value(p.n_Int)} on clock {lane}, and finds word {lane} "
                          f"live{again}",
            "finds_over": f"{who} reads {value(p.n_Int)} on clock {lane}, and finds word {lane} "
                          f"over",
            "revokes": f"{who} begins to end the lease",
            "swaps": f"{who} swaps word {lane} for 0",
            "stores": f"{who} stores 0 in word 0",
            "begins_to_renew": f"{who} has a proof: its clocks show {many('n')}, the deadlines "
                               f"are {many('d')}",
            "loads": f"{who} loads word {lane}",
            "exchanges": f"{who} writes word {lane}",
        }[name] + f"; {words}"


def all_words_moved(system, s):
    return And(s.w0 > 10, s.w1 > 10, s.w2 > 10)


TWO = {"Thread": 2}
CHECKS = [
    Proved("a lease that was found over is over for good", Words),
    Seen("a renewal moves all three words", Words, {"Thread": 1}, all_words_moved, 7),
    Broken("renews_a_live_word", Words, TWO, "final", 8),
    Broken("renewal_exchanges", Words, TWO, "final", 8),
    Broken("renewal_goes_forward", Words, {"Thread": 1}, "forward", 3),
    Broken("late_renewal_ends", Words, TWO, "final", 4),
    Broken("reader_marks", Words, TWO, "final", 2),
    Broken("marks_every_word", Words, TWO, "final", 3),
    Broken("helps", Words, TWO, "final", 4),
    Broken("revokes_by_a_swap", Words, TWO, "one end", 9),
]
