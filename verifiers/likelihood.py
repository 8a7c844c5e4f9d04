"""How likely the right answer is, given what was said and seen so far."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from headway.arguments import named, one_of
from headway.verifiers.check import Verdict
from headway.verifiers.reference import submits
from headway.verifiers.signal import Look, Potential, measured, told

Scorer = Callable[[str, Sequence[str]], Sequence[float]]
"""``scorer(context, answers)``: for each answer the mean log-probability of its tokens, each given
the context and the tokens before it (teacher-forced). At most 0; -inf is allowed."""

Mode = Literal["prob", "logp"]
"""The mean probability of a token, or its logarithm on a scale from 0 to 1."""

Control = Literal["blank", "subtract"]
"""The agent's words alone, or what the replies add to them."""

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
    return _TOKEN.findall(_folded(text))


SCORERS: Mapping[str, Scorer] = MappingProxyType({"cache": cache_model})
"""Scorers by the names that wrappers take."""


class AnswerLikelihood(Potential):
    """How likely the right answer is after what was said and seen, in the eyes of a scorer.

    The context is the task, then each turn's action and reply, then ``STUB``. Of several right
    answers the likeliest counts. It has no value in tasks without a right answer.

    A turn that calls ``submit`` adds nothing to it: what is handed in is judged by the outcome.

    The agent's own words are part of the context, so guessing aloud counts as well: it is paid to
    recite all answers there could be, without a look at anything. To learn from, take
    ``control="subtract"``. The context is scored a second time with filler for all replies, but for
    words in them that the agent said before, as an echo would; the value is what the replies add to
    that, at its greatest so far in the episode. So the agent's words add nothing, and to quote what
    was read takes nothing. A guess that is said before it is read leaves less to add, and what a
    tool computes for the agent is a reply. ``control="blank"`` hides every reply behind filler of
    its shape: the gain from the agent's words, to be held against the gain without a control.

    A scorer that raises in mid-episode has measured nothing: the last value stands and ``failed``
    says why. One that returns anything but a number of at most 0 for each answer is wrong, and
    that raises.

    Args:
        scorer: One of ``SCORERS``, or ``"module:function"`` of the form of :data:`Scorer`.
        mode: With l the mean log-probability, cut at ``FLOOR``: ``"prob"`` is ``exp(l)``,
            ``"logp"`` is ``1 - l / FLOOR``, for long answers, whose probabilities vanish.
        control: None, ``"blank"``, or ``"subtract"``, which asks the scorer twice a turn.

    Attributes:
        name: ``"likelihood"``, and ``":"`` with the control where there is one.
        failed: Why the last measurement failed; empty if it did not.

    Raises:
        ValueError: An argument is outside its range.

    Source: IGPO (2025); likelihood-based reward designs for the logarithmic form.
    """

    hears = True
    memory: ClassVar[tuple[str, ...]] = (
        *("transcript", "shadow", "words"),
        *("answers", "last", "failed"),
    )

    def __init__(
        self,
        *,
        scorer: str = "cache",
        mode: Mode = "prob",
        control: Control | None = None,
    ) -> None:
        self.scorer = scorer
        self.mode: Mode = one_of("mode", mode, ("prob", "logp"))
        self.control = one_of("control", control, (None, "blank", "subtract"))
        self.name = "likelihood" if control is None else f"likelihood:{control}"
        self._score = named("scorer", scorer, SCORERS)
        self.transcript: list[str] = []
        self.shadow: list[str] = []  # the same without what is hidden
        self.words: dict[str, None] = {}  # what the agent said
        self.answers: list[str] = []
        self.last: float | None = None
        self.failed = ""

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Adds a turn to the transcript; at reset begins a new one and asks for the answers."""
        reply = observation if isinstance(observation, str) else str(observation)
        self.failed = ""
        if action is None:
            self.answers = [one for one in told(look, "gold") if tokens(one)]
            self.last = None
            self.transcript, self.shadow, self.words = [reply], [reply], {}
            return
        if submits(info):
            return
        said = action if isinstance(action, str) else ""
        self.transcript += [said, reply]
        if self.control == "subtract":
            # As it was read, too: what is spelt in escapes comes back in letters.
            calls = [(call["tool"], call["args"]) for call in info.get("calls", ())]
            for text in _texts([said, calls]):
                self.words |= dict.fromkeys(tokens(text))
        if self.control is not None:
            self.shadow += [said, blanked(reply, self.words)]

    def value(self, verdict: Verdict) -> float | None:
        """In [0, 1]; None without a right answer.

        Raises:
            ValueError: There is no verdict, or the scorer returned nonsense.
        """
        measured(verdict)
        if not self.answers:
            return None
        seen, said = ("\n".join([*filter(None, t), STUB]) for t in (self.transcript, self.shadow))
        asked = {None: [seen], "blank": [said], "subtract": [seen, said]}[self.control]
        try:
            scores = [self._score(context, list(self.answers)) for context in asked]
        except Exception as error:  # the scorer's failure says nothing about the agent
            if self.last is None:
                raise
            self.failed = f"{type(error).__name__}: {error}"[:200]
            return self.last
        count = len(self.answers)
        found = [likelihood(_best(self.scorer, one, count), self.mode) for one in scores]
        if self.control == "subtract":
            # Latched: a quotation raises both, and would take back what reading was paid.
            self.last = max(self.last or 0.0, found[0] - found[1])
        else:
            self.last = found[0]
        return self.last


def likelihood(l: float, mode: Mode) -> float:  # noqa: E741  # the letter of the papers
    """A mean log-probability as a number in [0, 1].

    Args:
        l: At most 0, in nats; cut at ``FLOOR``.
        mode: ``"prob"`` or ``"logp"``, see :class:`AnswerLikelihood`.
    """
    cut = max(l, FLOOR)
    return math.exp(cut) if mode == "prob" else 1.0 - cut / FLOOR


def blanked(text: str, but: Collection[str] = ()) -> str:
    """Filler of the same length, lines and word lengths, in which nothing can be read.

    Args:
        text: What to hide.
        but: Tokens, as :func:`tokens` gives them, that stay, each as a word by itself.
    """
    if but:
        text = _folded(text)
    return _TOKEN.sub(lambda t: f" {t[0]} " if t[0] in but else "_" * len(t[0]), text)


def _texts(value: Any) -> Iterator[str]:
    """All that can be read in a JSON value."""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    else:
        yield str(value)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


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
