r"""Who gets the credit: one advantage a turn, from groups of trajectories of one task.

Every method is a row of one formula, data that a test can read and a user can change:

.. math:: A_n = \sum_c \lambda_c \, W_c(n) \, \mathrm{Norm}_c(\mathrm{Ret}_c(x_c))(n)

with n a turn of a trajectory, x_c what a channel paid, Ret a sum over turns, Norm a comparison with
other trajectories of the group, and W a weight. :class:`Term` is one c, :class:`Estimator` the sum,
:data:`ESTIMATORS` has the methods by name.

Rules that hold in all of them: a trajectory that was not measured (``scored`` is False, or a reward
is not finite) is in no statistic and gets 0; so does the only one that is left of a group, and
whatever does not differ from what it is compared with. A turn without a sampled token is paid for
by the turns before it and gets nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.agents.routing import Array, Groups, Routing, gate_group, trust
from headway.agents.trajectory import Trajectory
from headway.arguments import nearest, number, one_of
from headway.verifiers.strata import stratify

EPS = 1e-6
"""Added to standard deviations."""

ROUNDING = 1e-12
"""A difference of no more than this, relative to what is compared, is none."""

SIGNAL = 1e-8
"""A group teaches if some advantage is larger than this."""

FORMAT_WORTH = 0.1
"""What a turn whose calls all worked adds to the value of its node in ``"tree"``."""


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of an advantage: what is paid, how it is summed, what it is compared with.

    The comparison is within a *bucket*: turns of one group with the same key. The default key of
    turn credit is ``"checks"``: progress, and which checks count, when the turn begins. What is
    still to be earned depends on these first of all; trajectories that differ in nothing else
    share a bucket, where keys of whole states (``"start"``) leave most turns alone with themselves
    after the first one or two.

    Attributes:
        channels: ``"base"``, names of channels, ``"*"`` for all channels, and ``"phi:keep"`` or
            ``"phi:zero"`` for ``gamma * progress' - progress``, the last progress being kept, or 0.
            Their amounts are added up before anything else.
        ret: ``"episode"``: the undiscounted sum, for every turn. ``"togo"``: the discounted sum
            from the turn on. ``"step"``: what the turn was paid. ``"strata"`` and ``"rank"``: the
            undiscounted sum as a place among the group's, see :data:`PLACES`. ``"tree"``: the
            best undiscounted sum of any trajectory that shares the turn and all before it, times
            gamma for each turn from there to its end, where an outcome is paid.
        key: A name in :data:`KEYS`.
        centre: ``"loo"``: less the mean of the bucket without this trajectory; where that is
            nothing, less that of the whole group without it. ``"mean"``: less the mean of the
            bucket, itself included. ``"none"``.
        scale: ``"group_std"`` divides by the standard deviation of the bucket, ``"batch_std"`` by
            that of all centred values. Either takes the size of a reward away: what is annealed or
            small by design comes back at full size.
        order: ``"norm_then_ret"`` compares the amounts of turns before it sums them.
        members: In the statistics each ``"turns"`` counts once, or each of ``"trajectories"``.
        prior: With ``"loo"``, in [0, inf): so many trajectories the mean of the whole group counts
            for beside those of the bucket. Few others are a noisy mean; a prior trades the noise
            for a mean of turns that began elsewhere, and stays unbiased.
        weight: Finite.
        gamma: Discount per turn in (0, 1]; None takes the learner's.
        routing: A weight for every turn; None for 1.
        apart: Compare each of the channels by itself, and add the results.
        std_on_dense: Needed to scale other channels than the outcome.

    Raises:
        ValueError: A value is outside its range.
    """

    channels: tuple[str, ...]
    ret: Literal["episode", "togo", "step", "strata", "rank", "tree"] = "togo"
    key: str = "group"
    centre: Literal["loo", "mean", "none"] = "loo"
    scale: Literal["none", "group_std", "batch_std"] = "none"
    order: Literal["ret_then_norm", "norm_then_ret"] = "ret_then_norm"
    members: Literal["turns", "trajectories"] = "turns"
    prior: float = 0.0
    weight: float = 1.0
    gamma: float | None = None
    routing: Routing | None = None
    apart: bool = False
    std_on_dense: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.channels, str) or not self.channels:
            raise ValueError(f"channels must be a tuple of names, got {self.channels!r}")
        one_of("ret", self.ret, RETURNS)
        one_of("key", self.key, KEYS)
        one_of("centre", self.centre, ("loo", "mean", "none"))
        one_of("scale", self.scale, ("none", "group_std", "batch_std"))
        one_of("order", self.order, ("ret_then_norm", "norm_then_ret"))
        one_of("members", self.members, ("turns", "trajectories"))
        number("prior", self.prior, "[0, inf)")
        number("weight", self.weight, "(-inf, inf)")
        if self.gamma is not None:
            number("gamma", self.gamma, "(0, 1]")
        if self.order == "norm_then_ret" and self.ret not in ("episode", "togo", "step"):
            raise ValueError(f"order must be 'ret_then_norm' with ret={self.ret!r}")

    @property
    def dense(self) -> bool:
        """Whether it has channels beside the outcome."""
        return set(self.channels) != {"base"}


