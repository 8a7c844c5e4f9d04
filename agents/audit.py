"""Whether a reward stack can be farmed, keeps its bounds, puts success first, keeps the optimum.

Two things are done. Around a miniature the stack is played out completely
(:mod:`headway.wrappers.audit`), and every short loop is tried there. In the world that is trained
on, farmers and a search for loops try what is likely (:mod:`headway.agents.farmers`). A verdict on
a channel is one of

``"bounded"``: its layers declare what it can pay at most, and nothing that was tried left it.
``"unbounded"``: they declare none, and no farm was found. That is no proof.
``"farmed"``: a loop makes it pay without end; a failure paid more than every success of its task
did; or talk pays, more to who recites what the answer may be than to who says nothing, though
neither looks at anything or changes it. With the play.
``"broken bound"``: a play paid more, or less, than is declared; with the play.

**Success comes first** in a task if the worst success that was played returns more, discounted and
with everything that the stack pays, than the best failure. Under ``gamma < 1`` an early gain may
outweigh a late success, whatever the weights. So the turn is given up to which a success is ahead
of everything that channels can pay a failure and charge a success, even if it is itself paid no
dense reward. Undiscounted there is no such excuse: a stack in which success does not come first, or
whose channels nothing limits, is not sound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import gymnasium as gym

from headway.agents.evaluate import make
from headway.agents.farmers import RECITE, SILENCE, Farm, Harvest, farms, play, scripts
from headway.agents.scripted import own
from headway.arguments import number, whole
from headway.envs.tool_env import ToolEnv
from headway.wrappers.audit import (
    GAP,
    NOTHING,
    Paid,
    Play,
    Preference,
    Proof,
    begin,
    bounds,
    paid_for,
    prove,
    staged,
    steps_of,
)
from headway.wrappers.channel import OUTSIDE
from headway.wrappers.miniature import MINIATURE, Miniature
from headway.wrappers.schedule import set_progress
from headway.wrappers.stack import dense
from headway.wrappers.transforms import AtEnd

Told = Callable[[int, int], None]
"""``told(done, of)`` hears how far it has come."""

LONG = 96
"""Turns of the miniature in which loops are repeated."""


@dataclass(frozen=True)
class Finding:
    """The verdict on one channel.

    Attributes:
        name: Of the channel; ``"(no channel)"`` for what comes from none, where anything does.
        bound: What its layers declare for the discounted sum of an episode.
        seen: The least and the most of it in all that was tried; NaN where some amount was not
            finite, which breaks any bound.
        verdict: ``"bounded"``, ``"unbounded"``, ``"farmed"`` or ``"broken bound"``.
        counterexample: What :func:`replay` repeats; None for the first two.
    """

    name: str
    bound: tuple[float, float]
    seen: tuple[float, float]
    verdict: str
    counterexample: dict[str, Any] | None


@dataclass(frozen=True)
class Dominance:
    """Whether success comes first, in the task where it is nearest to not doing so.

    Attributes:
        holds: In every task that was played.
        task_id: Of that task.
        worst_success: Least return of a success in it; NaN where some return is not finite.
        best_failure: Greatest return of a failure; the same.
        dense: By how much the channels can set a failure above a success together, see
            :func:`headway.wrappers.stack.dense`.
        turns: A success within so many turns returns more than ``dense`` whatever else it is paid,
            as long as that is not negative; None for any number.
        longest: How many turns an episode may take.
    """

    holds: bool
    task_id: str
    worst_success: float
    best_failure: float
    dense: float
    turns: int | None
    longest: int


@dataclass(frozen=True)
class Audit:
    """What was found.

    Attributes:
        id: Of the environment.
        stack: As it was written.
        gamma: The learner's discount per turn.
        on_truncation: Given to the layers that take it.
        tasks: How many tasks of the environment were farmed.
        channels: The verdicts.
        proof: What is true in the miniature.
        dominance: Whether success comes first.
        no_verdict: Episodes in which a farmer made the grader fail.
        counterexample: Why the optimum is not preserved; None where the miniature does not show it.
    """

    id: str
    stack: str
    gamma: float
    on_truncation: AtEnd
    tasks: int
    channels: tuple[Finding, ...]
    proof: Proof
    dominance: Dominance
    no_verdict: int
    counterexample: dict[str, Any] | None

    @property
    def preserved(self) -> bool:
        """Whether the optimum is preserved.

        It is proved in the miniature, and nothing shows that it does not hold elsewhere: whatever
        comes from no channel, and an amount that is not finite.
        """
        tame = all(f.name != OUTSIDE and all(map(math.isfinite, f.seen)) for f in self.channels)
        return tame and self.proof.preserved

    @property
    def sound(self) -> bool:
        """Whether there is no farm, no broken bound, no false claim, and every turn was graded.

        Undiscounted, success has to come first as well, and something has to limit what channels
        can pay: of a channel that nothing limits no search can say that nobody farms it.
        """
        fine = all(found.verdict in ("bounded", "unbounded") for found in self.channels)
        honest = self.preserved or not self.proof.claimed
        first = self.gamma < 1.0 or (self.dominance.holds and self.dominance.dense < math.inf)
        return fine and honest and first and not self.no_verdict

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is infinite is what no bound limits."""
        return {
            "id": self.id,
            "stack": self.stack,
            "gamma": self.gamma,
            "on_truncation": self.on_truncation,
            "tasks": self.tasks,
            "channels": [
                {
                    "name": found.name,
                    "bound": list(found.bound),
                    "seen": list(found.seen),
                    "verdict": found.verdict,
                    "counterexample": found.counterexample,
                }
                for found in self.channels
            ],
            "optimum_preserved": self.preserved,
            "optimum_claimed": self.proof.claimed,
            "optimum_counterexample": self.counterexample,
            "dominance": dict(vars(self.dominance)),
            "starc": self.proof.distance,
            "no_verdict": self.no_verdict,
            "sound": self.sound,
        }


