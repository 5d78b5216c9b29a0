"""Observed expiry: a lock in a register that knows no time, only compare-and-swap.

The register has one record: free, or held by a claim. Each write makes a new version, and is
refused if the record is not of the version that it expects. Nobody but the observers ends a hold:
whoever wants the lock, and has seen one version of a held record for a whole TTL by its own clock,
replaces it. It counts from *after* the answer that first showed the version. So the holder's last
write was sent before that, and its lease has ended.

No two clocks are compared. What is used is that an observer's clock goes by no more, in its unit,
than a holder's: the drift between clients, in the formula of I1. A version is named by the request
that wrote it. A write may be executed late; an answer may be lost, and what it would have said may
be read from the record later.
"""

from z3 import And, Function, If, Implies, IntSort, Not, Or, Real, RealSort

from engine import NO, YES, System, name_of, number_of
from report import Broken, Proved, Seen

RULES = """
waits_a_whole_ttl: An observer waits for a whole TTL of the record.
    src/store/observed/sightings.rs: gone.into_iter().min().unwrap_or_default()
    mutant: observed-time-is-that-of-one-clock
stamped_after_the_answer: It counts from after the answer that first showed the version.
    src/store/observed/observed_store.rs: let loaded = self.register.load(key).await?;
    mutant: observed-time-counts-from-before-the-answer
compares_the_version: A write replaces only the version that it expects.
    src/store/observed/observed_store.rs: if self.swap(&claim.key, Some(&seen), record).await? {
    mutant: observed-renewal-believes-a-former-write
a_write_is_a_new_version: Each write makes a new version, also one that changes nothing else.
    src/store/observed/record.rs: Ok(hex(random_bytes()?))
    mutant: observed-renewal-changes-no-version
counts_from_sending: A lease counts from before its write was sent.
    src/store/observed/observed_store.rs: Ok(Renewed::Extended(GrantProof::of(claim.ttl)));
    mutant: observed-deadline-counts-from-the-answer
allows_for_drift: The lease is shorter by what the clocks of clients may differ by.
    src/lease/deadline.rs: let scaled = ttl.as_nanos() * kept / whole;
    mutant: deadline-multiplies-the-drift
a_bar_is_waited_for: A bar keeps others out for the TTL of the hold that it ended.
    src/store/observed/sightings.rs: State::Free => Duration::ZERO,
    mutant: observed-bar-is-open
"""

TAKE, RENEW, RELEASE, BAR = range(4)
TTL, DRIFT = 10, 2


