"""How likely the right answer is, given what was said and seen so far."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from headway.arguments import named, one_of
from headway.verifiers.check import Verdict
from headway.verifiers.signal import Look, Potential, measured, told

Scorer = Callable[[str, Sequence[str]], Sequence[float]]
"""``scorer(context, answers)``: for each answer the mean log-probability of its tokens, each given
the context and the tokens before it (teacher-forced). At most 0; -inf is allowed."""

Mode = Literal["prob", "logp"]
"""The mean probability of a token, or its logarithm on a scale from 0 to 1."""

FLOOR = math.log(1e-8)
"""Mean log-probabilities count as no less than this, in nats."""

ROUNDING = 1e-6
"""What the logarithm of a probability may exceed 0 by."""

STUB = "Answer:"
"""What the context ends with, so that a scorer is asked for an answer and nothing else."""

WEIGHTS = (0.3, 0.4, 0.3)
"""Shares of the word before, of the words so far, and of spelling, in ``cache_model``."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def cache_model(context: str, answers: Sequence[str]) -> list[float]:
    """Scores answers by what the context repeats: a cache language model.

    A word's probability is a mixture: how often it follows the word before it in the context, how
    often it stands there at all, and a spelling by uniform bytes, which every word has. Case and
    Unicode form do not matter. It knows no language: it says whether the answer, or its words,
    are on the table, needs no weights, and gives the same figures everywhere.

    Args:
        context: All that was said and seen.
        answers: Each with at least one word or sign.

    Returns:
        Mean log-probability of a token for each answer, in nats, each whatever the others are.

    Raises:
        ValueError: An answer has no token.

    Source: Kuhn and De Mori (1990).
    """
    seen = tokens(context)
    words, pairs, firsts = Counter(seen), Counter(pairwise(seen)), Counter(seen[:-1])
    scores = []
    for answer in answers:
        spelt = tokens(answer)
        if not spelt:
            raise ValueError(f"answers must have at least one word or sign each, got {answer!r}")
        total, before = 0.0, ""
        for word in spelt:
            pair, single, floor = WEIGHTS
            if not firsts[before]:
                pair, single = 0.0, pair + single
            if not seen:
                single, floor = 0.0, 1.0
            chance = floor * math.exp(-math.log(257.0) * (len(word.encode()) + 1))
            chance += single * words[word] / max(1, len(seen))
            chance += pair * pairs[before, word] / max(1, firsts[before])
            total += math.log(chance) if chance > 0.0 else -math.inf
            before = word
        scores.append(total / len(spelt))
    return scores


def tokens(text: str) -> list[str]:
    """Words, numbers and single signs, in one Unicode form and without case."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


SCORERS: Mapping[str, Scorer] = MappingProxyType({"cache": cache_model})
"""Scorers by the names that wrappers take."""


class AnswerLikelihood(Potential):
    """How likely the right answer is after what was said and seen, in the eyes of a scorer.

    The context is the task, then each turn's action and reply, then ``STUB``. Of several right
    answers the likeliest counts. It has no value in tasks without a right answer.

    The agent's own words are part of the context, so guessing aloud counts as well, and so does the
    answer that is handed in: ``InfoGain`` leaves that turn out. With
    ``control="blank"`` replies are replaced by filler of the same shape: what is left is the gain
    from the agent's words alone, to be held against the gain without the control.

    A scorer that raises in mid-episode has measured nothing: the last value stands and ``failed``
    says why. One that returns anything but a number of at most 0 for each answer is wrong, and
    that raises.

    Args:
        scorer: One of ``SCORERS``, or ``"module:function"`` of the form of :data:`Scorer`.
        mode: With l the mean log-probability, cut at ``FLOOR``: ``"prob"`` is ``exp(l)``,
            ``"logp"`` is ``1 - l / FLOOR``, for long answers, whose probabilities vanish.
        control: None, or ``"blank"``.

    Attributes:
        failed: Why the last measurement failed; empty if it did not.

    Raises:
        ValueError: An argument is outside its range.

    Source: IGPO (2025); likelihood-based reward designs for the logarithmic form.
    """

    name = "likelihood"
    hears = True
    memory: ClassVar[tuple[str, ...]] = ("transcript", "answers", "last", "failed")

    def __init__(
        self,
        *,
        scorer: str = "cache",
        mode: Mode = "prob",
        control: Literal["blank"] | None = None,
    ) -> None:
        self.scorer = scorer
        self.mode: Mode = one_of("mode", mode, ("prob", "logp"))
        self.control = one_of("control", control, (None, "blank"))
        self._score = named("scorer", scorer, SCORERS)
        self.transcript: list[str] = []
        self.answers: list[str] = []
        self.last: float | None = None
        self.failed = ""

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Adds a turn to the transcript; at reset begins a new one and asks for the answers."""
        reply = observation if isinstance(observation, str) else str(observation)
        if action is None:
            self.transcript, self.answers = [], [one for one in told(look, "gold") if tokens(one)]
            self.last, self.failed = None, ""
        else:
            self.transcript.append(action if isinstance(action, str) else "")
            if self.control == "blank":
                reply = blanked(reply)
        self.transcript.append(reply)

    def value(self, verdict: Verdict) -> float | None:
        """In [0, 1]; None without a right answer.

        Raises:
            ValueError: There is no verdict, or the scorer returned nonsense.
        """
        measured(verdict)
        if not self.answers:
            return None
        context = "\n".join([*filter(None, self.transcript), STUB])
        try:
            scores = self._score(context, list(self.answers))
        except Exception as error:  # the scorer's failure says nothing about the agent
            if self.last is None:
                raise
            self.failed = f"{type(error).__name__}: {error}"[:200]
            return self.last
        self.failed = ""
        self.last = likelihood(_best(self.scorer, scores, len(self.answers)), self.mode)
        return self.last


def likelihood(l: float, mode: Mode) -> float:  # noqa: E741  # the letter of the papers
    """A mean log-probability as a number in [0, 1].

    Args:
        l: At most 0, in nats; cut at ``FLOOR``.
        mode: ``"prob"`` or ``"logp"``, see :class:`AnswerLikelihood`.
    """
    cut = max(l, FLOOR)
    return math.exp(cut) if mode == "prob" else 1.0 - cut / FLOOR


def blanked(text: str) -> str:
    """Filler of the same length, lines and word lengths, in which nothing can be read."""
    return re.sub(r"\S", "_", text)


def _best(scorer: str, scores: Any, count: int) -> float:
    """The greatest of the scores, once they are known to be scores."""
    try:
        found = [float(score) for score in scores]
    except (TypeError, ValueError):
        found = []
    if len(found) != count or not all(score <= ROUNDING for score in found):
        raise ValueError(
            f"scorer {scorer!r} must return a number of at most 0 for each of {count} answers, "
            f"got {scores!r}"
        )
    return min(0.0, max(found))
