"""Readers and writers of one lock on Redis: a writer is alone.

The server has one key for a lock: it does not exist, or names a writer, or says that there are
readers. The readers are a set beside it, each with its own end. `leases.py` shows that each lease
ends before what the server keeps for it; here is what the server keeps.
"""

from z3 import And, If, Implies, IntVal, Not, Or

from engine import NO, YES, System, name_of
from report import Broken, Proved, Seen

RULES = """
only_readers_join: A claim joins only if it reads, and the others read.
    src/store/claim.rs: matches!((self, other), (Self::Read, Self::Read))
    mutant: readers-meet-writers
a_reader_frees_itself: A reader that leaves frees only itself.
    src/redis/store/scripts/release.lua: bind(readers, lock, readers, grants) end leave_line(claim)
    mutant: redis-reader-frees-the-others
lasts_for_the_last_reader: The lock lasts as long as the last of its readers.
    src/redis/store/scripts/acquire.lua: bind(readers, lock, readers, grants) number = string
    mutant: redis-called-reader-holds-for-the-time-of-its-call
a_writer_that_reads_writes_no_more: A request to write of before a downgrade grants nothing.
    src/redis/store/scripts/acquire.lua: if not reads(claim) then
    mutant: redis-writer-is-granted-what-it-reads
"""

FREE, WRITER, READERS = range(3)
NOTHING, READ, WRITE = range(3)


