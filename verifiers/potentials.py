"""Potentials by name, so that a stack of wrappers can be written down and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from headway.arguments import named
from headway.verifiers.graph import Graph
from headway.verifiers.likelihood import AnswerLikelihood
from headway.verifiers.reference import Match
from headway.verifiers.signal import Checks, Information, Milestones, Potential

POTENTIALS: Mapping[str, Callable[[], Potential]] = MappingProxyType(
    {
        "checks": Checks,
        "milestones": Milestones,
        "graph": Graph,
        "information": Information,
        "likelihood": AnswerLikelihood,
        "match": Match,
    }
)
"""What makes a potential, by the names that wrappers take."""


def potential_named(name: str) -> Potential:
    """A new potential.

    Args:
        name: One of ``POTENTIALS``, or ``"module:function"`` for a function of your own that takes
            nothing and returns one: ``def mine(): return Milestones([["a"], ["b", "c"]])``.

    Raises:
        ValueError: There is no such name, or what it names makes no potential.
    """
    made = named("potential", name, POTENTIALS)()
    if not isinstance(made, Potential):
        raise ValueError(f"potential must name what makes a Potential, got {name!r}: {made!r}")
    return made