def audit(
    env: str,
    stack: str,
    *,
    gamma: float,
    on_truncation: AtEnd = "zero",
    tasks: int = 4,
    seed0: int = 0,
    told: Told = lambda done, of: None,
    **env_kwargs: Any,
) -> Audit:
    """Audits a stack around an environment.

    Args:
        env: A registered id, or ``"module:ATTRIBUTE"`` for a domain of your own.
        stack: Written as :func:`headway.wrappers.stack.build` takes it.
        gamma: The learner's discount per turn, in (0, 1].
        on_truncation: For the layers that take it.
        tasks: How many tasks are farmed, at least 1: those of ``seed0``, ``seed0 + 1`` and so on.
        seed0: First seed, at least 0.
        told: Hears how far it has come.
        **env_kwargs: For the environment.

    Raises:
        ValueError: An argument is outside its range, or ``stack`` cannot be built, or a layer
            raises something or keeps a memory that is no plain data.
        TypeError: A layer cannot be copied or put into a state, or ``env`` is no headway
            environment.
        RuntimeError: In no task a success and a failure could be graded.
    """
    gamma = number("gamma", gamma, "(0, 1]")
    tasks, seed0 = whole("tasks", tasks, 1), whole("seed0", seed0, 0)
    layered = partial(staged, stack=stack, gamma=gamma, on_truncation=on_truncation)
    stages = iter(range(tasks + 3))
    told(next(stages), tasks + 2)
    proof = prove(stack, gamma=gamma, on_truncation=on_truncation)
    told(next(stages), tasks + 2)
    small = layered(Miniature(LONG))
    steps = steps_of(small)
    undiscounted = bounds(small, 1.0)
    limited = {name: bound.high for name, bound in undiscounted.items() if bound.high < math.inf}
    found: list[Farm] = []
    extra: list[Harvest] = []
    for k in steps:
        _, farmed, pumped = _farmed(layered(Miniature(LONG)), {}, k, gamma, limited)
        found, extra = [*found, *farmed], [*extra, *pumped]
    told(next(stages), tasks + 2)
    groups: list[list[Harvest]] = []
    longest = 0
    for seed in range(seed0, seed0 + tasks):
        for k in steps:
            world = layered(make(env, **env_kwargs))
            harvests, farmed, pumped = _farmed(world, {"seed": seed}, k, gamma, limited)
            harvests += pumped
            groups.append(harvests)
            found += [*farmed, *_upstart(harvests), *_talk(harvests)]
            longest = max(longest, own(world).instance.task.max_turns)
            world.close()
        told(next(stages), tasks + 2)
    arena = partial(_arena, partial(make, env, **env_kwargs), layered)
    shown = Shown(arena, gamma)
    harvests = [*extra, *(harvest for group in groups for harvest in group)]
    channels = list(proof.channels)
    if all(paid.name != OUTSIDE for paid in channels) and any(map(_bribed, harvests)):
        channels.append(Paid(OUTSIDE, NOTHING, (0.0, 0.0), (0.0, 0.0), None))
    return Audit(
        id=env,
        stack=stack,
        gamma=gamma,
        on_truncation=on_truncation,
        tasks=tasks,
        channels=tuple(_finding(paid, found, harvests, shown) for paid in channels),
        proof=proof,
        dominance=_dominance(groups, _most(proof, small, gamma), gamma, longest),
        # Not of the miniature's loops, one of which makes the grader fail by design.
        no_verdict=sum(not harvest.graded for group in groups for harvest in group),
        counterexample=shown.preference(proof.preference),
    )


