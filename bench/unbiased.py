"""Which estimators are unbiased: their expected update, by enumeration, beside the exact gradient.

    python -m headway.bench.unbiased            # the table of docs/credit.md
    python -m headway.bench.unbiased --json

The task is a chain of three levels. At each the policy works (which leads one level up, with a
chance that falls), idles or quits; the third level ends the episode with success, the fifth turn
without. That is 334 trajectories, and nothing is sampled: an estimator is given every pair of them
as a group, weighted by its probability. Groups of three are enumerated with three turns. The only
figures that are sampled are the variances in groups of eight. A last table says what is left of
the signal of progress where trajectories were dealt one another's: a placebo should leave none.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from headway.agents.credit import ESTIMATORS, Estimator, Term, advantages
from headway.agents.placebo import paying
from headway.agents.routing import Array, Groups, discounted
from headway.agents.trajectory import Trajectory, Turn

LEVELS = 3
"""Of the chain; reaching the last is success."""

HORIZON = 5
"""Turns after which an episode is cut."""

CHANCE = (0.7, 0.5, 0.4)
"""That work succeeds, by level."""

LOGITS = ((0.0, 0.5, -1.5),) * LEVELS
"""Of work, idling and quitting, by level."""

WORK, IDLE, QUIT = range(3)

EXACT = 1e-10
"""A relative error below this is rounding."""

Pay = Callable[[Sequence[int], Sequence[int], float], list[float]]
"""``pay(levels, actions, gamma)``: the amounts of the turns of an episode, given the level at reset
and after each turn, and what was done in each."""


def progress(levels: Sequence[int], actions: Sequence[int], gamma: float) -> list[float]:
    """Half of the progress of the turn, as ``ProgressReward`` pays it."""
    phi = [level / LEVELS for level in levels]
    return [0.5 * (gamma * phi[t + 1] - phi[t]) for t in range(len(actions))]


def cost(levels: Sequence[int], actions: Sequence[int], gamma: float) -> list[float]:
    """A price of every turn, at the end."""
    return [0.0] * (len(actions) - 1) + [-0.1 * len(actions)]


def score(levels: Sequence[int], actions: Sequence[int], gamma: float) -> list[float]:
    """A judge that likes success, and idling."""
    worth = 0.3 * (levels[-1] == LEVELS) + 0.1 * actions.count(IDLE)
    return [0.0] * (len(actions) - 1) + [worth]


def at_the_end(levels: Sequence[int], actions: Sequence[int], gamma: float) -> list[float]:
    """0.3 for every level won if the second was reached, all on the last turn."""
    return [0.0] * (len(actions) - 1) + [sum(retro(levels, actions, gamma))]


def retro(levels: Sequence[int], actions: Sequence[int], gamma: float) -> list[float]:
    """The same, paid afterwards to the turns that won them."""
    won = np.diff(levels) * 0.3 * (levels[-1] >= 2)
    return [float(amount) for amount in won]


Credit = Callable[[Groups], list[list[Array]]]
"""Advantages of groups."""


class Chain:
    """All episodes of the chain under one policy.

    Args:
        pays: What each channel pays.
        gamma: Discount per turn that the channels are told.
        logits: (levels, actions) of the policy.
        horizon: Turns after which an episode is cut.

    Attributes:
        trajectories: Every episode that can happen.
        chances: (trajectories,) their probabilities.
        scores: For each, (turns, levels, actions): the gradient of the log-probability of what was
            done in each turn, in the logits.
    """

    def __init__(
        self,
        pays: Mapping[str, Pay],
        gamma: float = 1.0,
        *,
        logits: Sequence[Sequence[float]] = LOGITS,
        horizon: int = HORIZON,
    ) -> None:
        weights = np.exp(np.array(logits) - np.max(logits, axis=1, keepdims=True))
        self.policy = weights / weights.sum(1, keepdims=True)
        self.trajectories: list[Trajectory] = []
        self.scores: list[Array] = []
        chances = []
        for chance, levels, actions in self._episodes(1.0, [0], [], horizon):
            chances.append(chance)
            paid = {name: pay(levels, actions, gamma) for name, pay in pays.items()}
            self.trajectories.append(_trajectory(levels, actions, paid))
            score = np.zeros((len(actions), *self.policy.shape))
            for t, action in enumerate(actions):
                score[t, levels[t]] = -self.policy[levels[t]]
                score[t, levels[t], action] += 1.0
            self.scores.append(score)
        self.chances = np.array(chances)

    def _episodes(
        self, chance: float, levels: list[int], actions: list[int], horizon: int
    ) -> Iterator[tuple[float, list[int], list[int]]]:
        level = levels[-1]
        if level == LEVELS or len(actions) == horizon or actions[-1:] == [QUIT]:
            yield chance, levels, actions
            return
        work, idle, quits = self.policy[level]
        for action, after, likely in (
            (WORK, level + 1, work * CHANCE[level]),
            (WORK, level, work * (1.0 - CHANCE[level])),
            (IDLE, level, idle),
            (QUIT, level, quits),
        ):
            yield from self._episodes(
                chance * likely, [*levels, after], [*actions, action], horizon
            )

    def mean(self, worth: Callable[[Trajectory], float]) -> float:
        """The expectation of a number of a trajectory."""
        return float(self.chances @ [worth(t) for t in self.trajectories])

    def mean_trust(self) -> float:
        """The expectation of ``min(1, exp(right - wrong))`` over pairs of scores; 0 if alike."""
        scores = np.array([_paid("rubric")(t) for t in self.trajectories])
        wins = np.array([t.success for t in self.trajectories])
        weights = np.minimum(1.0, np.exp(scores[wins][:, None] - scores[~wins]))
        return float(2.0 * self.chances[wins] @ weights @ self.chances[~wins])

    def gradient(self, worth: Callable[[Trajectory], float]) -> Array:
        """The exact gradient of that expectation in the logits."""
        return self.weighted(lambda t: np.full(len(t.turns), worth(t)))

    def weighted(self, worth: Callable[[Trajectory], Array]) -> Array:
        """The expected sum of the scores of the turns, each with a weight."""
        parts = zip(self.chances, self.trajectories, self.scores, strict=True)
        found: Array = np.sum([p * np.tensordot(worth(t), s, 1) for p, t, s in parts], axis=0)
        return found

    def update(self, credit: Credit, size: int = 2) -> tuple[Array, float]:
        """The expected update over all groups, and its variance summed over the logits.

        Args:
            credit: Advantages of groups.
            size: Trajectories of a group.
        """
        many = range(len(self.trajectories))
        groups = np.array(list(combinations_with_replacement(many, size)))
        updates = self._updates(credit, groups)
        chance = self.chances[groups].prod(1) * [_orders(group) for group in groups.tolist()]
        mean = chance @ updates
        return mean.reshape(self.policy.shape), float(chance @ (updates**2).sum(1) - mean @ mean)

    def variance(self, credit: Credit, size: int, count: int) -> float:
        """The variance alone, from groups that are drawn, always the same.

        Args:
            credit: Advantages of groups.
            size: Trajectories of a group.
            count: Groups.
        """
        rng = np.random.default_rng(0)
        chances = self.chances / self.chances.sum()
        groups = rng.choice(len(chances), (count, size), p=chances)
        return float(self._updates(credit, groups).var(0).sum())

    def _updates(self, credit: Credit, groups: NDArray[np.int64]) -> Array:
        """The update of each group, (groups, logits)."""
        found = credit([[self.trajectories[i] for i in group] for group in groups.tolist()])
        flat = np.concatenate([a for group in found for a in group])
        cells, size = self.policy.size, groups.shape[1]
        lengths = np.array([len(s) for s in self.scores])
        starts = np.cumsum(lengths) - lengths
        of_turn = np.concatenate(self.scores).reshape(-1, cells)
        member = groups.reshape(-1)
        owner = np.repeat(np.arange(len(member)), lengths[member])
        first = np.cumsum(lengths[member]) - lengths[member]
        rows = starts[member][owner] + np.arange(len(owner)) - first[owner]
        updates = np.zeros((len(groups), cells))
        for cell in range(cells):
            scored = flat * of_turn[rows, cell]
            updates[:, cell] = np.bincount(owner // size, scored, len(groups)) / size
        return updates


def _orders(group: Sequence[int]) -> float:
    """In how many orders the members of a group can be drawn."""
    found, run = 1.0, 0
    for place, one in enumerate(group):
        run = run + 1 if place and group[place - 1] == one else 1
        found *= (place + 1) / run
    return found


def _trajectory(
    levels: Sequence[int], actions: Sequence[int], paid: Mapping[str, Sequence[float]]
) -> Trajectory:
    """An episode, one token a turn."""
    last = len(actions) - 1
    turns = [
        Turn(
            action=("work", "idle", "quit")[action],
            observation=f"level {levels[t + 1]}",
            base=float(t == last and levels[-1] == LEVELS),
            channels={name: amounts[t] for name, amounts in paid.items()},
            progress=levels[t + 1] / LEVELS,
            ok=frozenset(map(str, range(levels[t + 1]))),
            start=levels[t],
        )
        for t, action in enumerate(actions)
    ]
    count = len(actions)
    return Trajectory(
        task_id="chain",
        group=0,
        prompt="level 0",
        ids=np.array(actions, dtype=np.int32),
        mask=np.ones(count, dtype=np.bool_),
        logp=np.zeros(count, dtype=np.float32),
        turn=np.arange(count, dtype=np.int32),
        turns=turns,
        progress=0.0,
        success=levels[-1] == LEVELS,
    )


# Estimators that are wrong, each in one way that reads well

FAULTS = ("first visit", "leave one turn out", "empty to 0")
"""Faults of :func:`faulty`."""


def faulty(groups: Groups, fault: str) -> list[list[Array]]:
    """Turn credit, each turn less the mean of turns that begin at its level, with one fault.

    Args:
        groups: Of the chain.
        fault: ``"first visit"``: the mean has each trajectory's first turn at the level, its own
            too. ``"leave one turn out"``: it lacks this turn, and not this trajectory.
            ``"empty to 0"``: a turn that no other trajectory can be compared with gets nothing.
    """
    whole = {id(t): t for group in groups for t in group}
    returns = {name: _togo(t, 1.0).tolist() for name, t in whole.items()}
    return [_faulty([(t, returns[id(t)]) for t in group], fault) for group in groups]


def _faulty(group: Sequence[tuple[Trajectory, list[float]]], fault: str) -> list[Array]:
    places: dict[object, list[tuple[int, int, float]]] = {}
    for owner, (one, returns) in enumerate(group):
        for at, turn in enumerate(one.turns):
            places.setdefault(turn.start, []).append((owner, at, returns[at]))
    found = [np.zeros(len(returns)) for _, returns in group]
    for place in places.values():
        firsts = {owner: value for owner, _, value in reversed(place)}
        for owner, at, value in place:
            if fault == "first visit":
                base = list(firsts.values()) if len(firsts) > 1 else []
            elif fault == "leave one turn out":
                base = [v for i, t, v in place if (i, t) != (owner, at)]
            else:
                base = [v for i, _, v in place if i != owner]
            if base:
                found[owner][at] = value - sum(base) / len(base)
    return found


def own_gate(groups: Groups, gamma: float) -> list[list[Array]]:
    """A group gate that reads the trajectory's own outcome too."""
    return [
        [np.full(len(t.turns), float(np.mean([o.success for o in group]) >= 0.5)) for t in group]
        for group in groups
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        estimator: Its name, or what is wrong with it.
        target: What its expected update is compared with.
        error: Length of the difference over the length of the gradient.
        direction: The same after the update was scaled to fit.
        variance: Of the update of one pair, over the squared length of the gradient.
        claimed: Whether headway calls it unbiased.
    """

    estimator: str
    target: str
    error: float
    direction: float
    variance: float
    claimed: bool


def rows(horizon: int = HORIZON) -> Iterator[Row]:
    """The table: what is claimed to be unbiased, what is not, and faults.

    Args:
        horizon: Turns after which an episode is cut; in groups of 3 it is three.
    """
    chain = Chain({"progress": progress}, horizon=horizon)
    outcome, both = chain.gradient(_paid("base")), chain.gradient(_paid("base", "progress"))
    kept = chain.gradient(lambda t: _paid("base")(t) + t.turns[-1].progress)
    for name, target, exact in (
        ("outcome", "outcome", outcome),
        ("rloo", "outcome", outcome),
        ("dr_grpo", "outcome / 2", outcome / 2.0),
        ("final", "outcome + progress", both),
        ("turn", "outcome + progress", both),
        ("turn_shrunk", "outcome + progress", both),
        ("turn_pooled", "outcome + progress", both),
        ("turn_index", "outcome + progress", both),
        ("pprs_zero", "outcome", outcome),
        ("pprs_keep", "outcome + last progress", kept),
    ):
        yield _row(name, target, exact, chain.update(_credit(name)), True)

    known = Chain({"information": progress}, horizon=horizon)
    gain = known.gradient(_paid("base", "information"))
    yield _row("igpo", "outcome + information", gain, known.update(_credit("igpo")), True)
    priced = Chain({"turncost": cost}, horizon=horizon)
    gate = ESTIMATORS["grpo_lambda"]
    chance = priced.mean(lambda t: t.success)  # the only other of a pair opens it
    exact = priced.gradient(lambda t: _paid("base")(t) + chance * _paid("turncost")(t))
    target = "outcome + P(open) * cost"
    yield _row("grpo_lambda", target, exact, priced.update(_credit(gate)), True)
    paid = Chain({"gated": at_the_end}, horizon=horizon)
    exact = paid.gradient(_paid("base", "gated"))
    yield _row("turn, gate paid at the end", "outcome + gated", exact, paid.update(_credit()), True)

    small = Chain({"progress": progress}, horizon=3)
    exact = small.gradient(_paid("base", "progress"))
    update = small.update(_credit("turn"), 3)
    yield _row("turn, groups of 3", "outcome + progress", exact, update, True)
    judged = Chain({"rubric": score}, horizon=3)
    trusted = judged.mean_trust()
    exact = judged.gradient(lambda t: _paid("base")(t) + trusted * _paid("rubric")(t))
    update = judged.update(_credit("trust"), 3)
    yield _row("trust, groups of 3", "outcome + E(trust) * score", exact, update, True)
    faded = Chain({"progress": progress}, 0.9, horizon=horizon)
    exact = faded.weighted(partial(_togo, gamma=0.9))
    update = faded.update(_credit("turn", 0.9))
    yield _row("turn, gamma 0.9", "sum of score * return", exact, update, True)
    exact = faded.gradient(lambda t: float(_togo(t, 0.9)[0]))
    (term,) = ESTIMATORS["turn"].terms
    weighed = Estimator("turn", (replace(term, routing=discounted),), "")
    update = faded.update(_credit(weighed, 0.9))
    yield _row("turn, gamma 0.9, discounted", "discounted return", exact, update, True)

    exact = small.gradient(_paid("base"))
    yield _row("grpo, groups of 3", "outcome", exact, small.update(_credit("grpo"), 3), False)
    for name in ("procredit", "procredit_paper", "gigpo", "lean4", "siop"):
        yield _row(name, "outcome + progress", both, chain.update(_credit(name)), False)
    update = known.update(_credit("igpo_paper"))
    yield _row("igpo_paper", "outcome + information", gain, update, False)

    wrong = Term(("base", "progress"), "togo", key="checks", centre="mean")
    early = replace(wrong, key="group", order="norm_then_ret")
    for name, term in (("self-included", wrong), ("norm_then_ret", early)):
        update = chain.update(_credit(Estimator(name, (term,), "")))
        yield _row(f"fault: {name}", "outcome + progress", both, update, False)
    for name in FAULTS:
        update = chain.update(partial(faulty, fault=name))
        yield _row(f"fault: {name}", "outcome + progress", both, update, False)
    late = Chain({"gated": retro}, horizon=horizon)
    exact = late.gradient(_paid("base", "gated"))
    update = late.update(_credit())
    yield _row("fault: gate paid in retrospect", "outcome + gated", exact, update, False)
    own = replace(gate, terms=(gate.terms[0], replace(gate.terms[1], routing=own_gate)))
    chance = 1.0 - (1.0 - chance) ** 2
    exact = priced.gradient(lambda t: _paid("base")(t) + chance * _paid("turncost")(t))
    update = priced.update(_credit(own))
    yield _row("fault: gate that reads itself", target, exact, update, False)


def variances(horizon: int = HORIZON, count: int = 10_000) -> dict[str, float]:
    """Of the update of a group of eight, over the squared length of the gradient.

    Args:
        horizon: Turns after which an episode is cut.
        count: Groups that are drawn.
    """
    chain = Chain({"progress": progress}, horizon=horizon)
    exact = float(np.linalg.norm(chain.gradient(_paid("base", "progress"))))
    names = ("final", "turn", "turn_shrunk", "turn_pooled", "turn_index")
    return {name: chain.variance(_credit(name), 8, count) / exact**2 for name in names}


def leaks(horizon: int = HORIZON) -> dict[str, float]:
    """What ``shuffle_traj`` leaves of the gradient of progress, in pairs, by estimator.

    Args:
        horizon: Turns after which an episode is cut.
    """
    chain = Chain({"progress": progress}, horizon=horizon)
    plain = Chain({"progress": _nothing}, horizon=horizon)
    signal = chain.gradient(_paid("progress"))
    found = {}
    for name in ("final", "turn", "turn_shrunk", "turn_pooled", "turn_index"):
        dealt, _ = chain.update(partial(_dealt, estimator=name))
        without, _ = plain.update(_credit(name))
        found[name] = float(((dealt - without) * signal).sum() / (signal * signal).sum())
    return found


def _dealt(pairs: Groups, estimator: str) -> list[list[Array]]:
    """Advantages of pairs, the mean of both ways to deal out what they were paid."""
    swapped = []
    for one, two in pairs:
        paid = [{n: x for n, x in t.rewards().items() if n != "base"} for t in (one, two)]
        swapped.append([paying(one, paid[1]), paying(two, paid[0])])
    ways = zip(_credit(estimator)(pairs), _credit(estimator)(swapped), strict=True)
    return [[(a + b) / 2.0 for a, b in zip(*way, strict=True)] for way in ways]


def _nothing(levels: Sequence[int], actions: Sequence[int], gamma: float) -> list[float]:
    return [0.0] * len(actions)


def _row(name: str, target: str, exact: Array, update: tuple[Array, float], claimed: bool) -> Row:
    """How far an update is from a gradient."""
    mean, variance = update
    length = float(np.linalg.norm(exact))
    scale = float((mean * exact).sum() / (exact * exact).sum())
    direction = float(np.linalg.norm(mean / scale - exact)) if scale else math.inf
    error = float(np.linalg.norm(mean - exact))
    return Row(name, target, error / length, direction / length, variance / length**2, claimed)


def _paid(*names: str) -> Callable[[Trajectory], float]:
    """The undiscounted sum of channels."""
    return lambda t: float(sum(t.rewards()[name].sum() for name in names))


def _credit(estimator: str | Estimator = "turn", gamma: float = 1.0) -> Credit:
    return partial(advantages, estimator=estimator, gamma=gamma, allow_std_on_dense=True)


def _togo(trajectory: Trajectory, gamma: float) -> Array:
    """The discounted return from each turn on."""
    found: Array = np.array(list(trajectory.rewards().values())).sum(0)
    for t in range(len(found) - 2, -1, -1):
        found[t] += gamma * found[t + 1]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 if what is claimed to be unbiased is and nothing else, 1 if not, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="python -m headway.bench.unbiased", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    parser.add_argument(
        "--horizon", type=int, default=HORIZON, help=f"turns of an episode, 3 or more ({HORIZON})"
    )
    args = parser.parse_args(argv)
    if args.horizon < LEVELS:
        parser.error(f"argument --horizon: must be at least {LEVELS}, got {args.horizon}")
    found = list(rows(args.horizon))
    drawn, left = variances(args.horizon), leaks(args.horizon)
    if args.json:
        rest = {"variances": drawn, "leaks": left}
        print(json.dumps({"rows": [asdict(row) for row in found], **rest}))
    else:
        table = Table("estimator", "gradient of", "error", "direction", "variance")
        for row in found:
            figures = ("< 1e-10" if x < EXACT else f"{x:.3f}" for x in (row.error, row.direction))
            table.add_row(row.estimator, row.target, *figures, f"{row.variance:.2f}")
        eight = Table("estimator", "variance in groups of 8")
        for name, variance in drawn.items():
            eight.add_row(name, f"{variance:.2f}")
        placebos = Table("estimator", "signal left by shuffle_traj")
        for name, share in left.items():
            placebos.add_row(name, "< 1e-10" if abs(share) < EXACT else f"{share:.3f}")
        Console().print(table, eight, placebos)
    return int(any(row.claimed != (row.error < EXACT) for row in found))


if __name__ == "__main__":
    sys.exit(main())
