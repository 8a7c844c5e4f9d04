"""What has been seen of a hidden answer, in bits, with no model in the loop.

A world knows which answers are possible at first and which facts remove which of them. Where a task
carries that as data, the share of the answer's initial bits that the agent has settled is exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Range = tuple[int, int]
"""First candidate, and the one past the last."""


@dataclass(frozen=True, slots=True)
class Clue:
    """What somebody knows who has seen all of some records.

    Attributes:
        records: The records, at least one.
        removes: Candidates that they rule out.
    """

    records: tuple[str, ...]
    removes: tuple[Range, ...]


@dataclass(frozen=True)
class Candidates:
    """The answers that are possible, by number, and what rules them out.

    After the records ``s`` were seen, those are left that no clue with ``records <= s`` removes.
    The clues must be complete: a candidate is left exactly if some world that agrees with all that
    was seen, and with what the task says of worlds, has it as the answer.

    Attributes:
        count: Candidates before anything is seen, at least 2.
        clues: In any order.

    Raises:
        ValueError: There is no choice, a clue has no record or an empty or foreign range, or all
            clues together leave no candidate, so the right one would be ruled out.

    Source: exact information gain, divided by the initial bits so that it sums to at most 1.
    """

    count: int
    clues: tuple[Clue, ...]

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"count must be at least 2, got {self.count!r}")
        for clue in self.clues:
            if not clue.records:
                raise ValueError(f"a clue must have at least one record, got {clue!r}")
            for first, past in clue.removes:
                if not 0 <= first < past <= self.count:
                    raise ValueError(
                        f"ranges must be 0 <= first < past <= {self.count}, got {(first, past)!r}"
                    )
        if not self._left(self.clues):
            raise ValueError("clues must leave the right candidate, together they leave none")

    def left(self, seen: Collection[str]) -> int:
        """How many candidates are left once the records in ``seen`` were seen."""
        return self._left(
            clue
            for record in seen
            for clue in self._ending.get(record, ())
            if all(other in seen for other in clue.records)
        )

    def information(self, seen: Collection[str]) -> float:
        """Share of the initial bits that ``seen`` settles: in [0, 1], 1.0 at one candidate.

        It never falls as more is seen, so gains sum to at most 1.
        """
        return 1.0 - math.log2(self.left(seen)) / math.log2(self.count)

    def as_json(self) -> dict[str, Any]:
        """The same as plain data, for digests."""
        return {"count": self.count, "clues": [[c.records, c.removes] for c in self.clues]}

    @cached_property
    def _ending(self) -> dict[str, list[Clue]]:
        """Each clue under one of its records, so that only those are tried that can hold."""
        found: dict[str, list[Clue]] = {}
        for clue in self.clues:
            found.setdefault(clue.records[-1], []).append(clue)
        return found

    def _left(self, clues: Iterable[Clue]) -> int:
        removed = 0  # a number whose bits are candidates: their union is one operation
        for clue in clues:
            for first, past in clue.removes:
                removed |= (1 << past) - (1 << first)
        return self.count - removed.bit_count()
