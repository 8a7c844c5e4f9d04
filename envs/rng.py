"""Seeded streams that give the same numbers in every process, release and library version.

The standard library promises only ``random.random()`` to stay as it is, and numpy may change its
distributions, so a task drawn with either can change under a user's feet. A stream here is
SHA-256 in counter mode over its key, and everything drawn from it is defined in this file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

T = TypeVar("T")

_SPAN = 1 << 64
_unpack = struct.Struct(">4Q").unpack


class Rng:
    """One frozen stream of random numbers, named by its key.

    Block ``i`` of the stream is ``sha256(sha256(key) + i)``, with ``key`` as a JSON list and ``i``
    as 8 bytes; it is read as four 64-bit words, big end first. Two streams with different keys
    are independent, and drawing from one never moves another. Copies and pickles go on from where
    the original stands.

    Args:
        *key: What the stream is for, such as ``Rng("Apps", 0, "bills", "train", 7)``. The parts
            stay apart: ``("ab", "c")`` is another stream than ``("a", "bc")``, and ``1`` another
            than ``"1"``.

    Raises:
        TypeError: A part is neither a str nor an int (a bool or a numpy integer is neither).
        ValueError: The key is empty.
    """

    __slots__ = ("_base", "_block", "_used", "_words", "key")

    def __init__(self, *key: str | int) -> None:
        if not key:
            raise ValueError("key must have at least one part, got none")
        for part in key:
            if not isinstance(part, str | int) or isinstance(part, bool):
                raise TypeError(f"key must hold only str and int, got {part!r} in {key!r}")
        self.key = key
        # Unescaped, because "\ud83c\udf78" and the character it stands for are escaped alike.
        text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
        self._base = sha256(text.encode("utf-8", "surrogatepass")).digest()
        self._block = 0
        self._words: tuple[int, ...] = ()  # never a list: a shallow copy would share it
        self._used = 0

    def __repr__(self) -> str:
        return f"Rng{self.key!r}" if len(self.key) > 1 else f"Rng({self.key[0]!r})"

    def sub(self, *name: str | int) -> Rng:
        """The stream of the longer key ``(*self.key, *name)``, whatever was drawn here.

        Raises:
            TypeError: A part is neither a str nor an int.
            ValueError: ``name`` is empty: that would be this very stream once more.
        """
        if not name:
            raise ValueError("name must have at least one part, got none")
        return Rng(*self.key, *name)

    def below(self, n: int) -> int:
        """An int in [0, n), each as likely as the next.

        Raises:
            ValueError: ``n`` is not an int, or below 1.
        """
        if type(n) is not int or n < 1:
            raise ValueError(f"n must be an int of at least 1, got {n!r}")
        while True:
            value, span = self._word(), _SPAN
            while span < n:
                value, span = value << 64 | self._word(), span << 64
            if value < span - span % n:  # the rest of the span would favour small numbers
                return value % n

    def randint(self, a: int, b: int) -> int:
        """An int in [a, b], both ends included.

        Raises:
            ValueError: ``b`` is below ``a``.
        """
        if b < a:
            raise ValueError(f"b must be at least a, got a={a!r}, b={b!r}")
        return a + self.below(b - a + 1)

    def random(self) -> float:
        """A float in [0, 1), a multiple of 2**-53."""
        return (self._word() >> 11) * 2.0**-53

    def choice(self, seq: Sequence[T]) -> T:
        """One item.

        Raises:
            ValueError: ``seq`` is empty.
        """
        if not seq:
            raise ValueError(f"seq must have at least one item, got {seq!r}")
        return seq[self.below(len(seq))]

    def shuffled(self, seq: Sequence[T]) -> list[T]:
        """All items in random order, in a new list.

        Raises:
            TypeError: ``seq`` is not a sequence: the order of a set differs between processes.
        """
        return self.sample(seq, len(seq))

    def sample(self, seq: Sequence[T], k: int) -> list[T]:
        """``k`` items from different places, in random order.

        Raises:
            TypeError: ``seq`` is not a sequence: the order of a set differs between processes.
            ValueError: ``k`` is negative or more than there are items.
        """
        if not isinstance(seq, Sequence):
            raise TypeError(f"seq must be a list or another sequence, got {type(seq).__name__}")
        if not 0 <= k <= len(seq):
            raise ValueError(f"k must be in [0, {len(seq)}], the number of items, got {k!r}")
        items = list(seq)
        for i in range(k):
            j = i + self.below(len(items) - i)
            items[i], items[j] = items[j], items[i]
        return items[:k]

    def _word(self) -> int:
        """The next 64 bits."""
        if self._used == len(self._words):
            block = sha256(self._base + self._block.to_bytes(8, "big")).digest()
            self._words = _unpack(block)
            self._block += 1
            self._used = 0
        self._used += 1
        return self._words[self._used - 1]
