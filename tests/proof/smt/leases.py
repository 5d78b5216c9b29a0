"""Leases of one server (I1): a lease is live only while the server keeps the key from all others.

The core is one line: *what is left of an answer by its claim's own clock, the server keeps by its
own clock*. Time keeps it true, since the server's clock goes less than the claim's. A grant keeps
it true, since it finds nothing else left. A renewal keeps it true, since it shortens nothing.

Messages are never removed. One that was sent may be executed, or its answer received, at any
later time, any number of times, or never: that is loss, delay, doubling and change of order.

Clocks are measured in what they may differ by. True time `t` passes; then the server's clock goes
by `t` at most (its seconds divided by 1 + server_drift), and a claim's by `t` at least (its
seconds divided by 1 - 500 ppm). `arithmetic.py` shows that the formula of I1 is then
`sent_at + ttl - slack`. So the proof is linear, and holds for every drift. The server's clock may
be set back at any time, by any amount.
"""

from z3 import And, Function, If, Implies, IntSort, Not, Or, Q, Real, Reals, RealSort, RealVal

from engine import NO, YES, System, name_of, number_of
from report import Broken, Proved, Seen

RULES = """
counts_from_sending: A lease counts from before its request was sent.
    src/lease/deadline.rs: deadlines: terms.deadlines(sent_at, ttl),
    mutant: deadline-from-the-receipt
    src/manager/claim.rs: sent_at: grant.proof.sent_at.as_ref().unwrap_or(sent_at),
    mutant: manager-grants-from-the-answer
    src/manager/batch.rs: let since = proof.sent_at.as_ref().unwrap_or(&self.sent_at);
    mutant: manager-renews-from-the-answer
allows_for_drift: The TTL is divided by what the clocks may differ by.
    src/lease/deadline.rs: let scaled = ttl.as_nanos() * kept / whole;
    mutant: deadline-multiplies-the-drift
    src/lease/deadline.rs: let kept = u128::from(1_000_000 - LOCAL_DRIFT_PPM);
    mutant: deadline-forgets-our-own-drift
counts_granted_ttl: A lease counts the TTL that was granted, not the one asked for.
    src/manager/claim.rs: ttl: self.wish.times.leased(grant.proof.ttl),
    mutant: manager-grants-what-it-asked-for
takes_off_granularity: The granularity of the store is taken off.
    src/lease/deadline.rs: scaled.saturating_sub(GRANULARITY.as_nanos() + self.margin.as_nanos())
    mutant: deadline-forgets-the-granularity
release_compares: A release ends its own hold only.
    src/store/line/row.rs: entry.claim().owner == *owner
    mutant: memory-compares-no-owner
renewal_compares: A renewal extends its own hold only.
    src/store/line/row.rs: entry.claim().owner == *owner
    mutant: memory-compares-no-owner
lost_before_release: A lease is lost before its lock is released.
    src/manager/end.rs: hold.lease.revoke(self.cause); match hold.lease.lost_reason() {
    mutant: hold-is-released-while-live
quarantine: After a restart that lost its locks, a server grants nothing for the longest TTL.
    src/redis/store/scripts/judge.lua: string.sub(data, 1, 16) .. '-' .. ARGV[8] or '?'
    mutant: redis-master-again-is-the-same
    src/redis/store/judge.rs: if !is_noted && !was_judged {
    mutant: redis-flush-is-forgotten
revoked_after_its_ttl: Nobody is granted a revoked key before the lease has ended.
    src/store/line/requests.rs: Revoke::AfterTtl => holders.iter()
    mutant: revocation-leaves-no-bar
    src/redis/store/scripts/revoke.lua: redis.call('SET', lock, 'leasehold:barred', 'KEEPTTL')
    mutant: redis-revocation-leaves-no-bar
proof_is_cut: A proof is no longer than the TTL, whatever the server answers.
    src/store/claim.rs: proof.ttl = proof.ttl.min(claim.ttl);
    mutant: grant-is-longer-than-was-asked-for
"""