@dataclass(frozen=True, slots=True)
class Estimator:
    """How trajectories become advantages.

    Attributes:
        name: In :data:`ESTIMATORS`.
        terms: What is added up.
        source: Where it is from.
        exact: What its expected update is the gradient of, at ``gamma=1``; empty if of nothing.
        batch_std: Divide the sum by the standard deviation over all trajectories.
    """

    name: str
    terms: tuple[Term, ...]
    source: str
    exact: str = ""
    batch_std: bool = False


def advantages(
    groups: Groups,
    estimator: str | Estimator = "turn",
    *,
    gamma: float,
    allow_std_on_dense: bool = False,
) -> list[list[Array]]:
    """The advantage of every turn.

    Args:
        groups: Trajectories by task and start; a group holds samples of one task.
        estimator: A name in :data:`ESTIMATORS`, or one of your own.
        gamma: The learner's discount per **turn**, in (0, 1]; that of the reward layers.
        allow_std_on_dense: Let terms divide dense rewards by a standard deviation. It makes small
            ones as large as any, most of all where every trajectory failed: a known way to lose a
            policy, shipped to compare with.

    Returns:
        For each trajectory, in place, float64 of shape (turns,).

    Raises:
        ValueError: ``gamma`` is outside its range, there is no such estimator, a channel that it
            needs is nowhere in ``groups``, a group holds several tasks, or a term needs
            ``allow_std_on_dense``.
    """
    rule = rule_of(estimator, allow_std_on_dense)
    gamma = number("gamma", gamma, "(0, 1]")
    table = _Table(groups)
    return table.split(_summed(table, rule, gamma, None))


def contributions(
    groups: Groups,
    estimator: str | Estimator = "turn",
    *,
    gamma: float,
    allow_std_on_dense: bool = False,
) -> dict[str, list[list[Array]]]:
    """What each channel adds to the advantages, the others taken to have paid nothing.

    They sum to :func:`advantages` where nothing is divided, ranked, or put on a scale.

    Returns:
        By channel, ``"base"`` first; as :func:`advantages`.

    Raises:
        ValueError: As :func:`advantages`.
    """
    rule = rule_of(estimator, allow_std_on_dense)
    gamma = number("gamma", gamma, "(0, 1]")
    table = _Table(groups)
    used = dict.fromkeys(name for term in rule.terms for name in table.names(term))
    return {name: table.split(_summed(table, rule, gamma, name)) for name in used}


def tokens(trajectory: Trajectory, advantages: Array) -> NDArray[np.float32]:
    """The advantage of each turn on each of the tokens that were sampled in it.

    Args:
        trajectory: Has T turns.
        advantages: Shape (T,).

    Returns:
        Shape of ``trajectory.ids``; 0 on tokens that were not sampled.

    Raises:
        ValueError: There are not T of them.
    """
    if np.shape(advantages) != (len(trajectory.turns),):
        raise ValueError(
            f"advantages must have shape ({len(trajectory.turns)},) for a trajectory of so many "
            f"turns, got {np.shape(advantages)}"
        )
    of_turn = np.append(advantages, 0.0)  # the last is that of turn -1
    return np.where(trajectory.mask, of_turn[trajectory.turn], 0.0).astype(np.float32)


