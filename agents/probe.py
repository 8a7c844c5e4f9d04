"""Information gain with the policy itself as the judge, on the cache that it plays from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.agents.policy import Template
from headway.arguments import number, one_of
from headway.verifiers import AnswerLikelihood, Look
from headway.verifiers.likelihood import STUB, Control, Mode
from headway.wrappers.information import Gain

_MARK = "QZANSWER"
"""A text that no format changes."""


class Probe:
    """How a rollout measures what each turn of looking was worth.

    After each turn the policy is asked, in passing, for the right answer: the answer is put behind
    the context as if the policy wrote it, and what the policy thinks of it is read off. That is the
    potential of :class:`~headway.wrappers.information.Gain`, whose amounts stand in
    ``Turn.channels``. What is written there is not kept, so the episode goes on as if nobody had
    asked. The turn that ends an episode is paid 0 and not measured, a cut one is measured.

    Args:
        gamma: The learner's discount per turn, in (0, 1].
        c: Worth of knowing the answer beside the outcome of 1.0, in (0, 1).
        mode: ``"prob"``, or ``"logp"`` for long answers, whose probabilities vanish.
        control: As in :class:`~headway.verifiers.AnswerLikelihood`: ``"subtract"`` takes away what
            is as likely where all replies are blanked, ``"blank"`` pays for that alone, to compare
            with. Both read every context twice. None takes nothing away.
        mismatch: Whether the answer is that of another task of the same rollout, to compare with: a
            gain that does not care which answer it is measures something else.
        stub: What stands before the answer. None takes the call that hands it in, where the
            environment has ``format``, and ``"Answer:"`` elsewhere.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range.

    Source: IGPO (2025), with differences under the learner's discount.
    """

    def __init__(
        self,
        *,
        gamma: float,
        c: float = 0.5,
        mode: Mode = "prob",
        control: Control | None = None,
        mismatch: bool = False,
        stub: str | None = None,
        name: str = "information",
    ) -> None:
        self.gamma = number("gamma", gamma, "(0, 1]")
        self.c = number("c", c, "(0, 1)")
        self.control = control
        self.mode = mode
        self.mismatch = one_of("mismatch", mismatch, (False, True))
        self.stub = stub
        self.name = name
        self.channel()

    def channel(self) -> Gain:
        """A new channel, for one episode."""
        live = Live(mode=self.mode, control=self.control)
        return Gain(self.name, gamma=self.gamma, scale=self.c, potential=live)

    def spelt(
        self, template: Template, answers: Sequence[str], look: Look
    ) -> list[tuple[list[int], int]]:
        """For each answer the ids that are put behind a context, and where the answer begins.

        Args:
            template: Of the policy.
            answers: The right ones.
            look: What the environment can tell.
        """
        return [template.spelt(*self._around(answer, look)) for answer in answers]

    def _around(self, answer: str, look: Look) -> tuple[str, str]:
        """What stands before the answer, and the answer as it would be written there."""
        if self.stub is not None:
            return self.stub, f" {answer}"
        try:
            form = look("format")
        except AttributeError:
            return STUB, f" {answer}"
        before, _, after = form("submit", {"answer": _MARK}).partition(_MARK)
        text = form("submit", {"answer": answer})
        return before, text[len(before) : len(text) - len(after)]


class Live(AnswerLikelihood):
    """What is known of the answer, as told by who has the cache.

    Args:
        mode: As in :class:`~headway.verifiers.AnswerLikelihood`.
        control: Likewise.

    Attributes:
        scores: For each context that is asked for (as it was, then blanked) the mean
            log-probabilities of the answers; empty where they could not be measured.
    """

    def __init__(self, *, mode: Mode, control: Control | None) -> None:
        super().__init__(mode=mode, control=control)
        self.scores: list[Sequence[float]] = []
        self._score = self._told

    @property
    def reply(self) -> str:
        """The last reply as it stands in the blanked context."""
        return self.shadow[-1]

    def _told(self, context: str, answers: Sequence[str]) -> Sequence[float]:
        if not self.scores:
            raise ValueError("the answer does not fit behind the context")
        return self.scores.pop(0)


def shifted(golds: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """For each task the answers of the next that has others; none where no task has others.

    Args:
        golds: Right answers of each task, which may be none.
    """
    found = []
    for at, own in enumerate(golds):
        others = [*golds[at + 1 :], *golds[:at]]
        known = (tuple(one) for one in others if one and not set(one) & set(own))
        found.append(next(known, ()) if own else ())
    return found


def looking(look: Look, golds: Sequence[str] | None) -> Look:
    """``look``, with other right answers unless they are None."""
    if golds is None:
        return look

    def see(name: str) -> Any:
        return (lambda: golds) if name == "gold" else look(name)

    return see