class ReadersAndWriters(System):
    sorts = ("Claim",)
    variables = {
        "now": ((), "Real"),
        # The key: what it says, who writes, and until when it exists.
        "key": ((), "Int"), "writer": ((), "Claim"), "end": ((), "Real"),
        # The set of readers, and their ends.
        "reads": (("Claim",), "Bool"), "ends": (("Claim",), "Real"),
        # What each claim was granted, and until when it may count on that at most.
        "granted": (("Claim",), "Int"), "until": (("Claim",), "Real"),
    }
    rules = ("only_readers_join", "a_reader_frees_itself", "lasts_for_the_last_reader",
             "a_writer_that_reads_writes_no_more")

    def steps(self):
        bound = self.has("lasts_for_the_last_reader")

        def exists(s):
            return And(s.key != FREE, s.now < s.end)

        def later(a, b):
            return If(a > b, a, b)

        def time_passes(s, p):
            return p.dt_Real > 0, {"now": s.now + p.dt_Real}

        def writer_is_granted(s, p):
            # Where the key does not exist. Readers of before are forgotten.
            c, end = p.c_Claim, s.now + p.ttl_Real
            alone = Not(exists(s))
            if not self.has("only_readers_join"):
                alone = Or(alone, s.key == READERS)
            return (And(p.ttl_Real > 0, alone),
                    {"key": IntVal(WRITER), "writer": c, "end": end, "granted": {c: IntVal(WRITE)},
                     "until": {c: end}})

        def first_reader_is_granted(s, p):
            c, end = p.c_Claim, s.now + p.ttl_Real
            return (And(p.ttl_Real > 0, Not(exists(s))),
                    {"key": IntVal(READERS), "end": end,
                     "reads": lambda d: d == c, "ends": {c: end},
                     "granted": {c: IntVal(READ)}, "until": {c: end}})

        def reader_joins_or_repeats(s, p):
            c, end = p.c_Claim, s.now + p.ttl_Real
            return (And(p.ttl_Real > 0, exists(s), s.key == READERS),
                    {"reads": {c: YES}, "ends": {c: end}, "end": later(s.end, end) if bound
                     else s.end, "granted": {c: IntVal(READ)}, "until": {c: end}})

        def renewal_extends(s, p):
            c, end = p.c_Claim, s.now + p.ttl_Real
            writes = And(s.key == WRITER, s.writer == c)
            reads = And(s.key == READERS, s.reads(c), s.now < s.ends(c))
            kept = If(writes, end, later(s.end, end))
            return (And(p.ttl_Real > 0, exists(s), Or(writes, reads),
                        # No renewal shortens what a claim counts on: `leases.py`.
                        end >= s.until(c)),
                    {"end": kept, "ends": {c: end}, "until": {c: end}})

        def writer_becomes_a_reader(s, p):
            # Its runs have ended, and its lease goes on: what is left stays.
            c = s.writer
            return (And(exists(s), s.key == WRITER),
                    {"key": IntVal(READERS), "reads": lambda d: d == c, "ends": {c: s.end},
                     "granted": {c: IntVal(READ)}})

        def late_request_to_write_is_executed(s, p):
            # Of a claim that reads by now. It answers as a grant to write.
            c = p.c_Claim
            return (And(exists(s), s.key == READERS, s.reads(c), s.now < s.ends(c)),
                    {"granted": {c: IntVal(WRITE)}})

        def writer_releases(s, p):
            c = s.writer
            return (And(s.key == WRITER),
                    {"key": IntVal(FREE), "granted": {c: IntVal(NOTHING)}})

        def reader_releases(s, p):
            # The others stay, and the key until the latest of their ends: not before any.
            c, rest = p.c_Claim, p.rest_Real
            others = self.all("Claim", lambda d: Implies(
                And(s.reads(d), d != c, s.now < s.ends(d)), rest >= s.ends(d)))
            free = {"key": IntVal(FREE)}
            if self.has("a_reader_frees_itself"):
                free = {"end": rest}
            else:
                others = YES
            return (And(s.key == READERS, s.reads(c), others),
                    {"reads": {c: NO}, "granted": {c: IntVal(NOTHING)}, **free})

        steps = [time_passes, writer_is_granted, first_reader_is_granted, reader_joins_or_repeats,
                 renewal_extends, writer_becomes_a_reader, writer_releases, reader_releases]
        if not self.has("a_writer_that_reads_writes_no_more"):
            steps.append(late_request_to_write_is_executed)
        return {step.__name__: step for step in steps}

    def first(self, s):
        return And(s.key == FREE, self.all("Claim", lambda c: And(
            Not(s.reads(c)), s.granted(c) == NOTHING)))

    def counts(self, s, c, mode):
        return And(s.granted(c) == mode, s.now < s.until(c))

    def invariant(self, s):
        return {
            "a writer has the key": self.all("Claim", lambda c: Implies(
                self.counts(s, c, WRITE),
                And(s.key == WRITER, s.writer == c, s.end >= s.until(c)))),
            "a reader is in the set": self.all("Claim", lambda c: Implies(
                self.counts(s, c, READ),
                And(s.key == READERS, s.reads(c), s.ends(c) >= s.until(c),
                    s.end >= s.until(c)))),
            "the writer was granted": Implies(s.key == WRITER, s.granted(s.writer) == WRITE),
            "readers were granted": self.all("Claim", lambda c: Implies(
                And(s.key == READERS, s.reads(c), s.now < s.ends(c)), s.granted(c) == READ)),
            "grants are of these kinds": self.all("Claim", lambda c: And(
                s.granted(c) >= NOTHING, s.granted(c) <= WRITE)),
        }

    def claims(self, s):
        live = lambda c: Or(self.counts(s, c, READ), self.counts(s, c, WRITE))
        return {"a writer is alone": self.all("Claim Claim", lambda c, d: Implies(
            And(self.counts(s, c, WRITE), live(d)), c == d))}

    def scene(self, s):
        return And(s.now == 0, self.all("Claim", lambda c: s.until(c) == 0))

    def realistic(self, s, p):
        return And(Or(p.ttl_Real == 1, p.ttl_Real == 10), Or(p.dt_Real == 2, p.dt_Real == 9))

    def describe(self, m, s, name, p):
        text = name.replace("_", " ")
        if name in ("time_passes", "writer_releases", "writer_becomes_a_reader"):
            return text + f": it is {m.eval(s.now)}" * (name == "time_passes")
        until = "" if "releases" in name else f" until {m.eval(s.until(p.c_Claim))}"
        return f"{name_of(m, p.c_Claim)}: {text}{until}"


def two_read(system, s):
    a, b = system.members["Claim"].values()
    return And(system.counts(s, a, READ), system.counts(s, b, READ), s.now > 0)


TWO, THREE = {"Claim": 2}, {"Claim": 3}
CHECKS = [
    Proved("a writer is alone", ReadersAndWriters),
    Seen("two read together", ReadersAndWriters, TWO, two_read, 4),
    Broken("only_readers_join", ReadersAndWriters, TWO, "a writer is alone", 3),
    Broken("a_reader_frees_itself", ReadersAndWriters, THREE, "a writer is alone", 4),
    Broken("lasts_for_the_last_reader", ReadersAndWriters, THREE, "a writer is alone", 4),
    Broken("a_writer_that_reads_writes_no_more", ReadersAndWriters, TWO, "a writer is alone", 3),
]