def signal(advantages: Sequence[Sequence[Array]]) -> list[bool]:
    """Whether each group teaches anything: some advantage is not 0.

    To be asked of the final advantages: a group without a spread of rewards may have one of
    advantages, and the other way round.
    """
    return [any(np.any(np.abs(a) > SIGNAL) for a in group) for group in advantages]


def measured(trajectory: Trajectory) -> dict[str, Array] | None:
    """What each channel paid in each turn, the outcome first; None if it is not to be learnt from.

    It is not where a measurement failed, or a reward is not finite.
    """
    if not trajectory.scored:
        return None
    found = trajectory.rewards()
    return found if all(np.isfinite(x).all() for x in found.values()) else None


# What turns are compared with


def _checks(trajectory: Trajectory) -> list[Hashable]:
    """Progress when each turn begins, and which checks count.

    What counts at reset is not told, so a turn that begins at the progress of the reset is taken
    to begin with its checks.
    """
    levels = _stage(trajectory)
    before = [frozenset[str](), *(turn.ok for turn in trajectory.turns[:-1])]
    return [
        (level, None if level == levels[0] else ok)
        for level, ok in zip(levels, before, strict=True)
    ]


def _stage(trajectory: Trajectory) -> list[Hashable]:
    """Progress when each turn begins; None before the first measurement."""
    curve = trajectory.curve[:-1]
    return [None if math.isnan(level) else round(float(level), 9) for level in curve]


def _prefixes(trajectory: Trajectory) -> list[Hashable]:
    """All that was done and said up to and including each turn."""
    found: list[Hashable] = []
    for turn in trajectory.turns:
        found.append(hash((found[-1] if found else None, turn.action, turn.observation)))
    return found


KEYS: Mapping[str, Callable[[Trajectory], Sequence[Hashable]]] = MappingProxyType(
    {
        "group": lambda t: [None] * len(t.turns),
        "turn": lambda t: range(len(t.turns)),
        "start": lambda t: [turn.start for turn in t.turns],
        "checks": _checks,
        "stage": _stage,
        "parent": lambda t: [None, *_prefixes(t)[:-1]],
    }
)
"""What turns of a group have in common: nothing more; their index; the state in which they begin;
its progress and checks; its progress; all turns before. In ``"parent"`` trajectories that share a
turn and all before it are one member."""


# What is summed


def _strata(group: Sequence[Trajectory], sums: Array) -> Array:
    """In two bands, failures around 0 and successes around 1; see :func:`stratify`."""
    return np.array(stratify(sums.tolist(), [t.success for t in group]))


def _ranks(group: Sequence[Trajectory], sums: Array) -> Array:
    """Share of the others that are below, those that are equal counting half; in [0, 1]."""
    below = (sums[:, None] > sums).sum(1) + 0.5 * ((sums[:, None] == sums).sum(1) - 1)
    share: Array = below / max(1, len(sums) - 1)
    return share


PLACES: Mapping[str, Callable[[Sequence[Trajectory], Array], Array]] = MappingProxyType(
    {"strata": _strata, "rank": _ranks}
)
"""Returns that place the sums of a group's trajectories beside each other."""

RETURNS = ("episode", "togo", "step", "tree", *PLACES)
"""Ways to sum, see :class:`Term`."""


def _totals(places: NDArray[np.int64], values: Array, size: int = 0) -> Array:
    """Sum of the values of each place."""
    return np.bincount(places, values, size).astype(np.float64, copy=False)


