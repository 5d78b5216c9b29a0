"""A quorum of members: exclusion, and tokens that grow and are never equal.

Each member is a server of `leases.py`: it frees the key of a claim only when the claim's lease is
over, or when the claim has given up. An attempt of a claim is a claim of its own here: it has an
owner token of its own.
"""

from z3 import And, ForAll, Const, BoolSort, DeclareSort, Function, If, Implies, Not, Or

from engine import NO, YES, System, name_of
from report import Broken, Facts, Proved, Seen

RULES = """
two_majorities_meet: Two majorities have a member in common.
    src/store/quorum/vote_count.rs: members / 2 + 1
    mutant: quorum-takes-a-minority
confirmed: A token is confirmed by a majority before its guard is handed out.
    src/store/quorum/vote_count.rs: } else if counted.token >= agreed.token {
    mutant: quorum-token-is-not-confirmed
live_at_its_guard: A guard is handed out under a live lease only.
    src/manager/claim.rs: if let Err(error) = lease.ensure(settings.min_usable) {
    mutant: manager-hands-out-a-dying-lease
"""


class Quorum(System):
    sorts = ("Claim", "Member", "Majority")
    variables = {
        # Each member: its counter, and who holds the key there.
        "counter": (("Member",), "Int"), "held": (("Member",), "Bool"),
        "holder": (("Member",), "Claim"),
        # Each vote: whether it was given, with which number, and whether the member has taken the
        # claim's token since.
        "given": (("Claim", "Member"), "Bool"), "number": (("Claim", "Member"), "Int"),
        "raised": (("Claim", "Member"), "Bool"),
        # Each claim, and the majorities that voted for it and that confirmed its token.
        "over": (("Claim",), "Bool"), "won": (("Claim",), "Bool"), "guard": (("Claim",), "Bool"),
        "token": (("Claim",), "Int"),
        "voters": (("Claim",), "Majority"), "witnesses": (("Claim",), "Majority"),
    }
    rules = ("two_majorities_meet", "confirmed", "live_at_its_guard")

    @property
    def left_out(self):
        return () if self.has("confirmed") else ("member_raises",)

    def __init__(self, sizes=None, without=()):
        super().__init__(sizes, without)
        sort = self.sort
        self.of = Function("in", sort["Majority"], sort["Member"], BoolSort())
        self.common = Function("common", sort["Majority"], sort["Majority"], sort["Member"])

    def rigid(self):
        """All that is used about majorities."""
        if not self.has("two_majorities_meet"):
            return YES
        return self.all("Majority Majority", lambda q, r: And(
            self.of(q, self.common(q, r)), self.of(r, self.common(q, r))))

    def steps(self):
        def each(p, what):
            """That this is true of each member of a majority."""
            return self.all("Member", lambda m: Implies(self.of(p.q_Majority, m), what(m)))

        def member_votes(s, p):
            c, m = p.c_Claim, p.m_Member
            return (And(Not(s.given(c, m)), Not(s.held(m)), p.t_Int > s.counter(m)),
                    {"given": {(c, m): YES}, "number": {(c, m): p.t_Int}, "counter": {m: p.t_Int},
                     "held": {m: YES}, "holder": {m: c}})

        def claim_is_over(s, p):
            return YES, {"over": {p.c_Claim: YES}}

        def member_frees(s, p):
            m = p.m_Member
            return And(s.held(m), s.over(s.holder(m))), {"held": {m: NO}}

        def claim_wins(s, p):
            c = p.c_Claim
            votes = each(p, lambda m: And(s.given(c, m), s.number(c, m) <= p.t_Int))
            return (And(Not(s.won(c)), votes),
                    {"won": {c: YES}, "token": {c: p.t_Int}, "voters": {c: p.q_Majority}})

        def member_raises(s, p):
            c, m = p.c_Claim, p.m_Member
            # The code compares the holder. That is not needed for this.
            more = s.token(c) > s.counter(m)
            return (And(s.won(c), s.given(c, m)),
                    {"counter": {m: If(more, s.token(c), s.counter(m))}, "raised": {(c, m): YES}})

        def claim_gets_its_guard(s, p):
            c = p.c_Claim
            ready = each(p, lambda m: self.confirms(s, c, m)) if self.has("confirmed") else YES
            live = Not(s.over(c)) if self.has("live_at_its_guard") else YES
            return (And(s.won(c), ready, live, Not(s.guard(c))),
                    {"guard": {c: YES}, "witnesses": {c: p.q_Majority}})

        return {step.__name__: step for step in (
            member_votes, claim_is_over, member_frees, claim_wins, member_raises,
            claim_gets_its_guard)}

    def first(self, s):
        return And(
            self.all("Member", lambda m: And(s.counter(m) >= 0, Not(s.held(m)))),
            self.all("Claim Member", lambda c, m: And(Not(s.given(c, m)), Not(s.raised(c, m)))),
            self.all("Claim", lambda c: And(Not(s.over(c)), Not(s.won(c)), Not(s.guard(c)))))

    def confirms(self, s, c, m):
        """That the claim's token is one that this member knows: it gave it or a larger one with
        its vote, or took it later."""
        return And(s.given(c, m), Or(s.number(c, m) >= s.token(c), s.raised(c, m)))

    def invariant(self, s):
        later = lambda c, d, m: And(s.given(c, m), s.given(d, m), s.number(d, m) > s.number(c, m))
        return {
            "a live claim keeps its votes": self.all("Claim Member", lambda c, m: Implies(
                And(s.given(c, m), Not(s.over(c))), And(s.held(m), s.holder(m) == c))),
            "a holder has voted last": self.all("Claim Member", lambda c, m: And(
                Implies(s.held(m), s.given(s.holder(m), m)),
                Implies(And(s.held(m), s.given(c, m)),
                        s.number(c, m) <= s.number(s.holder(m), m)))),
            "a counter counts its votes": self.all("Claim Member", lambda c, m: Implies(
                s.given(c, m), s.number(c, m) <= s.counter(m))),
            "numbers are given once": self.all("Claim Claim Member", lambda c, d, m: Implies(
                And(s.given(c, m), s.given(d, m), s.number(c, m) == s.number(d, m)), c == d)),
            "whoever is before is over": self.all("Claim Claim Member", lambda c, d, m: Implies(
                later(c, d, m), s.over(c))),
            "a raised token is known": self.all("Claim Member", lambda c, m: Implies(
                s.raised(c, m), And(s.won(c), s.counter(m) >= s.token(c)))),
            "later votes are larger": self.all("Claim Claim Member", lambda c, d, m: Implies(
                And(s.guard(c), self.of(s.witnesses(c), m), later(c, d, m)),
                s.number(d, m) > s.token(c))),
            "a winner's token is no smaller than its votes": self.all(
                "Claim Member", lambda c, m: Implies(
                    And(s.won(c), self.of(s.voters(c), m)),
                    And(s.given(c, m), s.number(c, m) <= s.token(c)))),
            "a guard's token is confirmed": self.all("Claim Member", lambda c, m: Implies(
                And(s.guard(c), self.of(s.witnesses(c), m)),
                And(s.won(c), self.confirms(s, c, m)))),
            **self.claims(s),
        }

    def moves(self, before, after):
        # Whoever gets a guard has a larger token than all that have one.
        new = lambda d: And(after.guard(d), Not(before.guard(d)))
        return {"tokens grow": self.all("Claim Claim", lambda c, d: Implies(
            And(before.guard(c), new(d)), after.token(d) > before.token(c)))}

    def claims(self, s):
        return {"unique": self.all("Claim Claim", lambda c, d: Implies(
            And(s.guard(c), s.guard(d), s.token(c) == s.token(d)), c == d))}

    def scene(self, s):
        members = list(self.members["Member"].values())
        three = [members[:2], members[1:], members[::2]]
        if not self.has("two_majorities_meet"):
            three = [[each] for each in members]
        return And(self.all("Member", lambda m: s.counter(m) == 0), *(
            self.of(q, m) == (YES if any(m is x for x in some) else NO)
            for q, some in zip(self.members["Majority"].values(), three) for m in members))

    def realistic(self, s, p):
        return p.t_Int <= 5

    def describe(self, m, s, name, p):
        c, who = p.c_Claim, name_of(m, p.c_Claim)
        member = name_of(m, p.m_Member)
        return {
            "member_votes": f"{member} votes for {who}: {m.eval(s.number(c, p.m_Member))}",
            "claim_is_over": f"{who}'s lease is over",
            "member_frees": f"{member} frees the key",
            "claim_wins": f"{who} has a majority: token {m.eval(s.token(c))}",
            "member_raises": f"{member} takes the token of {who}",
            "claim_gets_its_guard": f"{who} gets its guard, with token {m.eval(s.token(c))}",
        }[name]