class Observed(System):
    sorts = ("Claim", "Request")
    variables = {
        # The register.
        "exists": ((), "Bool"), "current": ((), "Request"),
        # Requests to write, each with the version that it expects (or none).
        "sent": (("Request",), "Bool"), "sent_at": (("Request",), "Real"),
        "fresh": (("Request",), "Bool"), "expects": (("Request",), "Request"),
        "done": (("Request",), "Bool"),
        # Each claim: its clock as a holder and as an observer; the version that it saw last, since
        # when, and whether a load is on its way, what it shows and when it was sent.
        "holds_at": (("Claim",), "Real"), "waits_at": (("Claim",), "Real"),
        "looked": (("Claim",), "Bool"), "seen": (("Claim",), "Request"),
        "stamp": (("Claim",), "Real"), "loading": (("Claim",), "Bool"),
        "shown": (("Claim",), "Bool"), "shows": (("Claim",), "Request"),
        "load_at": (("Claim",), "Real"),
        "leased": (("Claim",), "Bool"), "word": (("Claim",), "Real"),
        "proof": (("Claim",), "Request"), "ended": (("Claim",), "Bool"),
    }
    used_in_order = ("sent",)
    rules = ("waits_a_whole_ttl", "stamped_after_the_answer", "compares_the_version",
             "a_write_is_a_new_version", "counts_from_sending", "allows_for_drift",
             "a_bar_is_waited_for")

    @property
    def left_out(self):
        bars = () if not self.has("a_bar_is_waited_for") else ("operator_bars",)
        return ["client_ends", "client_releases", *bars]

    def __init__(self, sizes=None, without=()):
        super().__init__(sizes, without)
        claim, request = self.sort["Claim"], self.sort["Request"]
        self.of = Function("of", request, claim)
        self.kind = Function("kind", request, IntSort())
        self.ttl = Function("ttl", claim, RealSort())
        self.slack = Real("slack")

    def rigid(self):
        return And(self.slack >= 0, self.all("Claim", lambda c: self.ttl(c) > 0),
                   self.all("Request", lambda r: And(
                       self.kind(r) >= TAKE, self.kind(r) <= BAR)))

    def deadline(self, s, r):
        more = 0 if self.has("allows_for_drift") else DRIFT
        start = s.sent_at(r)
        if not self.has("counts_from_sending"):
            start = s.holds_at(self.of(r))
        return start + self.ttl(self.of(r)) - self.slack + more

    def steps(self):
        def time_passes(s, p):
            moved = self.all("Claim", lambda c: And(
                p.f_Claim_Real(c) - s.holds_at(c) >= p.dt_Real,
                p.g_Claim_Real(c) >= s.waits_at(c),
                p.g_Claim_Real(c) - s.waits_at(c) <= p.dt_Real))
            return (And(p.dt_Real >= 0, moved),
                    {"holds_at": p.f_Claim_Real, "waits_at": p.g_Claim_Real})

        def client_loads(s, p):
            c = p.c_Claim
            return (Not(s.loading(c)),
                    {"loading": {c: YES}, "shown": {c: NO}, "load_at": {c: s.waits_at(c)}})

        def register_shows(s, p):
            c = p.c_Claim
            return And(s.loading(c), s.exists), {"shown": {c: YES}, "shows": {c: s.current}}

        def client_sees(s, p):
            c = p.c_Claim
            new = Or(Not(s.looked(c)), s.seen(c) != s.shows(c))
            now = s.waits_at(c) if self.has("stamped_after_the_answer") else s.load_at(c)
            return (And(s.loading(c), s.shown(c)),
                    {"loading": {c: NO}, "looked": {c: YES}, "seen": {c: s.shows(c)},
                     "stamp": {c: If(new, now, s.stamp(c))}})

        def writes(s, p, kind):
            r = p.r_Request
            c = self.of(r)
            return (And(Not(s.sent(r)), self.kind(r) == kind),
                    {"sent": {r: YES}, "sent_at": {r: s.holds_at(c)}, "fresh": {r: NO},
                     "expects": {r: s.seen(c)}})

        def client_creates(s, p):
            guard, updates = writes(s, p, TAKE)
            c = self.of(p.r_Request)
            return And(guard, Not(s.ended(c))), {**updates, "fresh": {p.r_Request: YES}}

        def client_takes_over(s, p):
            # What is free, or was seen for a whole TTL of its holder, or is its own already.
            guard, updates = writes(s, p, TAKE)
            c = self.of(p.r_Request)
            seen = s.seen(c)
            waited = s.waits_at(c) - s.stamp(c) >= self.ttl(self.of(seen))
            if not self.has("waits_a_whole_ttl"):
                waited = s.waits_at(c) - s.stamp(c) >= self.ttl(self.of(seen)) / 2
            free = Or(self.kind(seen) == RELEASE, waited, self.of(seen) == c)
            if not self.has("a_bar_is_waited_for"):
                free = Or(free, self.kind(seen) == BAR)
            return And(guard, Not(s.ended(c)), s.looked(c), free), updates

        def client_renews(s, p):
            guard, updates = writes(s, p, RENEW)
            c = self.of(p.r_Request)
            own = And(s.looked(c), self.of(s.seen(c)) == c)
            return And(guard, own, Not(s.ended(c))), updates

        def client_releases(s, p):
            guard, updates = writes(s, p, RELEASE)
            c = self.of(p.r_Request)
            own = And(s.looked(c), self.of(s.seen(c)) == c)
            return (And(guard, own), {**updates, "leased": {c: NO}, "ended": {c: YES}})

        def operator_bars(s, p):
            # It has seen the version that it replaces. A bar is a write of that hold, which
            # grants nothing.
            r, v = p.r_Request, p.v_Request
            guard, updates = writes(s, p, BAR)
            return (And(guard, s.done(v), self.of(v) == self.of(r), self.kind(v) != RELEASE),
                    {**updates, "expects": {r: v}})

        def register_executes(s, p):
            r = p.r_Request
            same = Or(And(s.fresh(r), Not(s.exists)),
                      And(Not(s.fresh(r)), s.exists, s.current == s.expects(r)))
            if not self.has("compares_the_version"):
                same = YES
            version = r
            if not self.has("a_write_is_a_new_version"):
                version = If(self.kind(r) == RENEW, s.current, r)
            return (And(s.sent(r), Not(s.done(r)), same),
                    {"exists": YES, "current": version, "done": {r: YES}})

        def client_learns(s, p):
            # From the answer, or from the record. It knows the version then.
            r = p.r_Request
            c, word = self.of(r), self.deadline(s, r)
            later = Or(Not(s.leased(c)), word > s.word(c))
            return (And(s.done(r), self.kind(r) <= RENEW, Not(s.ended(c))),
                    {"leased": {c: YES}, "word": {c: If(later, word, s.word(c))},
                     "proof": {c: If(later, r, s.proof(c))}, "looked": {c: YES},
                     "seen": {c: r}, "stamp": {c: s.waits_at(c)}})

        def client_ends(s, p):
            return YES, {"leased": {p.c_Claim: NO}, "ended": {p.c_Claim: YES}}

        return {step.__name__: step for step in (
            time_passes, client_loads, register_shows, client_sees, client_creates,
            client_takes_over, client_renews, client_releases, operator_bars, register_executes,
            client_learns, client_ends)}

    def first(self, s):
        return And(
            Not(s.exists), self.all("Request", lambda r: And(Not(s.sent(r)), Not(s.done(r)))),
            self.all("Claim", lambda c: And(
                Not(s.looked(c)), Not(s.loading(c)), Not(s.shown(c)), Not(s.leased(c)),
                Not(s.ended(c)))))

    def is_live(self, s, c):
        return And(s.leased(c), s.holds_at(c) < s.word(c))

    def is_kept(self, s, c):
        return And(s.exists, self.of(s.current) == c, self.kind(s.current) != RELEASE)

    def invariant(self, s):
        gone = lambda r: s.holds_at(self.of(r)) - s.sent_at(r)
        # A bar counts as a write of the hold that it ends.
        holds = lambda r: And(s.done(r), self.kind(r) != RELEASE)
        return {
            "a write that counts is kept": self.all("Request", lambda r: Implies(
                And(holds(r), Not(s.ended(self.of(r))), gone(r) < self.ttl(self.of(r))),
                self.is_kept(s, self.of(r)))),
            "what is current was written": And(
                Implies(s.exists, s.done(s.current)),
                self.all("Request", lambda r: Implies(s.done(r), And(s.exists, s.sent(r))))),
            "the current write is its claim's latest": self.all("Request", lambda r: Implies(
                And(holds(r), s.exists, self.kind(s.current) != RELEASE,
                    self.of(r) == self.of(s.current), Not(s.ended(self.of(r)))),
                s.sent_at(r) <= s.sent_at(s.current))),
            "requests are of the past": self.all("Request", lambda r: Implies(
                s.sent(r), s.sent_at(r) <= s.holds_at(self.of(r)))),
            "what is seen was written": self.all("Claim", lambda c: And(
                Implies(s.looked(c), s.done(s.seen(c))),
                Implies(And(s.loading(c), s.shown(c)), s.done(s.shows(c))))),
            "an observer counts no more than the holder": self.all("Claim", lambda c: Implies(
                And(s.looked(c), self.kind(s.seen(c)) != RELEASE),
                s.waits_at(c) - s.stamp(c) <= gone(s.seen(c)))),
            "what may be replaced is older": self.all("Request Request", lambda r, q: Implies(
                And(s.sent(r), Not(s.done(r)), Not(s.fresh(r)), s.exists,
                    s.current == s.expects(r), s.done(q), self.kind(q) != RELEASE,
                    self.of(q) == self.of(r)), s.sent_at(q) <= s.sent_at(r))),
            "what is changed is its own": self.all("Request", lambda r: Implies(
                And(s.sent(r), self.kind(r) != TAKE), And(
                    Not(s.fresh(r)), self.of(s.expects(r)) == self.of(r)))),
            "what is expected was written": self.all("Request", lambda r: Implies(
                And(s.sent(r), Not(s.fresh(r))), s.done(s.expects(r)))),
            "whoever releases has ended": self.all("Request", lambda r: Implies(
                And(s.sent(r), self.kind(r) == RELEASE), s.ended(self.of(r)))),
            "what is taken over is over": self.all("Request", lambda r: Implies(
                And(s.sent(r), Not(s.done(r)), self.kind(r) == TAKE, Not(s.fresh(r))),
                Or(self.kind(s.expects(r)) == RELEASE, self.of(s.expects(r)) == self.of(r),
                   gone(s.expects(r)) >= self.ttl(self.of(s.expects(r)))))),
            "a lease has its proof": self.all("Claim", lambda c: Implies(s.leased(c), And(
                holds(s.proof(c)), self.of(s.proof(c)) == c, Not(s.ended(c)),
                s.word(c) <= self.deadline(s, s.proof(c))))),
        }

    def claims(self, s):
        return {
            "kept": self.all("Claim", lambda c: Implies(self.is_live(s, c), self.is_kept(s, c))),
            "exclusion": self.all("Claim Claim", lambda c, d: Implies(
                And(self.is_live(s, c), self.is_live(s, d)), c == d)),
        }

    def scene(self, s):
        return And(self.slack == 1, self.all("Claim", lambda c: And(
            self.ttl(c) == TTL, s.holds_at(c) == 0, s.waits_at(c) == 0)))

    def realistic(self, s, p):
        same = self.all("Claim", lambda c: And(
            p.f_Claim_Real(c) - s.holds_at(c) == p.dt_Real,
            p.g_Claim_Real(c) - s.waits_at(c) == p.dt_Real))
        return And(p.dt_Real >= 1, same)

    def describe(self, m, s, name, p):
        value = lambda x: f"{number_of(m, x):g}"
        r, c = p.r_Request, p.c_Claim
        what = ["take", "renewal", "release", "bar"][m.eval(self.kind(r), True).as_long()]
        of = f"{name_of(m, self.of(r))}'s {what} {name_of(m, r)}"
        if name == "time_passes":
            clocks = self.members["Claim"].items()
            return "it is " + ", ".join(f"{value(s.holds_at(c))} for {n}" for n, c in clocks)
        if name == "client_learns":
            word = value(s.word(self.of(r)))
            return f"the client learns that {of} was executed: its lease ends at {word}"
        if name in ("client_loads", "register_shows", "client_sees", "client_ends"):
            return f"{name.replace('_', ' ')} ({name_of(m, c)})"
        return f"{name.replace('_', ' ')}: {of}"


def taken_over(system, s):
    a, b = system.members["Claim"].values()
    return And(system.is_live(s, b), s.leased(a))


TWO, THREE = {"Claim": 2, "Request": 2}, {"Claim": 2, "Request": 3}
CHECKS = [
    Proved("a lease ends before an observer takes it over", Observed),
    Seen("a dead holder's lock is taken over", Observed, TWO, taken_over, 11),
    Broken("waits_a_whole_ttl", Observed, TWO, "kept", 10),
    Broken("stamped_after_the_answer", Observed, TWO, "kept", 10),
    Broken("compares_the_version", Observed, TWO, "kept", 5),
    Broken("a_write_is_a_new_version", Observed, THREE, "kept", 12),
    Broken("counts_from_sending", Observed, TWO, "kept", 10),
    Broken("allows_for_drift", Observed, TWO, "kept", 10),
    Broken("a_bar_is_waited_for", Observed, THREE, "kept", 10),
]