class _Cells:
    """Turns by who made them and what they are compared with.

    Args:
        owner: (rows,) int, who made the turn.
        bucket: (rows,) int, what it is compared with.
        live: (rows,) 1.0 for turns that count, else 0.0.
    """

    def __init__(self, owner: NDArray[np.int64], bucket: NDArray[np.int64], live: Array) -> None:
        self.buckets = int(bucket.max()) + 1
        pairs, cell = np.unique(owner * self.buckets + bucket, return_inverse=True)
        self.cell, self.bucket, self.live = cell.reshape(-1), pairs % self.buckets, live
        self.turns = _totals(self.cell, live)

    def sums(self, values: Array, members: str) -> tuple[Array, Array, Array, Array]:
        """Sum and number of members of each cell, then of each bucket."""
        sums, counts = _totals(self.cell, values * self.live), self.turns
        if members == "trajectories":
            sums, counts = sums / np.maximum(counts, 1.0), np.minimum(counts, 1.0)
        total = _totals(self.bucket, sums, self.buckets)
        return sums, counts, total, _totals(self.bucket, counts, self.buckets)

    def others(self, values: Array, members: str) -> tuple[Array, Array]:
        """For each row the mean of its bucket without its owner, and how many owners that is of."""
        sums, counts, total, number = self.sums(values, members)
        mean = (total[self.bucket] - sums) / np.maximum(number[self.bucket] - counts, 1.0)
        owners = np.minimum(self.turns, 1.0)
        company = _totals(self.bucket, owners, self.buckets)[self.bucket] - owners
        return mean[self.cell], company[self.cell]

    def mean(self, values: Array, members: str) -> Array:
        """For each row the mean of its bucket."""
        _, _, total, number = self.sums(values, members)
        found: Array = (total / np.maximum(number, 1.0))[self.bucket][self.cell]
        return found

    def std(self, values: Array, members: str) -> Array:
        """For each row the standard deviation of its bucket."""
        sums, counts, _, _ = self.sums(values, members)
        if members == "trajectories":
            values = (sums / np.maximum(counts, 1.0))[self.cell]
        off = values - self.mean(values, members)
        return np.sqrt(self.mean(off * off, members))


