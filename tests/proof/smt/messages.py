"""Grants by message: a server on Redis gives a lock to the next claim in line, and says so.

The message names the server's time. The claim compares it with an earlier answer of the same
server, and so knows for how long after its *request* the grant came at most. All of `leases.py`
goes on beside it. A server that restarts without its locks may come back with any time: it may be
another machine.
"""

from z3 import And, If, Implies, Not, Or

from engine import NO, YES, name_of
from leases import ACQUIRE, SERVER, Leases, at, on_server
from report import Broken, Proved, Seen

RULES = """
counts_from_the_request: A grant by message counts from the request that was answered.
    src/redis/store/message.rs: between.min(passed) + call, self.sent_at
    mutant: redis-message-proof-counts-from-its-arrival
counts_the_time_of_a_call: A grant by message counts no more than the server keeps for it.
    src/redis/store/message.rs: CALL.min(max_ttl).min(ttl)
    mutant: redis-call-outlives-the-longest-ttl
kept_from_the_time_it_says: The server keeps the key from the time that the message says.
    src/redis/store/scripts/line.lua: redis.call('PEXPIREAT', lock, whole(ends))
    mutant: redis-message-grant-lasts-by-a-ttl
of_the_same_mark: A message is compared with an answer under the same mark.
    src/redis/store/message.rs: if message.mark != self.mark.text || message.token <= self.last {
    mutant: redis-message-of-another-mark-is-believed
newer_than_the_answer: A message about a grant from before the answer proves nothing.
    src/redis/store/message.rs: if message.mark != self.mark.text || message.token <= self.last {
    mutant: redis-message-with-an-old-token-is-believed
"""


