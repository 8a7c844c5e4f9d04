"""The space of texts, and the action that is no text: an outside cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np


class Cut:
    """The class of :data:`CUT`; calling it gives that one object."""

    __slots__ = ()
    _only: ClassVar[Cut | None] = None

    def __new__(cls) -> Cut:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "headway.CUT"

    def __reduce__(self) -> str:
        """By name, so that copies and pickles are the same object in every process."""
        return "CUT"


CUT = Cut()
"""An action that says the episode was cut from outside (a full context, a spent budget).

It equals no text, and ``action is CUT`` holds across copies, pickles and processes.
"""

_SCRAPS = (
    *("a", "Zoë", "the report", "42", "-0.5", "1e9", "true", "null", "NaN"),
    *(" ", "\n", "\r\n", "\t", "\x00", "\\", '"', "'", "\\u00e9", "e\u0301"),
    *("naïve", "日本語", "שלום", "Привет", "🍸", "👩‍👩‍👧‍👦", "\u200b", "\ufeff"),
    *(
        '{"tool": "',
        '", "args": {',
        "}}",
        '{"name": "submit", "arguments": {}}',
        "[",
        "]",
        "{",
        "}",
    ),
    *("<tool_call>", "</tool_call>", "```json\n", "```", "<think>", "; rm -rf /"),
)
"""What samples are made of: prose of several scripts, and pieces of calls."""


class TextSpace(gym.spaces.Space[str]):
    """Every text, the empty one too.

    Not a ``gymnasium.spaces.Text``: that holds only what its charset lists and looks at each
    character. Vector environments carry it as tuples of str. Shared memory cannot: there
    ``AsyncVectorEnv`` takes ``shared_memory=False``, and says so if it is missing.

    Args:
        max_length: Characters of the longest text, at least 0; None for no limit.
        cut: Whether :data:`CUT` belongs to the space too, as it does for actions. It is never
            drawn.
        seed: Of the samples.

    Raises:
        ValueError: ``max_length`` is negative or not an int.
    """

    def __init__(
        self,
        max_length: int | None = None,
        *,
        cut: bool = False,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if max_length is not None and (type(max_length) is not int or max_length < 0):
            raise ValueError(f"max_length must be None or an int >= 0, got {max_length!r}")
        self.max_length = max_length
        self.cut = cut
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """No array holds every text."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a text short enough, or the cut; the length of it costs nothing."""
        if isinstance(x, str):
            return self.max_length is None or len(x) <= self.max_length
        return self.cut and x is CUT

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A text of 0 to 12 scraps: words of several scripts, numbers, pieces of tool calls.

        Raises:
            ValueError: A mask or a probability was given; this space has neither.
        """
        if mask is not None or probability is not None:
            raise ValueError(f"mask and probability must be None, got {mask!r} and {probability!r}")
        picks = self.np_random.integers(len(_SCRAPS), size=self.np_random.integers(13))
        return "".join(_SCRAPS[i] for i in picks)[: self.max_length]

    def to_jsonable(self, sample_n: Iterable[str | Cut]) -> list[str | None]:
        """Samples as JSON; the cut becomes null."""
        return [None if x is CUT else str(x) for x in sample_n]

    def from_jsonable(self, sample_n: list[str | None]) -> list[Any]:
        """Samples from what :meth:`to_jsonable` made."""
        return [CUT if x is None else x for x in sample_n]

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same texts, and both or neither the cut."""
        return (
            isinstance(other, TextSpace)
            and self.max_length == other.max_length
            and self.cut == other.cut
        )

    __hash__ = None  # type: ignore[assignment]  # as in every gymnasium space

    def __repr__(self) -> str:
        return f"TextSpace(max_length={self.max_length}, cut={self.cut})"