class _Table:
    """Groups laid out flat: a row a turn of a scored trajectory, in order.

    A trajectory that stands in several groups is read once.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        known: dict[int, int] = {}
        read: list[Trajectory] = []
        paid: list[dict[str, Array]] = []
        self.seats: list[list[bool]] = []  # whether each trajectory is in the table
        self.scored: list[list[Trajectory]] = []
        seats, of_group = [], []
        for place, group in enumerate(groups):
            if len({t.task_id for t in group}) > 1:
                raise ValueError(
                    f"a group must hold one task, got {sorted({t.task_id for t in group})}"
                )
            for one in group:
                if id(one) not in known:
                    rewards = measured(one)
                    known[id(one)] = -1 if rewards is None else len(read)
                    if rewards is not None:
                        read.append(one)
                        paid.append(rewards)
            found = [known[id(one)] for one in group]
            self.seats.append([seat >= 0 for seat in found])
            self.scored.append([one for one, seat in zip(group, found, strict=True) if seat >= 0])
            seats += [seat for seat in found if seat >= 0]
            of_group += [place] * len(self.scored[-1])
        self.read, self.paid = read, paid
        self.dense = list(dict.fromkeys(n for p in paid for n in p if n != "base"))
        lengths = np.array([len(t.turns) for t in read], dtype=np.int64)
        self.seat = np.array(seats, dtype=np.int64)
        self.length = lengths[self.seat]
        self.owner = np.repeat(np.arange(len(seats)), self.length)
        first = np.cumsum(self.length) - self.length
        self.turn = np.arange(len(self.owner)) - first[self.owner]
        self.row = (np.cumsum(lengths) - lengths)[self.seat][self.owner] + self.turn
        self.of_group = np.array(of_group, dtype=np.int64)
        self.group = self.of_group[self.owner]
        self.live = self._gathered([np.isin(np.arange(len(t.turns)), t.turn) for t in read])
        alone = np.bincount(self.of_group, minlength=len(groups)) < 2
        self.silent = alone[self.group] | (self.live == 0.0)
        self._cells: dict[str, _Cells] = {}

    def split(self, values: Array) -> list[list[Array]]:
        """Values of rows, trajectory by trajectory; zeros for those that are not here."""
        pieces = iter(np.split(values, np.cumsum(self.length)[:-1]))
        return [
            [
                next(pieces) if here else np.zeros(len(one.turns))
                for one, here in zip(group, seats, strict=True)
            ]
            for group, seats in zip(self.groups, self.seats, strict=True)
        ]

    def names(self, term: Term) -> list[str]:
        """The channels of a term.

        Raises:
            ValueError: One is nowhere.
        """
        found: dict[str, None] = {}
        for name in term.channels:
            if name == "*":
                found |= dict.fromkeys(self.dense)
            elif name in ("base", *self.dense, *DERIVED) or not self.read:
                found[name] = None
            else:
                raise ValueError(
                    f"channel {name!r} must be paid by the reward stack, got "
                    f"{['base', *self.dense]}{nearest(name, self.dense)}"
                )
        return list(found)

    def amounts(self, name: str, gamma: float) -> Array:
        """What a channel paid for each row."""
        if name in DERIVED:
            return self._gathered([DERIVED[name](t, gamma) for t in self.read])
        return self._gathered(
            [
                paid[name] if name in paid else np.zeros(len(t.turns))
                for t, paid in zip(self.read, self.paid, strict=True)
            ]
        )

    def returns(self, ret: str, amounts: Array, gamma: float) -> Array:
        """The amounts summed as ``ret`` says."""
        if ret == "step":
            return amounts
        if ret == "episode":
            return _totals(self.owner, amounts)[self.owner]
        if ret in PLACES:
            sums = _totals(self.owner, amounts)
            ends = np.cumsum([len(group) for group in self.scored])[:-1]
            parts = zip(self.scored, np.split(sums, ends), strict=True)
            placed = [PLACES[ret](group, part) for group, part in parts if group]
            return np.concatenate(placed)[self.owner]
        if ret == "tree":
            return self._tree(amounts, gamma)
        grid = np.zeros((len(self.length), int(self.length.max()) + 1))
        grid[self.owner, self.turn] = amounts
        for turn in range(grid.shape[1] - 2, -1, -1):
            grid[:, turn] += gamma * grid[:, turn + 1]
        return grid[self.owner, self.turn]

    def compared(self, values: Array, term: Term) -> Array:
        """The values less what they are compared with, divided as the term says."""
        cells, base = self.cells(term.key), np.zeros(len(values))
        if term.centre == "mean":
            base = cells.mean(values, term.members)
        elif term.centre == "loo":
            base, count = cells.others(values, term.members)
            pooled, company = self.cells("group").others(values, term.members)
            base = (count * base + term.prior * pooled) / np.maximum(count + term.prior, EPS)
            base = np.where(count > 0.0, base, pooled)
            base = np.where(company > 0.0, base, values)
        off = values - base
        off[np.abs(off) <= ROUNDING * (np.abs(values) + np.abs(base))] = 0.0
        if term.scale == "group_std":
            off /= cells.std(values, term.members) + EPS
        elif term.scale == "batch_std":
            off /= self.spread(off, term.members) + EPS
        return off

    def spread(self, values: Array, members: str) -> float:
        """The standard deviation of all values."""
        everyone = _Cells(self.owner, np.zeros_like(self.owner), self.live)
        return float(everyone.std(values, members)[0])

    def cells(self, key: str) -> _Cells:
        """Rows by trajectory and bucket."""
        if key not in self._cells:
            kinds: dict[Hashable, int] = {}
            names = [[kinds.setdefault(k, len(kinds)) for k in KEYS[key](t)] for t in self.read]
            bucket = self.group * len(kinds) + self._gathered(names).astype(np.int64)
            owner = self._nodes() if key == "parent" else self.owner
            self._cells[key] = _Cells(owner, np.unique(bucket, return_inverse=True)[1], self.live)
        return self._cells[key]

    def weights(self, routing: Routing, gamma: float) -> Array:
        """What a routing gives each row."""
        found: Array = np.concatenate([w for g in routing(self.scored, gamma) for w in g])
        return found

    def _nodes(self) -> NDArray[np.int64]:
        """Number of the node of each row: rows of one group that share all up to their turn."""
        kinds: dict[Hashable, int] = {}
        names = [[kinds.setdefault(k, len(kinds)) for k in _prefixes(t)] for t in self.read]
        node = self.group * len(kinds) + self._gathered(names).astype(np.int64)
        return np.unique(node, return_inverse=True)[1]

    def _tree(self, amounts: Array, gamma: float) -> Array:
        """The best of the trajectories through each node, and whether its calls worked."""
        worth = _totals(self.owner, amounts)[self.owner]
        leaf = gamma ** (self.length[self.owner] - 1 - self.turn) * worth
        node = self._nodes()
        best = np.full(int(node.max()) + 1, -np.inf)
        np.maximum.at(best, node, leaf)
        fine = [[float(turn.calls > turn.refused == 0) for turn in t.turns] for t in self.read]
        return best[node] + FORMAT_WORTH * self._gathered(fine)

    def _gathered(self, columns: Iterable[Any]) -> Array:
        """A column of the trajectories that were read, as rows."""
        flat = [np.asarray(column, dtype=np.float64) for column in columns]
        return np.concatenate(flat)[self.row] if flat else np.zeros(0)


def _summed(table: _Table, rule: Estimator, gamma: float, only: str | None) -> Array:
    """Advantages of the rows; of one channel alone where one is named."""
    found = np.zeros(len(table.owner))
    if not table.read:
        return found
    for term in rule.terms:
        own = gamma if term.gamma is None else term.gamma
        names = [n for n in table.names(term) if only is None or n == only]
        if not names:
            continue
        amounts = [table.amounts(name, own) for name in names]
        part = np.zeros(len(found))
        for paid in amounts if term.apart else [sum(amounts, np.zeros(len(found)))]:
            if term.order == "ret_then_norm":
                part += table.compared(table.returns(term.ret, paid, own), term)
            else:
                part += table.returns(term.ret, table.compared(paid, term) * table.live, own)
        if term.routing is not None:
            part *= table.weights(term.routing, own)
        found += term.weight * part
    if rule.batch_std:
        found /= table.spread(found, "trajectories") + EPS
    found[table.silent] = 0.0
    return found


def rule_of(estimator: str | Estimator, allow_std_on_dense: bool = False) -> Estimator:
    """The estimator of a name, or itself.

    Raises:
        ValueError: There is none, or it scales dense rewards and may not.
    """
    rule = estimator
    if isinstance(rule, str):
        rule = ESTIMATORS[one_of("estimator", rule, ESTIMATORS)]
    for term in rule.terms:
        scaled = term.scale != "none" or rule.batch_std
        if scaled and term.dense and not (allow_std_on_dense or term.std_on_dense):
            raise ValueError(
                f"estimator {rule.name!r} divides dense rewards by a standard deviation, which "
                "makes small ones as large as any; pass allow_std_on_dense=True to do it all the "
                "same"
            )
    return rule


def _shaping(trajectory: Trajectory, gamma: float, keep: bool) -> Array:
    """``gamma * progress' - progress`` of each turn; 0 for what was never measured."""
    curve = np.nan_to_num(trajectory.curve)
    after = curve[1:].copy()
    if not keep:
        after[-1] = 0.0
    return gamma * after - curve[:-1]


