"""Tokens and a fence (I8): no stale write is applied, however late it arrives.

A write is stale if a later grant's holder has read before it is applied. Time plays no part here:
what a fence refuses, it refuses at any time.
"""

from z3 import And, If, Implies, Not, Or

from engine import NO, YES, System, is_true_of, name_of
from report import Broken, Proved, Seen

RULES = """
fence_compares: The resource refuses a token smaller than its fence.
    src/fence/gate.rs: self.rule.admits(lock.token, seen.token)?;
    mutant: gate-compares-one-of-several-tokens
    src/postgres/fence/mod.rs: if seen > token {
    mutant: sql-raise-below-a-newer-holder
raised_before_the_guard: The fence is raised before the caller gets its guard.
    src/recipes/shards/mod.rs: Some(fence) => lock.behind(Arc::clone(fence)),
    mutant: shard-fence-is-not-raised
grants_a_new_token: A claim whose hold is over is granted under a new token.
    src/redis/store/scripts/acquire.lua: if ends and grant and tonumber(ends) > now then
    mutant: redis-reader-is-granted-its-old-token
restart_remembers: Tokens go on after a restart or the loss of their counter.
    src/store/memory.rs: FencingToken::new((*last + 1).max(Line::micros(now)))?;
    mutant: memory-tokens-start-again
    src/redis/store/scripts/acquire.lua: local number = string.format('%.0f', math.max(redis.call('INCR', token), us))
    mutant: redis-lost-counter-grants
one_holder_for_a_token: Under a fence a grant is not handed off to another holder.
    src/manager/wish.rs: self.may_hand_off && self.fence.is_none()
    mutant: hold-is-handed-off-under-a-fence
    src/manager/handoff.rs: if !origin.allows_handoff || !context
    mutant: hold-with-a-fence-is-handed-off
"""