LOCAL = Q(999_500, 1_000_000)
SERVER = Q(1_083_334, 1_000_000)
TTL = Q(10, 1) / SERVER
GRANULARITY = Q(1, 1000) / SERVER
SLACK = Q(11, 1000) / LOCAL
ACQUIRE, RENEW, RELEASE = range(3)
DOES = {"acquires": ACQUIRE, "renews": RENEW, "releases": RELEASE}


class Leases(System):
    sorts = ("Claim", "Request", "Answer")
    variables = {
        # The server's clock; who holds, until when. Nothing is granted before `shut`.
        "server": ((), "Real"), "held": ((), "Bool"), "holder": ((), "Claim"),
        "end": ((), "Real"), "shut": ((), "Real"),
        # Of each claim: its clock, whether it has a lease, until when, and whether it has ended.
        "clock": (("Claim",), "Real"), "leased": (("Claim",), "Bool"),
        "word": (("Claim",), "Real"), "ended": (("Claim",), "Bool"),
        # Requests, by when they were sent; answers, by that time and by what they grant.
        "sent": (("Request",), "Bool"), "sent_at": (("Request",), "Real"),
        "done": (("Answer",), "Bool"), "grants": (("Answer",), "Bool"),
        "to": (("Answer",), "Claim"), "since": (("Answer",), "Real"), "ttl": (("Answer",), "Real"),
    }
    rules = ("counts_from_sending", "allows_for_drift", "counts_granted_ttl",
             "takes_off_granularity", "release_compares", "renewal_compares",
             "lost_before_release", "quarantine", "revoked_after_its_ttl", "proof_is_cut",
             "renews_a_live_lease")
    used_in_order = ("sent", "done")

    @property
    def left_out(self):
        needed = {"quarantine": ("server_forgets",), "revoked_after_its_ttl": ("server_revokes",),
                  "proof_is_cut": ("server_says_what_is_left",)}
        out = [step for rule, steps in needed.items() if self.has(rule) for step in steps]
        if not any(what == "releases" for _, what in self.cast):
            out += ["client_releases", "server_releases"]
        return ["server_repeats", "server_is_busy", "client_ends", *out]

    def __init__(self, world=None, without=()):
        """`world`: the requests of a run, as "A acquires, B acquires"."""
        self.cast = [part.split() for part in (world or "").split(", ") if part]
        requests, more = len(self.cast), "proof_is_cut" in without
        claims = len({who for who, _ in self.cast})
        sizes = {"Claim": claims, "Request": requests, "Answer": requests + more}
        super().__init__(self.sizes_of(sizes) if world else None, without)
        claim, request = self.sort["Claim"], self.sort["Request"]
        self.full = Function("full", claim, RealSort())     # what the server grants
        self.asked = Function("asked", claim, RealSort())   # what was asked for
        self.of = Function("of", request, claim)
        self.kind = Function("kind", request, IntSort())
        self.early, self.slack = Reals("early slack")       # the server's granularity; I1's slack
        self.longest = Real("longest")                      # max_ttl

    def sizes_of(self, sizes):
        return sizes

    def rigid(self):
        return And(
            self.early >= 0, self.slack >= self.early,
            self.all("Claim", lambda c: And(
                self.full(c) > 0, self.full(c) <= self.longest, self.asked(c) >= self.full(c))),
            self.all("Request", lambda r: And(self.kind(r) >= ACQUIRE, self.kind(r) <= RELEASE)))

    def usable(self, claim, ttl):
        if not self.has("counts_granted_ttl"):
            ttl = self.asked(claim)
        if not self.has("allows_for_drift"):
            ttl = ttl * (SERVER / LOCAL)
        return ttl - (self.slack if self.has("takes_off_granularity") else 0)

    def deadline(self, s, a):
        claim = s.to(a)
        start = s.since(a) if self.has("counts_from_sending") else s.clock(claim)
        ttl = s.ttl(a)
        if self.has("proof_is_cut"):
            ttl = If(ttl <= self.full(claim), ttl, self.full(claim))
        return start + self.usable(claim, ttl)

    def answer(self, s, p, claim, since, ttl, grants=YES):
        a = p.a_Answer
        return {"done": {a: YES}, "grants": {a: grants}, "to": {a: claim}, "since": {a: since},
                "ttl": {a: ttl}}

    def granted(self, s, p, claim, ttl):
        """The claim holds from now on, and its answer says so."""
        return {"held": YES, "holder": claim, "end": s.server + ttl,
                **self.answer(s, p, claim, s.sent_at(p.r_Request), ttl)}

    def forgotten(self, s, p):
        until = s.server + self.longest if self.has("quarantine") else s.shut
        return YES, {"held": NO, "shut": If(until > s.shut, until, s.shut)}

    def is_free(self, s):
        # A server that counts whole milliseconds may free a lock up to one of them early.
        return And(Or(Not(s.held), s.server >= s.end - self.early), s.server >= s.shut - self.early)

    def steps(self):
        def time_passes(s, p):
            moved = self.all("Claim", lambda c: p.f_Claim_Real(c) - s.clock(c) >= p.dt_Real)
            return (And(p.dt_Real >= 0, p.server_Real - s.server <= p.dt_Real, moved),
                    {"server": p.server_Real, "clock": p.f_Claim_Real})

        def client_sends(s, p):
            r, c = p.r_Request, self.of(p.r_Request)
            may = Or(self.kind(r) == ACQUIRE, And(self.kind(r) == RENEW, s.leased(c)))
            return (And(Not(s.sent(r)), Not(s.ended(c)), may),
                    {"sent": {r: YES}, "sent_at": {r: s.clock(c)}})

        def executes(s, p, kind):
            r = p.r_Request
            return And(s.sent(r), self.kind(r) == kind, Not(s.done(p.a_Answer)))

        def holds(s, c):
            return And(s.held, s.holder == c, s.server < s.end)

        def server_grants(s, p):
            c, may = self.of(p.r_Request), executes(s, p, ACQUIRE)
            return And(may, self.is_free(s)), self.granted(s, p, c, self.full(c))

        def server_repeats(s, p):
            c = self.of(p.r_Request)
            return And(executes(s, p, ACQUIRE), holds(s, c)), self.granted(s, p, c, self.full(c))

        def server_says_what_is_left(s, p):
            c, left = self.of(p.r_Request), s.end - s.server
            return (And(executes(s, p, ACQUIRE), holds(s, c)),
                    self.answer(s, p, c, s.sent_at(p.r_Request), left))

        def server_is_busy(s, p):
            c = self.of(p.r_Request)
            return (And(executes(s, p, ACQUIRE), s.held, s.holder != c),
                    self.answer(s, p, c, s.sent_at(p.r_Request), RealVal(0), NO))

        def server_renews(s, p):
            c = self.of(p.r_Request)
            own = holds(s, c) if self.has("renewal_compares") else YES
            return And(executes(s, p, RENEW), own), self.granted(s, p, c, self.full(c))

        def server_releases(s, p):
            r = p.r_Request
            own = s.holder == self.of(r) if self.has("release_compares") else YES
            return And(s.sent(r), self.kind(r) == RELEASE, s.held, own), {"held": NO}

        def server_forgets(s, p):
            return self.forgotten(s, p)

        def server_revokes(s, p):
            # Until the end of the hold, or for a TTL from now, if that is earlier.
            ttl = s.server + self.full(s.holder)
            until = If(s.end <= ttl, s.end, ttl)
            until = until if self.has("revoked_after_its_ttl") else s.shut
            return s.held, {"held": NO, "shut": If(until > s.shut, until, s.shut)}

        def client_takes_the_grant(s, p):
            a, c = p.a_Answer, s.to(p.a_Answer)
            return (And(s.done(a), s.grants(a), Not(s.ended(c)), Not(s.leased(c))),
                    {"leased": {c: YES}, "word": {c: self.deadline(s, a)}})

        def client_takes_the_renewal(s, p):
            a, c = p.a_Answer, s.to(p.a_Answer)
            new = self.deadline(s, a)
            live = s.clock(c) < s.word(c) if self.has("renews_a_live_lease") else YES
            return (And(s.done(a), s.grants(a), s.leased(c), live),
                    {"word": {c: If(new > s.word(c), new, s.word(c))}})

        def client_ends(s, p):
            # Its lease lapsed or was lost, or its process died.
            return YES, {"leased": {p.c_Claim: NO}, "ended": {p.c_Claim: YES}}

        def client_releases(s, p):
            # Or withdraws. A request of before may be executed after it.
            r, c = p.r_Request, self.of(p.r_Request)
            ends = {"leased": {c: NO}, "ended": {c: YES}}
            return (And(Not(s.sent(r)), self.kind(r) == RELEASE),
                    {"sent": {r: YES}, "sent_at": {r: s.clock(c)},
                     **(ends if self.has("lost_before_release") else {})})

        return {step.__name__: step for step in (
            time_passes, client_sends, server_grants, server_repeats, server_says_what_is_left,
            server_is_busy, server_renews, server_releases, server_forgets, server_revokes,
            client_takes_the_grant, client_takes_the_renewal, client_ends, client_releases)}

    def first(self, s):
        return And(Not(s.held), self.all("Claim", lambda c: And(Not(s.leased(c)), Not(s.ended(c)))),
                   self.all("Request", lambda r: Not(s.sent(r))),
                   self.all("Answer", lambda a: Not(s.done(a))))

    def is_live(self, s, c):
        return And(s.leased(c), s.clock(c) < s.word(c))

    def kept(self, s, c, time, strictly=False):
        """For so long the server keeps the key for this claim, or, if it was the last to hold,
        from all others."""
        left = If(s.held, s.end, s.shut) - s.server
        return And(s.holder == c, left > time if strictly else left >= time)

    def left_of(self, s, a):
        """What is left of a grant by its claim's clock, as far as the claim may count on it."""
        full = self.full(s.to(a))
        return If(s.ttl(a) <= full, s.ttl(a), full) - (s.clock(s.to(a)) - s.since(a))

    def invariant(self, s):
        left = lambda a: self.left_of(s, a)
        lease_left = lambda c: s.word(c) - s.clock(c) + self.slack
        return {
            "answers are kept": self.all("Answer", lambda a: Implies(
                And(s.done(a), s.grants(a), Not(s.ended(s.to(a))), left(a) > self.early),
                self.kept(s, s.to(a), left(a)))),
            "leases are kept": self.all("Claim", lambda c: Implies(
                self.is_live(s, c), self.kept(s, c, lease_left(c)))),
            "requests are from the past": self.all("Request", lambda r: Implies(
                s.sent(r), s.sent_at(r) <= s.clock(self.of(r)))),
            "answers are from the past": self.all("Answer", lambda a: Implies(
                s.done(a), s.since(a) <= s.clock(s.to(a)))),
            "no lease is longer than its ttl": self.all("Claim", lambda c: Implies(
                s.leased(c), lease_left(c) <= self.full(c))),
            "whoever releases has ended": self.all("Request", lambda r: Implies(
                And(s.sent(r), self.kind(r) == RELEASE), s.ended(self.of(r)))),
            "whoever has ended has no lease": self.all("Claim", lambda c: Implies(
                s.ended(c), Not(s.leased(c)))),
        }

    def claims(self, s):
        return {
            "kept": self.all("Claim", lambda c: Implies(
                self.is_live(s, c), self.kept(s, c, self.early, strictly=True))),
            "exclusion": self.all("Claim Claim", lambda c, d: Implies(
                And(self.is_live(s, c), self.is_live(s, d)), c == d)),
        }

    # For runs: a TTL of 10 s, and clocks that differ by no more than they may.

    def scene(self, s):
        ttl = TTL if self.has("counts_granted_ttl") else TTL / 2
        cast = [And(self.of(r) == self.members["Claim"][who], self.kind(r) == DOES[what])
                for r, (who, what) in zip(self.members["Request"].values(), self.cast)]
        same = self.all("Claim", lambda c: And(
            self.full(c) == ttl, self.asked(c) == TTL, s.clock(c) == 0, s.word(c) == 0))
        return And(self.early == GRANULARITY, self.slack == SLACK, self.longest == TTL,
                   s.shut == 0, s.server == 100 / SERVER, same, *cast)

    def realistic(self, s, p):
        """The server's clock is as fast, and those of the claims are as slow, as they may be. Or
        the server's is set back."""
        moved = p.server_Real - s.server
        back = NO if self.has("proof_is_cut") else moved == -30 / SERVER
        return And(p.dt_Real >= Q(1, 1000), Or(moved == p.dt_Real, back), self.all(
            "Claim", lambda c: p.f_Claim_Real(c) - s.clock(c) == p.dt_Real))

    def ending(self, m, s):
        says = [f"{name}'s clock shows {at(m, s.clock(c))}, its lease ends at {at(m, s.word(c))}"
                for name, c in self.members["Claim"].items() if name in "AB"]
        return "; ".join(says) + f"; the server keeps the key until {on_server(m, s.end)}"

    def describe(self, m, s, name, p):
        r, a = p.r_Request, p.a_Answer
        who = lambda: name_of(m, self.of(r))
        to, word = lambda: name_of(m, s.to(a)), lambda: at(m, s.word(s.to(a)))
        clocks = lambda: ", ".join(f"{n}'s {at(m, s.clock(c))}"
                                   for n, c in self.members["Claim"].items())
        other = lambda: (f"the server executes {who()}'s {name_of(m, r)} ({name[7:]}): "
                         f"{name_of(m, s.holder)} holds until {on_server(m, s.end)}, the answer "
                         f"{name_of(m, a)} says {on_server(m, s.ttl(a))} s")
        return {
            "time_passes": lambda: f"{number_of(m, p.dt_Real):.3f} s pass; the server's clock "
                                   f"shows {on_server(m, s.server)}, {clocks()}",
            "client_sends": lambda: f"{who()} sends {name_of(m, r)} at {at(m, s.sent_at(r))}",
            "client_takes_the_grant": lambda: f"{to()} receives {name_of(m, a)}: its lease ends "
                                              f"at {word()} of its clock",
            "client_takes_the_renewal": lambda: f"{to()} receives {name_of(m, a)}: its lease "
                                                f"ends at {word()} of its clock",
            "client_ends": lambda: f"{name_of(m, p.c_Claim)} ends",
            "client_releases": lambda: f"{who()} sends its release {name_of(m, r)}",
            "server_releases": lambda: f"the server executes {who()}'s release: the key is free",
            "server_forgets": lambda: "the server restarts without its locks",
            "server_revokes": lambda: "an operator revokes the hold",
        }.get(name, other)()