def exclusion(_):
    """`leases.py` of each member gives exclusion of a majority: no further steps are needed."""
    claim, member, majority = (DeclareSort(name) for name in ("Claim", "Member", "Majority"))
    of = Function("in", majority, member, BoolSort())
    common = Function("common", majority, majority, member)
    counts_on = Function("counts_on", claim, member, BoolSort())    # by a vote that is live
    holder = Function("holder", member, claim)
    q, r, m = Const("q", majority), Const("r", majority), Const("m", member)
    c, d = Const("c", claim), Const("d", claim)
    yield "exclusion", [
        ForAll([q, r], And(of(q, common(q, r)), of(r, common(q, r)))),
        ForAll([c, m], Implies(counts_on(c, m), holder(m) == c)),
        ForAll([m], Implies(of(q, m), counts_on(c, m))),
        ForAll([m], Implies(of(r, m), counts_on(d, m)))], c == d


def both_guard(system, s):
    return And([s.guard(c) for c in system.members["Claim"].values()])


ONE = {"Claim": 1, "Member": 3, "Majority": 3}
TWO = {"Claim": 2, "Member": 3, "Majority": 3}
CHECKS = [
    Proved("tokens of a quorum grow, and are never equal", Quorum),
    Facts("exclusion at each member gives exclusion at a majority", exclusion),
    Seen("a claim gets its guard", Quorum, ONE, both_guard, 5),
    Broken("two_majorities_meet", Quorum, TWO, "unique", 6),
    Broken("confirmed", Quorum, TWO, "unique", 12),
    Broken("live_at_its_guard", Quorum, TWO, "unique", 15),
]