class Fence(System):
    sorts = ("Grant",)
    variables = {
        # The store: how many holders there were, and the newest token.
        "count": ((), "Int"), "newest": ((), "Int"),
        # Each holder of a grant: as which it came, with which token, and what it has done.
        "made": (("Grant",), "Bool"), "number": (("Grant",), "Int"), "token": (("Grant",), "Int"),
        "raised": (("Grant",), "Bool"), "guard": (("Grant",), "Bool"),
        "asks": (("Grant",), "Bool"), "writes": (("Grant",), "Bool"),
        # The resource: its fence, whose reads it has served, whether it applied a stale write.
        "fence": ((), "Int"), "read": (("Grant",), "Bool"), "stale": ((), "Bool"),
    }
    used_in_order = ("made",)
    rules = ("fence_compares", "raised_before_the_guard", "grants_a_new_token",
             "restart_remembers", "one_holder_for_a_token")

    def steps(self):
        def made(s, p, token):
            g = p.g_Grant
            return {"made": {g: YES}, "number": {g: s.count + 1}, "token": {g: token},
                    "count": s.count + 1, "newest": If(token > s.newest, token, s.newest)}

        def store_grants(s, p):
            return And(Not(s.made(p.g_Grant)), p.t_Int > s.newest), made(s, p, p.t_Int)

        def store_grants_a_repeated_request(s, p):
            # The claim of a grant `h` that is over asks again, or a copy of its request arrives.
            new = p.t_Int > s.newest
            if not self.has("grants_a_new_token"):
                new = p.t_Int == s.token(p.h_Grant)
            return And(s.made(p.h_Grant), Not(s.made(p.g_Grant)), new), made(s, p, p.t_Int)

        def holder_hands_off(s, p):
            # To another holder of its process, with its token.
            g, h = p.g_Grant, p.h_Grant
            return And(s.guard(h), Not(s.made(g))), {**made(s, p, s.token(h)), "raised": {g: YES}}

        def store_restarts(s, p):
            grows = p.t_Int >= s.newest if self.has("restart_remembers") else p.t_Int == 0
            return grows, {"newest": p.t_Int}

        def fence_is_raised(s, p):
            # A smaller token is refused, and its holder never gets its guard.
            g = p.g_Grant
            return (And(s.made(g), s.token(g) >= s.fence),
                    {"fence": s.token(g), "raised": {g: YES}})

        def holder_gets_its_guard(s, p):
            g = p.g_Grant
            raised = s.raised(g) if self.has("raised_before_the_guard") else YES
            return And(s.made(g), raised), {"guard": {g: YES}}

        def reader_gets_its_guard(s, p):
            # A reader beside it with a larger token has raised the fence: it does not write.
            g = p.g_Grant
            return And(s.made(g), s.token(g) < s.fence), {"guard": {g: YES}}

        def holder_asks(s, p):
            return s.guard(p.g_Grant), {"asks": {p.g_Grant: YES}}

        def holder_writes(s, p):
            return s.guard(p.g_Grant), {"writes": {p.g_Grant: YES}}

        def resource_answers_the_read(s, p):
            return s.asks(p.g_Grant), {"read": {p.g_Grant: YES}}

        def resource_applies_the_write(s, p):
            g = p.g_Grant
            is_stale = Not(self.all("Grant", lambda h: Implies(
                s.read(h), s.number(h) <= s.number(g))))
            admits, fence = YES, s.fence
            if self.has("fence_compares"):
                admits, fence = s.token(g) >= s.fence, s.token(g)
            return And(s.writes(g), admits), {"stale": Or(s.stale, is_stale), "fence": fence}

        steps = [store_grants, store_grants_a_repeated_request, store_restarts, fence_is_raised,
                 holder_gets_its_guard, reader_gets_its_guard, holder_asks, holder_writes,
                 resource_answers_the_read, resource_applies_the_write]
        if not self.has("one_holder_for_a_token"):
            steps.append(holder_hands_off)
        return {step.__name__: step for step in steps}

    def first(self, s):
        return And(s.count == 0, s.newest == 0, s.fence == 0, Not(s.stale), self.all(
            "Grant", lambda g: And(Not(s.made(g)), Not(s.raised(g)), Not(s.guard(g)),
                                   Not(s.asks(g)), Not(s.writes(g)), Not(s.read(g)))))

    def invariant(self, s):
        return {
            "tokens grow": self.claims(s)["tokens grow"],
            "the store knows the newest": self.all("Grant", lambda g: Implies(
                s.made(g), And(s.token(g) <= s.newest, s.number(g) <= s.count))),
            "only holders act": self.all("Grant", lambda g: And(
                Implies(Or(s.raised(g), s.guard(g), s.writes(g)), s.made(g)),
                Implies(Or(s.read(g), s.asks(g)), s.guard(g)))),
            "the fence is as high as every guard": self.all("Grant", lambda g: Implies(
                Or(s.raised(g), s.guard(g)), s.token(g) <= s.fence)),
            "no stale write": Not(s.stale),
        }

    def moves(self, before, after):
        return {"the fence only rises": after.fence >= before.fence,
                "the newest token only grows": after.newest >= before.newest}

    def claims(self, s):
        grow = self.all("Grant Grant", lambda g, h: Implies(
            And(s.made(g), s.made(h), s.number(g) < s.number(h)), s.token(g) < s.token(h)))
        return {"tokens grow": grow, "no stale write": Not(s.stale)}

    def realistic(self, s, p):
        return p.t_Int <= s.newest + 1

    def describe(self, m, s, name, p):
        g = p.g_Grant
        who = f"{name_of(m, g)} (token {m.eval(s.token(g))})"
        stale = "; it is stale" if is_true_of(m, s.stale) else ""
        return {
            "store_grants": f"the store grants to {who}",
            "store_grants_a_repeated_request": f"the store executes the request of "
                f"{name_of(m, p.h_Grant)} again, after its end: it grants to {who}",
            "store_restarts": f"the store restarts; its newest token is {m.eval(s.newest)}",
            "holder_hands_off": f"{name_of(m, p.h_Grant)} hands its grant off to {who}",
            "fence_is_raised": f"the fence is raised for {who}",
            "holder_gets_its_guard": f"{who} gets its guard",
            "reader_gets_its_guard": f"{who}, a reader, gets its guard",
            "holder_asks": f"{who} asks for the value",
            "holder_writes": f"{who} sends a write",
            "resource_answers_the_read": f"the resource answers the read of {who}",
            "resource_applies_the_write": f"the resource applies the write of {who}{stale}",
        }[name]


def both_read(system, s):
    return And([s.read(g) for g in system.members["Grant"].values()])


TWO = {"Grant": 2}
CHECKS = [
    Proved("tokens grow, and no stale write is applied", Fence),
    Seen("two holders read, one after the other", Fence, TWO, both_read, 10),
    Broken("fence_compares", Fence, TWO, "no stale write", 10),
    Broken("raised_before_the_guard", Fence, TWO, "no stale write", 8),
    Broken("grants_a_new_token", Fence, TWO, "no stale write", 10),
    Broken("restart_remembers", Fence, TWO, "no stale write", 11),
    Broken("one_holder_for_a_token", Fence, TWO, "no stale write", 9),
]
