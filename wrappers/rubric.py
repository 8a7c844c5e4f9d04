"""A judge's score at the end of an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import gymnasium as gym

from headway.arguments import named, number, one_of
from headway.verifiers import Look, Verdict
from headway.verifiers.judge import TASKS, Accepted, Frame, Judge, Rubric, Unjudged, accept, empty
from headway.verifiers.reference import handed_in
from headway.wrappers.channel import Bound, Channel, ChannelWrapper, Ended

Reads = Literal["answer", "transcript"]
"""What is judged: what was handed in, or all that was said and replied."""


def transcript(turns: Sequence[Sequence[str]]) -> str:
    """What was said and replied, as one text; empty where nothing was said.

    Each line of an action begins with ``>``, so none can pass for a reply.

    Args:
        turns: Pairs of an action and its reply.
    """
    if all(empty(action) for action, _ in turns):
        return ""  # all there is to read are replies
    lines = []
    for action, reply in turns:
        lines += [f"> {line}" for line in action.splitlines() or [""]]
        lines.append(reply)
    return "\n".join(lines)


def alone(answer: str) -> str:
    """The transcript of an episode of that one action."""
    return transcript([[answer, UNREAD]])


def among(answer: str) -> str:
    """The transcript of an episode with that action among honest ones that found nothing."""
    return transcript([["search", NOTHING], [answer, UNREAD], ["search", NOTHING]])


UNREAD, NOTHING = "No call could be read.", "Nothing was found."
"""Replies to an answer of the bank, and beside it."""

FRAMES: Mapping[Reads, tuple[Frame, ...]] = MappingProxyType(
    {"answer": (str,), "transcript": (alone, among)}
)
"""What the bank's answers stand in when a judge is tried: what it will be shown."""


class Judgement(Channel):
    """Pays ``scale`` times a judge's score, once, at the end.

    Args:
        name: Name of the channel.
        scale: In (0, inf).
        judge: ``(task, answer) -> score in [0, 1]``; tried on the bank of hostile answers here,
            in the frame that it will be shown.
        rubric: What it is asked about, item by item; None for one score of the whole.
        reads: ``"answer"`` or ``"transcript"``.

    Attributes:
        judge: With the scores that it gave in this episode: what was judged before has no say.
        failed: Why there is no score; empty if there is one, or the episode goes on.

    Raises:
        Refused: The judge takes answers that answer nothing for right ones.
        ValueError: An argument is outside its range.
    """

    hears = True
    failed = ""
    memory: ClassVar[tuple[str, ...]] = ("task", "turns", "answer", "failed")

    def __init__(
        self, name: str, *, scale: float, judge: Judge, rubric: Rubric | None, reads: Reads
    ) -> None:
        super().__init__(name)
        self.scale = number("scale", scale, "(0, inf)")
        self.rubric = rubric
        self.reads: Reads = one_of("reads", reads, ("answer", "transcript"))
        # A pitfall is no way to be fooled: to say that it is there costs.
        gains = rubric and Rubric(tuple(item for item in rubric.items if item[1] > 0.0))
        tasks = [q for t in TASKS for q in gains.questions(t)] if gains else TASKS
        self.judge = Accepted(judge, _rate(judge, tuple(tasks), self.reads))
        self.task = ""
        self.turns: list[list[str]] = []
        self.answer = ""

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Keeps what was said and replied; at reset, the task."""
        reply = observation if isinstance(observation, str) else str(observation)
        if action is None:
            self.task, self.turns, self.answer, self.failed = reply, [], "", ""
            self.judge = Accepted(self.judge.judge, self.judge.rate)
            return
        self.turns.append([action if isinstance(action, str) else "", reply])
        self.answer = handed_in(info) or self.answer

    def begin(self, before: Verdict) -> None:
        """Nothing to do: what is heard begins an episode."""

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """0.0 until the end; then in [0, scale], or 0.0 and ``failed``."""
        if ended == "no":
            return 0.0
        try:
            return self.scale * self._score()
        except Unjudged as error:
            self.failed = f"judge failed: {error}"
            return 0.0

    def bound(self, gamma: float) -> Bound:
        """One amount in [0, scale], whatever the discount."""
        return Bound(0.0, self.scale, 0.0, self.scale)

    def _score(self) -> float:
        said = transcript(self.turns) if self.reads == "transcript" else self.answer
        if self.rubric is None:
            return self.judge(self.task, said)
        met = [self.judge(question, said) for question in self.rubric.questions(self.task)]
        return self.rubric.score(met)


class RubricReward(ChannelWrapper):
    """Pays ``c`` times a judge's score of the answer, or of the transcript, at the end.

    The judge is tried first, here: one that passes more than 1 % of a bank of answers that answer
    nothing is refused, and the message shows which. It is shown them as it will be shown what it
    judges: with ``reads="transcript"`` as an action by itself, and as one among honest ones. Such
    answers are all that the bank knows, so a learner may find others: put it inside
    ``GatedReward(gate="success")`` where there is a verifier. An empty answer gets 0.0 and no call.
    Where the judge fails nothing is paid, and ``info["headway"]["unmeasured"]`` says
    why: mask the episode. The best policy may change.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        judge: ``"module:function"``, the function being ``(task, answer) -> score in [0, 1]``.
        rubric: Pairs of a text and a weight, below 0 for a pitfall; the judge is asked item by item
            and the score is ``clip(sum(w * c) / sum(|w|), 0, 1)``. None for one score of the whole.
        c: Worth of a full score beside the outcome of 1.0, in (0, 1).
        reads: ``"answer"``: what was handed in. ``"transcript"``: all that was said and replied.
        name: Name of the channel.

    Raises:
        Refused: The judge takes answers that answer nothing for right ones.
        ValueError: An argument is outside its range, or ``name`` is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: RaR (2025), AutoRule (2025); Master-RM (2025) for the bank.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        judge: str,
        rubric: Sequence[Sequence[Any]] | None = None,
        c: float = 0.3,
        reads: Reads = "transcript",
        name: str = "rubric",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self, judge=judge, rubric=rubric, c=c, reads=reads, name=name
        )
        channel = Judgement(
            name,
            scale=number("c", c, "(0, 1)"),
            judge=named("judge", judge, {}),
            rubric=None if rubric is None else Rubric(_items(rubric)),
            reads=reads,
        )
        super().__init__(env, channel)


@lru_cache(maxsize=64)
def _rate(judge: Judge, tasks: tuple[str, ...], reads: Reads) -> float:
    """Tries a judge, once a process; what it said is not kept, so it pays nobody."""
    return accept(judge, tasks=tasks, frames=FRAMES[reads]).rate


def _items(rubric: Sequence[Sequence[Any]]) -> tuple[tuple[str, float], ...]:
    if any(isinstance(item, str) or len(item) != 2 for item in rubric):
        raise ValueError(f"rubric must be pairs of a text and a weight, got {rubric!r}")
    return tuple((text, weight) for text, weight in rubric)