def replay(env: gym.Env[Any, Any], counterexample: Mapping[str, Any]) -> float:
    """Plays a counter-example again.

    Args:
        env: The stack of the audit, newly made around the world that ``task_id`` is of: the
            environment, or a :class:`~headway.wrappers.miniature.Miniature`.
        counterexample: From :class:`Finding` or :class:`Audit`, or as it came back from JSON.

    Returns:
        The discounted sum of what its channel paid, of all channels where it names none: what
        stands there as ``pays``.

    Raises:
        ValueError: The episode ends before the counter-example does, or the world knows no such
            task.
    """
    done = Play(
        counterexample["task_id"],
        tuple(counterexample["actions"]),
        counterexample["k"],
        counterexample["practice"],
    )
    return _pays(env, done, counterexample["channel"], counterexample["gamma"])


def _pays(env: gym.Env[Any, Any], done: Play, channel: str | None, gamma: float) -> float:
    sums = paid_for(env, done, gamma)
    del sums["base"]
    return sum(sums.values()) if channel is None else sums[channel]


def _farmed(
    env: gym.Env[Any, Any],
    reset: Mapping[str, Any],
    k: int,
    gamma: float,
    limited: Mapping[str, float],
) -> tuple[list[Harvest], list[Farm], list[Harvest]]:
    """What farmers get in one task of a new stack, the farms, and what loops get.

    In a miniature loops are all that is tried.
    """
    set_progress(env, k)
    info = begin(env, **reset)
    begun = Play(info["task_id"], (), k)
    harvests = []
    if isinstance(env.unwrapped, ToolEnv):
        for farmer, actions in scripts(own(env)):
            harvests.append(play(env, farmer, begun._replace(actions=tuple(actions)), gamma))
    return harvests, *farms(env, begun, gamma, limited)


def _upstart(harvests: Sequence[Harvest]) -> Iterator[Farm]:
    """A failure that returned more than every success, as a farm of the channel that paid most."""
    successes, failures = _split(harvests)
    if not (successes and failures):
        return
    best = max(failures, key=attrgetter("total"))
    if best.total > max(harvest.total for harvest in successes) + GAP:
        paid = {name: amount for name, amount in best.sums.items() if name != "base"}
        yield Farm(max(paid, key=paid.__getitem__), f"fail: {best.farmer}", best.play)


def _bribed(harvest: Harvest) -> bool:
    """Whether anything came from no channel."""
    amounts = (harvest.sums.get(OUTSIDE, 0.0), *harvest.turns.get(OUTSIDE, ()))
    return not all(abs(amount) <= GAP for amount in amounts)


def _talk(harvests: Sequence[Harvest]) -> Iterator[Farm]:
    """Channels that pay for words which look at nothing and change nothing."""
    by = {harvest.farmer: harvest for harvest in harvests}
    said, silent = by[RECITE], by[SILENCE]
    for name, amount in said.sums.items():
        if name != "base" and amount > silent.sums[name] + GAP:
            yield Farm(name, RECITE, said.play)


def _split(harvests: Sequence[Harvest]) -> tuple[list[Harvest], list[Harvest]]:
    """Successes and failures; an episode that was not graded all through is neither."""
    graded = [harvest for harvest in harvests if harvest.over and harvest.graded]
    return [h for h in graded if h.success], [h for h in graded if not h.success]


