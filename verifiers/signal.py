"""What a verdict is worth: the numbers from which wrappers make dense rewards.

A signal reads verdicts only, so it works on any environment that can be graded. A failed
measurement has no value: both raise on *no verdict*, and callers carry the last value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headway.arguments import nearest
from headway.verifiers.check import Verdict, penalty


class Potential(Protocol):
    """How good a state is."""

    @property
    def name(self) -> str:
        """The key under which the value stands in ``info["headway"]["phi"]``."""
        ...

    def value(self, verdict: Verdict) -> float:
        """In [0, 1]; 0 where nothing is done.

        Raises:
            ValueError: There is no verdict.
        """
        ...


class StepSignal(Protocol):
    """How good a turn was."""

    @property
    def name(self) -> str:
        """The name of the channel."""
        ...

    def score(self, before: Verdict, after: Verdict) -> float:
        """A finite number.

        Raises:
            ValueError: One of the two is no verdict.
        """
        ...


class Checks:
    """The share of a task's checks that count: the verdict's own progress."""

    name = "checks"

    def value(self, verdict: Verdict) -> float:
        """In [0, 1], and 1.0 exactly on success; ValueError on *no verdict*."""
        _measured(verdict)
        return verdict.progress


class Milestones:
    """Ordered groups of checks, of which a later one is worth nothing before the earlier ones.

    Args:
        groups: Ids of the checks of each milestone, in order; no id twice.

    Raises:
        ValueError: There is no group, one is empty or a bare text, or an id occurs twice.

    Source: milestones of MiRA, with the next one counted in part.
    """

    name = "milestones"

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        if not groups or any(isinstance(group, str) or not group for group in groups):
            raise ValueError(f"groups must be non-empty lists of check ids, got {groups!r}")
        ids = [name for group in groups for name in group]
        if len(set(ids)) != len(ids):
            raise ValueError(f"each check id may occur once in groups, got {groups!r}")
        self.groups = tuple(tuple(group) for group in groups)

    def value(self, verdict: Verdict) -> float:
        """Milestones reached in order, plus the share of the next, over their number.

        In [0, 1]; violations cost what they cost in the verdict's progress.

        Raises:
            ValueError: There is no verdict, or it has no check of a name in ``groups``.
        """
        _measured(verdict)
        for name in (name for group in self.groups for name in group):
            if name not in verdict.ok:
                hint = nearest(name, verdict.ok)
                raise ValueError(f"groups must name checks of the task, got {name!r}{hint}")
        reached = 0.0
        for group in self.groups:
            share = sum(verdict.ok[name] for name in group) / len(group)
            reached += share
            if share < 1.0:
                break
        return reached / len(self.groups) * penalty(len(verdict.violations))


def _measured(verdict: Verdict) -> None:
    if verdict.status != "ok":
        raise ValueError(f"a state without a verdict has no value: {verdict.reason}")