DERIVED: Mapping[str, Callable[[Trajectory, float], Array]] = MappingProxyType(
    {
        "phi:keep": lambda t, gamma: _shaping(t, gamma, True),
        "phi:zero": lambda t, gamma: _shaping(t, gamma, False),
    }
)
"""Channels that no stack has to pay. From the curve, because what a layer called ``potential``
pays at the end of an episode depends on how the layer was made."""


def _rows() -> Iterator[Estimator]:
    """The methods."""
    all_ = ("base", "*")
    outcome = Term(("base",), "episode", members="trajectories")
    yield Estimator("outcome", (outcome,), "Kool, van Hoof and Welling (2019)", "the outcome")
    yield Estimator("rloo", (outcome,), "Ahmadian et al. (2024)", "the outcome")
    mean = replace(outcome, centre="mean")
    yield Estimator(
        "dr_grpo", (mean,), "Dr. GRPO (2025)", "the outcome, times 1 - 1/G for G trajectories"
    )
    z = replace(mean, scale="group_std")
    yield Estimator("grpo", (z,), "GRPO (2024)")
    final = replace(outcome, channels=all_)
    yield Estimator("final", (final,), "our own", "outcome and channels")
    turn = Term(all_, "togo", key="checks")
    yield Estimator("turn", (turn,), "our own", "outcome and channels")
    shrunk = replace(turn, prior=4.0)
    yield Estimator("turn_shrunk", (shrunk,), "our own", "outcome and channels")
    yield Estimator("turn_pooled", (replace(turn, key="group"),), "our own", "outcome and channels")
    yield Estimator("turn_index", (replace(turn, key="turn"),), "our own", "outcome and channels")
    keep, zero = (replace(turn, channels=("base", f"phi:{end}")) for end in ("keep", "zero"))
    yield Estimator("pprs_keep", (keep,), "PPRS (2026)", "outcome and last progress")
    yield Estimator("pprs_zero", (zero,), "PPRS (2026); Ng, Harada and Russell", "the outcome")
    progress = ("base", "progress")
    whole = replace(mean, channels=progress)
    togo = Term(progress, "togo", centre="mean")
    yield Estimator("procredit", (whole, togo), "ProCredit (2026), without its deviation")
    paper = replace(whole, scale="group_std", std_on_dense=True)
    yield Estimator("procredit_paper", (paper, togo), "ProCredit (2026)")
    gain = Term(("information",), "togo")
    yield Estimator(
        "igpo", (outcome, gain), "IGPO (2025), returns first", "outcome and information"
    )
    steps = replace(gain, centre="mean", scale="group_std", order="norm_then_ret")
    yield Estimator("igpo_paper", (z, steps), "IGPO (2025)")
    rise = Term(("value",), "step", centre="none")
    yield Estimator("values", (outcome, rise), "VinePPO (2024); PAV (2024)")
    anchored = Term(all_, "togo", key="start", centre="mean")
    yield Estimator("gigpo", (mean, anchored), "GiGPO (2025)")
    episode, step = (
        Term(
            ("base", "match"), "episode", centre="mean", scale="group_std", members="trajectories"
        ),
        Term(("base", "match"), "togo", key="turn", centre="mean", scale="group_std"),
    )
    halves = (replace(episode, weight=0.5), replace(step, weight=0.5))
    yield Estimator("matchtir", halves, "MatchTIR (2026)")
    each = replace(z, channels=all_, apart=True)
    yield Estimator("gdpo", (each,), "GDPO (2026)", batch_std=True)
    yield Estimator("siop", (replace(steps, channels=all_),), "SIOP (2026)")
    yield Estimator("lean4", (replace(turn, key="stage", centre="mean"),), "Lean4AgenticRL (2026)")
    node = Term(("base",), "tree", key="parent", centre="mean", members="trajectories")
    yield Estimator("portool", (mean, node), "PORTool (2025)")
    cost = replace(outcome, channels=("turncost",), routing=gate_group(0.5))
    gated = "the outcome, and the cost times the chance that the gate is open"
    yield Estimator("grpo_lambda", (outcome, cost), "GRPO-lambda (2025)", gated)
    judged = replace(outcome, channels=("rubric",))
    yield Estimator(
        "trust",
        (outcome, replace(judged, routing=trust())),
        "Trust-GRPO (2025)",
        "the outcome, and the score times the mean weight",
    )
    yield Estimator("hero", (replace(judged, ret="strata"),), "HERO (2025)")
    yield Estimator("arena", (replace(judged, ret="rank", centre="mean"),), "ArenaRL (2026)")


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType({row.name: row for row in _rows()})
"""Methods by name. ``"turn"`` is the default: from each turn on, the discounted sum of outcome and
channels, less what the other trajectories got from turns that began in the same place."""
