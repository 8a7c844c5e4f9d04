"""Credit for calling what one right solution calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym

from headway.arguments import number
from headway.verifiers import Look, Verdict
from headway.verifiers.reference import Match, answer_score, handed_in
from headway.verifiers.signal import told
from headway.wrappers.channel import Bound, ChannelWrapper, Ended
from headway.wrappers.transforms import PotentialChannel


class Matching(PotentialChannel):
    """Pays what the calls of a turn add to the best matching, and the answer's score at the end.

    Each of the n wanted calls is worth ``scale / n``; in a task with a right answer the answer is
    one part more, ``scale / (n + 1)`` each.

    Args:
        name: Name of the channel.
        scale: In (0, inf).

    Raises:
        ValueError: ``scale`` is outside its range.
    """

    hears = True
    memory: ClassVar[tuple[str, ...]] = ("phi", "right", "said")

    def __init__(self, name: str, *, scale: float) -> None:
        super().__init__(name, Match())
        self.scale = number("scale", scale, "(0, inf)")
        self.right: list[str] = []
        self.said: str | None = None

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Takes in the calls of a turn, and what was handed in; at reset what is right."""
        super().hear(action, observation, info, look)
        if action is None:
            self.right, self.said = told(look, "gold"), None
        if (answer := handed_in(info)) is not None:
            self.said = answer

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """At least 0.0; nothing for an answer on a turn without a verdict, or without an end."""
        was, now = self.moved(after)
        if was is None or now is None:
            return 0.0
        wanted = len(self.signal.wanted) if isinstance(self.signal, Match) else 0
        parts = wanted + bool(self.right)
        paid = (now - was) * wanted
        if ended != "no" and self.said is not None and after.status == "ok":
            paid += answer_score(self.said, self.right)
        return self.scale * paid / parts

    def bound(self, gamma: float) -> Bound:
        """All of it at once at the most: a total that never falls has nothing to take back."""
        return Bound(0.0, self.scale, 0.0, self.scale)


class MatchReward(ChannelWrapper):
    """Pays for each call that one right solution makes, as far as it is like it.

    phi is :class:`headway.verifiers.Match`: the greatest total similarity of the calls so far to
    the task's reference, one to one, over its length. It never falls, and a turn pays what it
    rose by; so calls in surplus, and made again, add nothing, and an episode sums to at most ``c``.
    Where the task has a right answer, handing it in is one part more, worth the F1 of its words.
    Another solution than the reference is paid less, so the best policy may change. A task
    without a reference pays 0.0 and leaves no ``phi``. Needs ``headway[rewards]``.

    Args:
        env: An environment that offers ``grade() -> Verdict`` and ``reference()``, itself or in a
            wrapper, and ``info["calls"]``.
        c: Worth of all of it beside the outcome of 1.0, in (0, 1).
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.
        ImportError: scipy is missing.

    Source: MatchTIR (2026); the online form, which pays what the optimum rises by, is our own.
    """

    def __init__(self, env: gym.Env[Any, Any], *, c: float = 0.5, name: str = "match") -> None:
        gym.utils.RecordConstructorArgs.__init__(self, c=c, name=name)
        super().__init__(env, Matching(name, scale=number("c", c, "(0, 1)")))