class Messages(Leases):
    variables = {
        **Leases.variables,
        # The server's mark, and its newest token.
        "mark": ((), "Int"), "newest": ((), "Int"),
        # Of each answer: the server's time, mark and token then; whether it is a message.
        "at": (("Answer",), "Real"), "under": (("Answer",), "Int"), "token": (("Answer",), "Int"),
        "is_call": (("Answer",), "Bool"),
    }
    rules = Leases.rules + (
        "counts_from_the_request", "counts_the_time_of_a_call", "kept_from_the_time_it_says",
        "of_the_same_mark", "newer_than_the_answer")

    @property
    def left_out(self):
        other = ("server_grants", "client_takes_the_grant")
        forgets = ("server_forgets",) if self.has("of_the_same_mark") else other
        return ["server_repeats", "server_says_what_is_left", "server_renews", "server_revokes",
                "server_releases", "client_ends", "client_releases", "client_takes_the_renewal",
                *forgets]

    def sizes_of(self, sizes):
        return {**sizes, "Answer": sizes["Request"] + 1}

    def answer(self, s, p, claim, since, ttl, grants=YES):
        a = p.a_Answer
        return {**super().answer(s, p, claim, since, ttl, grants), "at": {a: s.server},
                "under": {a: s.mark}, "token": {a: s.newest}, "is_call": {a: NO}}

    def granted(self, s, p, claim, ttl):
        updates = super().granted(s, p, claim, ttl)
        new = s.newest + 1
        return {**updates, "token": {p.a_Answer: new}, "newest": new}

    def forgotten(self, s, p):
        # Perhaps with another clock: nothing that was said by the old one counts any more.
        there = p.there_Real
        until = there + self.longest
        later = there + If(s.held, s.end, s.shut) - s.server
        until = If(until > later, until, later)
        return YES, {"held": NO, "server": there, "shut": until, "mark": s.mark + 1}

    def steps(self):
        def server_calls(s, p):
            # The lock is free, and this claim has asked. It holds for `h` from now on. Without
            # the rule the script took up to a second until it set the key's end.
            c, h = self.of(p.r_Request), p.h_Real
            since = s.sent_at(p.r_Request)
            grant = {**self.answer(s, p, c, since, h), "token": {p.a_Answer: s.newest + 1}}
            said = s.server
            if not self.has("kept_from_the_time_it_says"):
                said = s.server + 1 / SERVER
            return (And(s.sent(p.r_Request), self.kind(p.r_Request) == ACQUIRE,
                        Not(s.done(p.a_Answer)), self.is_free(s), h > 0, h <= self.full(c)),
                    {**grant, "held": YES, "holder": c, "end": s.server + h,
                     "newest": s.newest + 1, "is_call": {p.a_Answer: YES},
                     "at": {p.a_Answer: said}})

        def client_takes_the_message(s, p):
            a, b = p.a_Answer, p.b_Answer
            c = s.to(a)
            between, passed = s.at(a) - s.at(b), s.clock(c) - s.since(b)
            call = s.ttl(a) if self.has("counts_the_time_of_a_call") else self.full(c)
            start = s.since(b) if self.has("counts_from_the_request") else s.clock(c)
            ttl = If(between <= passed, between, passed) + call
            full = self.full(c)
            believed = [
                s.done(a), s.is_call(a), s.done(b), Not(s.is_call(b)), Not(s.grants(b)),
                s.to(b) == c, Not(s.ended(c)), Not(s.leased(c)), between >= 0]
            if self.has("of_the_same_mark"):
                believed.append(s.under(a) == s.under(b))
            if self.has("newer_than_the_answer"):
                believed.append(s.token(a) > s.token(b))
            return (And(believed),
                    {"leased": {c: YES}, "word": {c: start + self.usable(c, ttl)}})

        steps = super().steps()
        grant, renewal = steps["client_takes_the_grant"], steps["client_takes_the_renewal"]

        def only_answers(step):
            def guarded(s, p):
                guard, updates = step(s, p)
                return And(guard, Not(s.is_call(p.a_Answer))), updates
            return guarded

        return {**steps, "client_takes_the_grant": only_answers(grant),
                "client_takes_the_renewal": only_answers(renewal),
                "server_calls": server_calls,
                "client_takes_the_message": client_takes_the_message}

    def first(self, s):
        return And(super().first(s), s.newest == 0, s.mark == 0)

    def invariant(self, s):
        parts = super().invariant(s)
        del parts["answers are kept"]
        left, lease = self.left_of, parts
        plain = lambda a: And(s.done(a), s.grants(a), Not(s.is_call(a)), Not(s.ended(s.to(a))))

        def left_of_call(a, b):
            """What a message proves together with an answer."""
            return s.at(a) - s.at(b) + s.ttl(a) - (s.clock(s.to(a)) - s.since(b))

        def matched(a, b):
            return And(s.done(a), s.is_call(a), s.done(b), Not(s.is_call(b)), Not(s.grants(b)),
                       s.to(a) == s.to(b), s.under(a) == s.under(b), s.token(a) > s.token(b),
                       Not(s.ended(s.to(a))))
        return {
            **lease,
            "answers are kept": self.all("Answer", lambda a: Implies(
                And(plain(a), left(s, a) > self.early), self.kept(s, s.to(a), left(s, a)))),
            "messages are kept": self.all("Answer Answer", lambda a, b: Implies(
                And(matched(a, b), left_of_call(a, b) > self.early),
                self.kept(s, s.to(a), left_of_call(a, b)))),
            "a call came after an older answer": self.all("Answer Answer", lambda a, b: Implies(
                matched(a, b), s.at(a) - s.at(b) <= s.clock(s.to(a)) - s.since(b))),
            "the server is not faster": self.all("Answer", lambda b: Implies(
                And(s.done(b), Not(s.is_call(b)), s.under(b) == s.mark),
                s.server - s.at(b) <= s.clock(s.to(b)) - s.since(b))),
            "calls are no longer than a ttl": self.all("Answer", lambda a: Implies(
                And(s.done(a), s.is_call(a)), And(s.grants(a), s.ttl(a) <= self.full(s.to(a))))),
            "marks and tokens are of before": self.all("Answer", lambda a: Implies(
                s.done(a), And(s.under(a) <= s.mark, s.token(a) <= s.newest))),
        }

    def scene(self, s):
        return And(super().scene(s), s.newest == 0, s.mark == 0)

    def realistic(self, s, p):
        moved = p.server_Real - s.server
        back = NO if self.has("newer_than_the_answer") else moved == -30 / SERVER
        return And(
            p.dt_Real >= 0.001, p.dt_Real <= 30, Or(moved == p.dt_Real, back),
            p.there_Real == s.server + 30 / SERVER, p.h_Real == 1.2 / SERVER,
            self.all("Claim", lambda c: p.f_Claim_Real(c) - s.clock(c) == p.dt_Real))

    def describe(self, m, s, name, p):
        a, c = p.a_Answer, s.to(p.a_Answer)
        return {
            "server_calls": lambda: f"the server gives the lock to {name_of(m, c)} until "
                                    f"{on_server(m, s.end)}, and sends the message "
                                    f"{name_of(m, a)}: token {m.eval(s.token(a))}",
            "client_takes_the_message": lambda:
                f"{name_of(m, c)} receives {name_of(m, a)}, and compares it with "
                f"{name_of(m, p.b_Answer)}: its lease ends at {at(m, s.word(c))}",
        }.get(name, lambda: super(Messages, self).describe(m, s, name, p))()


def called(system, s):
    a, b = list(system.members["Claim"].values())[:2]
    return And(system.is_live(s, a), s.ended(b) == NO, s.holder == a, s.newest == 2)


CHECKS = [
    Proved("a lease by message is live only while its server keeps the key", Messages),
    Seen("a claim is busy and is called later", Messages, "B acquires, A acquires", called, 8),
    Broken("counts_from_the_request", Messages, "B acquires, A acquires, C acquires",
           "kept", 8),
    Broken("counts_the_time_of_a_call", Messages, "B acquires, A acquires", "kept", 8),
    Broken("kept_from_the_time_it_says", Messages, "B acquires, A acquires", "kept", 8),
    Broken("of_the_same_mark", Messages, "B acquires, A acquires", "kept", 9),
    Broken("newer_than_the_answer", Messages, "A acquires, B acquires", "kept", 8),
]
