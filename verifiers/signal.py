"""What a verdict is worth: the numbers from which wrappers make dense rewards.

A signal reads verdicts only, so it works on any environment that can be graded. A failed
measurement has no value: both raise on *no verdict*, and callers carry the last value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from headway.arguments import nearest, whole
from headway.verifiers.check import Node, Verdict, penalty
from headway.verifiers.memory import Memory

Look = Callable[[str], Any]
"""``look(name)`` is the environment's method of that name; AttributeError where it has none."""


class Ear(Memory):
    """What may listen to the turns beside the verdicts.

    Attributes:
        hears: Whether :meth:`hear` has to be called.
    """

    hears: bool = False

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Takes in what a turn looked like, before it is paid.

        Args:
            action: The agent's; None at reset, which comes before ``begin``.
            observation: What came back.
            info: Of the same turn; ``info["calls"]`` are the tool calls that were made.
            look: What else the environment can tell: ``gold()``, ``reference()``, ``anchor()``.
        """


class Potential(Ear, ABC):
    """How good a state is.

    Attributes:
        name: The key under which the value stands in ``info["headway"]["phi"]``.
        failed: Why the last value is no measurement, but the one before it; empty if it is one.
    """

    name: str
    failed: str = ""

    def begin(self, before: Verdict) -> None:
        """Starts an episode, whose first state has the verdict ``before``, or none."""

    @abstractmethod
    def value(self, verdict: Verdict) -> float | None:
        """In [0, 1], called once a turn; None where the task has nothing of the kind.

        Raises:
            ValueError: There is no verdict.
        """


class Checks(Potential):
    """The share of a task's checks that count: the verdict's own progress."""

    name = "checks"

    def value(self, verdict: Verdict) -> float:
        """In [0, 1], and 1.0 exactly on success; ValueError on *no verdict*."""
        measured(verdict)
        return verdict.progress


class Information(Potential):
    """The share of the hidden answer's bits that the agent has earned by looking, exactly.

    ``1 - log2(|C|) / log2(|C0|)`` for the candidates C that what was seen leaves of the C0 that
    there were: never falls, and is 1.0 with one candidate left. None in tasks without candidates.
    """

    name = "information"

    def value(self, verdict: Verdict) -> float | None:
        """In [0, 1]; ValueError on *no verdict*."""
        measured(verdict)
        return verdict.information


class Milestones(Potential):
    """Ordered groups of checks, of which a later one is worth nothing before the earlier ones.

    Args:
        groups: Ids of the checks of each milestone, in order; no id twice. None takes those of
            the task: a milestone is what needs equally many checks one after another.
        partial: Whether the first milestone that is not reached counts by its share of checks
            that are met. False is the paper's form, whose values are ``n / m``.
        any_order: Whether a milestone counts before the ones in front of it are reached.

    Raises:
        ValueError: There is no group, one is empty or a bare text, or an id occurs twice.

    Source: MiRA, with the next milestone counted in part unless ``partial=False``.
    """

    name = "milestones"

    memory: ClassVar[tuple[str, ...]] = ("groups",)

    def __init__(
        self,
        groups: Sequence[Sequence[str]] | None = None,
        *,
        partial: bool = True,
        any_order: bool = False,
    ) -> None:
        self.groups: list[list[str]] = []
        self.own = groups is None
        self.partial, self.any_order = partial, any_order
        if groups is None:
            return
        if not groups or any(isinstance(group, str) or not group for group in groups):
            raise ValueError(f"groups must be non-empty lists of check ids, got {groups!r}")
        ids = [name for group in groups for name in group]
        if len(set(ids)) != len(ids):
            raise ValueError(f"each check id may occur once in groups, got {groups!r}")
        self.groups = [list(group) for group in groups]

    def begin(self, before: Verdict) -> None:
        """Takes the milestones of the task, unless they were given."""
        if self.own:
            self.groups = levels(before.nodes)

    def value(self, verdict: Verdict) -> float | None:
        """Milestones reached, plus what counts of others in part, over their number.

        In [0, 1]; violations cost what they cost in the verdict's progress. None in a task that
        has no checks to take milestones from.

        Raises:
            ValueError: There is no verdict, or it has no check of a name in ``groups``.
        """
        measured(verdict)
        for name in (name for group in self.groups for name in group):
            if name not in verdict.ok:
                hint = nearest(name, verdict.ok)
                raise ValueError(f"groups must name checks of the task, got {name!r}{hint}")
        if not self.groups:
            return None
        reached = 0.0
        for group in self.groups:
            share = sum(verdict.ok[name] for name in group) / len(group)
            reached += share if self.partial or share == 1.0 else 0.0
            if share < 1.0 and not self.any_order:
                break
        return reached / len(self.groups) * penalty(len(verdict.violations))


def levels(checks: Sequence[Node]) -> list[list[str]]:
    """Ids by how many checks each needs one after another, the acting ones first needed first."""
    depth: dict[str, int] = {}
    for check in checks:
        depth[check.id] = 1 + max((depth[name] for name in check.needs), default=-1)
    return [[name for name in depth if depth[name] == d] for d in sorted(set(depth.values()))]


def milestone_targets(reached: Sequence[int], m: int) -> list[float]:
    """What a critic of progress is taught for each state of an episode.

    ``n / m`` at each turn on which the number of reached milestones grew to n, on a straight line
    between such turns, and flat after the last. A milestone that was reached stays so.

    Args:
        reached: Milestones reached in the first state and after each turn, each in [0, m].
        m: How many there are, at least 1.

    Returns:
        As many values in [0, 1], none less than the one before; for a trainer, as nothing in
        headway trains a critic yet.

    Raises:
        ValueError: An argument is outside its range.

    Source: MiRA.
    """
    m = whole("m", m, 1)
    for n in reached:
        if whole("reached", n, 0) > m:
            raise ValueError(f"reached must be ints in [0, {m}], got {n!r}")
    best = list(accumulate(reached, max))
    targets = [n / m for n in best]
    grew = [t for t in range(len(best)) if t == 0 or best[t] > best[t - 1]]
    for a, b in pairwise(grew):
        for t in range(a + 1, b):
            targets[t] = targets[a] + (targets[b] - targets[a]) * (t - a) / (b - a)
    return targets


def told(look: Look, name: str) -> list[Any]:
    """What the environment's method ``name`` returns, as a list; empty where it has none."""
    try:
        method = look(name)
    except AttributeError:
        return []
    return list(method())


def measured(verdict: Verdict) -> None:
    """Makes sure that there is something to read.

    Raises:
        ValueError: There is no verdict.
    """
    if verdict.status != "ok":
        raise ValueError(f"a state without a verdict has no value: {verdict.reason}")