@dataclass(frozen=True)
class Shown:
    """Makes counter-examples of plays: new stacks pay what stands in them.

    Attributes:
        arena: Makes the stack of the audit around the world of a task.
        gamma: The learner's discount per turn.
    """

    arena: Callable[[str], gym.Env[Any, Any]]
    gamma: float

    def play(
        self, done: Play, channel: str | None, farmer: str, loop: Sequence[str] = ()
    ) -> dict[str, Any]:
        """One play as plain data."""
        return {
            "task_id": done.task_id,
            "channel": channel,
            "farmer": farmer,
            "loop": list(loop),
            "actions": list(done.actions),
            "pays": _pays(self.arena(done.task_id), done, channel, self.gamma),
            "gamma": self.gamma,
            "k": done.k,
            "practice": done.practice,
        }

    def preference(self, found: Preference | None) -> dict[str, Any] | None:
        """Two plays: the one that the stack makes best, and the one that is best without it."""
        if found is None:
            return None
        return {
            **self.play(found.chosen, None, "best play with the stack"),
            "instead": self.play(found.instead, None, "best play without it"),
            "gap": found.gap,
            "outcome": found.outcome,
        }


def _arena(
    world: Callable[[], gym.Env[Any, Any]],
    layered: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]],
    task_id: str,
) -> gym.Env[Any, Any]:
    return layered(Miniature() if task_id.startswith(MINIATURE) else world())


def _finding(
    paid: Paid, found: Sequence[Farm], harvests: Sequence[Harvest], shown: Shown
) -> Finding:
    """The verdict on a channel."""
    name, bound = paid.name, paid.bound
    low, high = paid.seen
    broken = None if paid.broken is None else (paid.broken, "exhaustive play")
    for harvest in harvests:
        amount, (least, most) = harvest.sums.get(name, 0.0), harvest.turns.get(name, (0.0, 0.0))
        low, high = min(low, amount), max(high, amount)  # NaN stays
        inside = bound.low - GAP <= amount <= bound.high + GAP
        if not math.isfinite(amount):
            low = high = math.nan
        if not (inside and bound.least - GAP <= least and most <= bound.most + GAP):
            broken = broken or (harvest.play, harvest.farmer)
    farm = max((f for f in found if f.channel == name), key=_telling, default=None)
    verdict, counterexample = "bounded" if bound.high < math.inf else "unbounded", None
    if broken is not None:
        verdict, counterexample = "broken bound", shown.play(broken[0], name, broken[1])
    if farm is not None:
        verdict = "farmed"
        counterexample = shown.play(farm.play, name, farm.farmer, farm.loop)
    return Finding(name, (bound.low, bound.high), (low, high), verdict, counterexample)


def _telling(farm: Farm) -> tuple[bool, float]:
    """A farm in the world that is trained on tells more than one in a miniature."""
    return not farm.play.task_id.startswith(MINIATURE), farm.rate


def _most(proof: Proof, env: gym.Env[Any, Any], gamma: float) -> float:
    """The most that the channels can pay together, given back what really is."""
    if proof.claimed and not proof.preserved:
        return sum(max(0.0, paid.bound.high) for paid in proof.channels)
    return dense(env, gamma)


def _dominance(
    groups: Sequence[Sequence[Harvest]], dense: float, gamma: float, longest: int
) -> Dominance:
    margins = []
    for group in groups:
        successes, failures = _split(group)
        totals = [harvest.total for harvest in (*successes, *failures)]
        if not all(map(math.isfinite, totals)):
            margins.append((-math.inf, group[0].play.task_id, math.nan, math.nan))
        elif successes and failures:
            worst = min(harvest.total for harvest in successes)
            best = max(harvest.total for harvest in failures)
            margins.append((worst - best, group[0].play.task_id, worst, best))
    if not margins:
        raise RuntimeError("no task could be judged: the grader failed on every solution")
    margin, task_id, worst, best = min(margins)
    return Dominance(margin > 0.0, task_id, worst, best, dense, ahead(dense, gamma), longest)


def ahead(dense: float, gamma: float) -> int | None:
    """The most turns T with ``gamma**(T - 1) > dense``; None where there is no limit."""
    if dense <= 0.0 or (gamma == 1.0 and dense < 1.0):
        return None
    turns = 0
    while gamma**turns > dense:
        turns += 1
    return turns
