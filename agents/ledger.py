"""What a run has spent, so that methods can be compared at equal tokens and at equal time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

TOKENS = ("policy", "prefill", "scorer", "continuations")
"""Kinds of tokens: sampled by the policy, read by it, forced through it to score an answer, and
sampled in continuations that only estimate values."""

SECONDS = ("policy", "scorer", "continuations", "checks", "learner", "evaluation")
"""Kinds of time: generation, scoring, continuations, environments with their checks, updates, and
evaluations, which are no part of training."""


@dataclass(slots=True)
class Ledger:
    """Tokens and seconds by what they were spent on.

    Attributes:
        clock: What seconds are counted by; the wall's.
        tokens: By the names in ``TOKENS``.
        seconds: By the names in ``SECONDS``.
    """

    clock: Callable[[], float] = perf_counter
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECONDS, 0.0))

    @property
    def generated(self) -> int:
        """Tokens that count against a budget: all but those that are only read.

        A scored answer and a continuation cost what sampling costs, so a reward that needs them
        pays for them.
        """
        return sum(self.tokens.values()) - self.tokens["prefill"]

    @property
    def trained(self) -> float:
        """Seconds that count against a budget: all but evaluations."""
        return sum(self.seconds.values()) - self.seconds["evaluation"]

    def charge(self, tokens: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """Adds what something has cost.

        Raises:
            KeyError: There is no such kind.
        """
        for kind, count in tokens.items():
            self.tokens[kind] = self.tokens[kind] + int(count)
        for kind, spent in seconds.items():
            self.seconds[kind] = self.seconds[kind] + float(spent)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Charges the time of a block, also of one that raises.

        Raises:
            KeyError: There is no such kind.
        """
        self.seconds[kind] += 0.0
        start = self.clock()
        try:
            yield
        finally:
            self.seconds[kind] += self.clock() - start

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"tokens": dict(self.tokens), "seconds": dict(self.seconds)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned.

        Raises:
            KeyError: A kind is missing or unknown.
        """
        for mine, theirs in ((self.tokens, state["tokens"]), (self.seconds, state["seconds"])):
            if mine.keys() != theirs.keys():
                raise KeyError(f"a ledger has the kinds {list(mine)}, got {list(theirs)}")
            mine.update(theirs)
