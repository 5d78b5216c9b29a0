"""Shards: at most one owner each, whatever the members believe about who takes part.

The members may disagree about who takes part and whose each shard is: here each of them wants any
shards at any time. An owner is whoever holds the lock of the shard. A *tenure* is the time of one
owner of one shard. Members, shards and tenures are any number of each.
"""

from z3 import And, Function, Implies, Not, Or

from engine import NO, YES, System, is_true_of, name_of
from report import Broken, Proved, Seen

RULES = """
granted_where_free: A shard is granted while nobody else holds it.
    src/redis/store/scripts/acquire.lua: elseif holder and string.sub(holder, 1, 32) == owner then
    mutant: redis-handover-is-free-for-all
fence_is_raised: The fence of a shard is raised before its work begins.
    src/recipes/shards/mod.rs: Some(fence) => lock.behind(Arc::clone(fence)),
    mutant: shard-fence-is-not-raised
work_ends_with_its_lease: The work is dropped once it is known that the lease is over.
    src/recipes/shards/shard.rs: _ = guard.lost() => Worked::Lost,
    mutant: shard-work-outlives-its-lease
released_with_its_work: A shard is not held on when its work has ended.
    src/recipes/shards/shard.rs: self.0.end_in_background();
    mutant: shard-that-was-given-away-outlives-its-member
"""


