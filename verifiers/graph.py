"""Progress through a graph of checks, in which what rests on something broken is worth less."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal

from headway.arguments import number, one_of
from headway.verifiers.check import Node, Verdict, penalty
from headway.verifiers.signal import Potential, measured

Decay = Literal["near", "far"]
"""Where a break costs more: at what is next to it, or at what is far from it."""

Mark = Literal["U", "V", "B"]
"""Unverified, verified, or broken: it was verified once and does not hold now."""


class Graph(Potential):
    """The mean over the acting checks of what each is worth, in the graph of what needs what.

    A check becomes verified when it begins to count, broken when it stops by itself, and verified
    again when it is repaired. A verified check is worth 1, or ``exp(-lam / d)`` if it rests on
    a broken one, d steps away at the nearest; all others are worth 0. In a verdict a check
    whose prerequisite fell does not count either, so until that is back it keeps the mark it
    had; what became true of it in between shows then. Violations cost what they cost in the
    verdict's progress. What was only seen cannot break and is no node: checks that need evidence
    need what that needs.

    Args:
        lam: How much a break costs what rests on it, in (0, inf).
        decay: ``"near"`` for the formula above. ``"far"`` for ``exp(-lam * d)``, where one break
            more, nearer than the last, can raise the value of what rests on both.

    Raises:
        ValueError: An argument is outside its range.

    Source: DARS (2026). Its page fixes exp(-lam) at distance 1 and the mean; larger distances are
    our reading, and so are the events, which are read from verdicts instead of an annotator.
    """

    name = "graph"
    memory: ClassVar[tuple[str, ...]] = ("marks",)

    def __init__(self, *, lam: float = 0.5, decay: Decay = "near") -> None:
        self.lam = number("lam", lam, "(0, inf)")
        self.decay: Decay = one_of("decay", decay, ("near", "far"))
        self.marks: dict[str, Mark] = {}

    def begin(self, before: Verdict) -> None:
        """Nothing is verified, and so nothing is broken."""
        self.marks = {}

    def value(self, verdict: Verdict) -> float | None:
        """In [0, 1], 1.0 with all verified and nothing damaged; None without acting checks.

        Raises:
            ValueError: There is no verdict.
        """
        measured(verdict)
        needs = prerequisites(verdict.nodes)
        if not needs:
            return None
        self.marks = marked(self.marks, verdict.ok, needs)
        worth = worths(self.marks, needs, lam=self.lam, decay=self.decay)
        return sum(worth.values()) / len(worth) * penalty(len(verdict.violations))


def prerequisites(checks: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """The acting checks with the acting checks that each needs next, through evidence as well.

    Args:
        checks: A check comes after all that it needs.
    """
    needs: dict[str, tuple[str, ...]] = {}
    evidence = {check.id for check in checks if check.evidence}
    for check in checks:
        direct: dict[str, None] = {}
        for name in check.needs:
            direct |= dict.fromkeys(needs[name] if name in evidence else (name,))
        needs[check.id] = tuple(direct)
    return {name: found for name, found in needs.items() if name not in evidence}


def marked(
    marks: Mapping[str, Mark], ok: Mapping[str, bool], needs: Mapping[str, Sequence[str]]
) -> dict[str, Mark]:
    """The marks after a turn.

    Args:
        marks: Those before it; a check that is not there is unverified.
        ok: Whether each check counts now.
        needs: What each check needs next, itself after all that.
    """
    after: dict[str, Mark] = {}
    for name, before in needs.items():
        was = marks.get(name, "U")
        if ok[name]:
            after[name] = "V"
        elif was == "V" and all(ok[one] for one in before):
            after[name] = "B"
        else:
            after[name] = was
    return after


def worths(
    marks: Mapping[str, Mark], needs: Mapping[str, Sequence[str]], *, lam: float, decay: Decay
) -> dict[str, float]:
    """What each check is worth, in [0, 1].

    Args:
        marks: The mark of each.
        needs: What each needs next, itself after all that.
        lam: In (0, inf).
        decay: ``"near"`` or ``"far"``, see :class:`Graph`.
    """
    distance: dict[str, float] = {}  # to the nearest broken check at or below
    worth: dict[str, float] = {}
    for name, before in needs.items():
        d = 1.0 + _least(distance[one] for one in before)
        distance[name] = 0.0 if marks[name] == "B" else d
        if marks[name] != "V":
            worth[name] = 0.0
        elif math.isinf(d):
            worth[name] = 1.0
        else:
            worth[name] = math.exp(-lam / d if decay == "near" else -lam * d)
    return worth


def _least(values: Iterable[float]) -> float:
    return min(values, default=math.inf)