def at(m, time):
    """Seconds of a claim's clock."""
    return f"{number_of(m, time * LOCAL):.3f}"


def on_server(m, time):
    return f"{number_of(m, time * SERVER):.3f}"


def renewed_then_another(system, s):
    a, b = system.members["Claim"].values()
    return And(system.is_live(s, b), s.ended(a), s.word(a) > TTL)


TWO = "A acquires, B acquires"
CHECKS = [
    Proved("a lease is live only while its server keeps the key", Leases),
    Proved("the same, if a late renewal revived a lapsed lease", Leases, ("renews_a_live_lease",)),
    Seen("one renews and ends, another holds", Leases,
         "A acquires, A renews, B acquires, A releases", renewed_then_another, 10),
    Broken("counts_from_sending", Leases, TWO, "exclusion", 7),
    Broken("allows_for_drift", Leases, TWO, "exclusion", 7),
    Broken("counts_granted_ttl", Leases, TWO, "exclusion", 7),
    Broken("takes_off_granularity", Leases, TWO, "exclusion", 7),
    Broken("release_compares", Leases, "A acquires, C releases, B acquires", "exclusion", 8),
    Broken("renewal_compares", Leases, "A acquires, A renews, B acquires", "kept", 9),
    Broken("lost_before_release", Leases, "A acquires, A releases, B acquires", "exclusion", 8),
    Broken("quarantine", Leases, TWO, "exclusion", 7),
    Broken("revoked_after_its_ttl", Leases, TWO, "exclusion", 7),
    Broken("proof_is_cut", Leases, "A acquires, A renews", "kept", 8),
]