class Shards(System):
    sorts = ("Member", "Shard", "Tenure")
    variables = {
        "wants": (("Member", "Shard"), "Bool"),
        # Each shard: the newest token, the fence of its resource, whether that has applied a write
        # of a former owner after the next one's work began.
        "newest": (("Shard",), "Int"), "fence": (("Shard",), "Int"), "stale": (("Shard",), "Bool"),
        # Each tenure.
        "granted": (("Tenure",), "Bool"), "token": (("Tenure",), "Int"),
        "live": (("Tenure",), "Bool"), "works": (("Tenure",), "Bool"),
        "began": (("Tenure",), "Bool"), "writes": (("Tenure",), "Bool"),
        "knows": (("Tenure",), "Bool"),
    }
    used_in_order = ("granted",)
    rules = ("granted_where_free", "fence_is_raised", "work_ends_with_its_lease",
             "released_with_its_work")

    def __init__(self, sizes=None, without=()):
        super().__init__(sizes, without)
        sort = self.sort
        self.owner = Function("owner", sort["Tenure"], sort["Member"])
        self.shard = Function("shard", sort["Tenure"], sort["Shard"])

    def steps(self):
        def member_changes_its_mind(s, p):
            return YES, {"wants": p.f_Member_Shard_Bool}

        def store_grants(s, p):
            # `leases.py`: not while another lease of the lock is live.
            t = p.t_Tenure
            shard = self.shard(t)
            free = self.all("Tenure", lambda u: Implies(self.shard(u) == shard, Not(s.live(u))))
            free = free if self.has("granted_where_free") else YES
            return (And(Not(s.granted(t)), s.wants(self.owner(t), shard), free,
                        p.n_Int > s.newest(shard)),
                    {"granted": {t: YES}, "live": {t: YES}, "token": {t: p.n_Int},
                     "newest": {shard: p.n_Int}})

        def work_begins(s, p):
            # With its guard, which it gets after the fence was raised.
            t = p.t_Tenure
            shard, raises = self.shard(t), {}
            admitted = YES
            if self.has("fence_is_raised"):
                admitted, raises = s.token(t) >= s.fence(shard), {"fence": {shard: s.token(t)}}
            return (And(s.granted(t), Not(s.began(t)), Not(s.knows(t)), s.live(t), admitted),
                    {"began": {t: YES}, "works": {t: YES}, **raises})

        def work_writes(s, p):
            return s.works(p.t_Tenure), {"writes": {p.t_Tenure: YES}}

        def resource_applies(s, p):
            t = p.t_Tenure
            shard = self.shard(t)
            is_stale = Not(self.all("Tenure", lambda u: Implies(
                And(self.shard(u) == shard, s.began(u)), s.token(u) <= s.token(t))))
            return (And(s.writes(t), s.token(t) >= s.fence(shard)),
                    {"stale": {shard: Or(s.stale(shard), is_stale)}, "fence": {shard: s.token(t)}})

        def lease_ends(s, p):
            return s.live(p.t_Tenure), {"live": {p.t_Tenure: NO}}

        def member_learns_it(s, p):
            t = p.t_Tenure
            stops = {"works": {t: NO}} if self.has("work_ends_with_its_lease") else {}
            return And(s.granted(t), Not(s.live(t))), {"knows": {t: YES}, **stops}

        def work_ends(s, p):
            t = p.t_Tenure
            ends = {"live": {t: NO}} if self.has("released_with_its_work") else {}
            return s.works(t), {"works": {t: NO}, **ends}

        return {step.__name__: step for step in (
            member_changes_its_mind, store_grants, work_begins, work_writes, resource_applies,
            lease_ends, member_learns_it, work_ends)}

    def first(self, s):
        return And(
            self.all("Shard", lambda x: And(s.newest(x) == 0, s.fence(x) == 0, Not(s.stale(x)))),
            self.all("Tenure", lambda t: And(
                Not(s.granted(t)), Not(s.live(t)), Not(s.works(t)), Not(s.began(t)),
                Not(s.writes(t)), Not(s.knows(t)))))

    def invariant(self, s):
        return {
            "what happens was granted": self.all("Tenure", lambda t: And(
                Implies(Or(s.live(t), s.began(t), s.works(t), s.writes(t), s.knows(t)),
                        s.granted(t)),
                Implies(Or(s.works(t), s.writes(t)), s.began(t)),
                Implies(s.granted(t), s.token(t) <= s.newest(self.shard(t))))),
            "the fence is as high as each work": self.all("Tenure", lambda t: Implies(
                s.began(t), s.token(t) <= s.fence(self.shard(t)))),
            "whoever knows it has no lease": self.all("Tenure", lambda t: Implies(
                s.knows(t), Not(s.live(t)))),
            **self.claims(s),
        }

    def claims(self, s):
        return {
            "one owner": self.all("Tenure Tenure", lambda t, u: Implies(
                And(s.live(t), s.live(u), self.shard(t) == self.shard(u)), t == u)),
            "no stale write": self.all("Shard", lambda x: Not(s.stale(x))),
            "no work without a lease": self.all("Tenure", lambda t: Not(
                And(s.works(t), s.knows(t)))),
            "no owner without work": self.all("Tenure", lambda t: Implies(
                And(s.began(t), s.live(t)), s.works(t))),
        }

    def realistic(self, s, p):
        return p.n_Int <= 3

    def describe(self, m, s, name, p):
        t = p.t_Tenure
        if name == "member_changes_its_mind":
            return "the members want other shards"
        stale = "; it is stale" if is_true_of(m, s.stale(self.shard(t))) else ""
        return (f"{name.replace('_', ' ')} ({name_of(m, self.owner(t))}, token "
                f"{m.eval(s.token(t), model_completion=True)}){stale}")


def two_have_worked(system, s):
    return And([s.began(t) for t in system.members["Tenure"].values()])


WORLD = {"Member": 2, "Shard": 1, "Tenure": 2}
CHECKS = [
    Proved("a shard has one owner at most, and its writes are in order", Shards),
    Seen("one owner follows the other", Shards, WORLD, two_have_worked, 6),
    Broken("granted_where_free", Shards, WORLD, "one owner", 3),
    Broken("fence_is_raised", Shards, WORLD, "no stale write", 7),
    Broken("work_ends_with_its_lease", Shards, WORLD, "no work without a lease", 4),
    Broken("released_with_its_work", Shards, WORLD, "no owner without work", 3),
]
