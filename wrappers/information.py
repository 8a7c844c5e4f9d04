"""Credit for finding out: how much nearer to the hidden answer a turn of looking came."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym

from headway.arguments import number, one_of
from headway.verifiers import AnswerLikelihood, Information, Potential, Verdict
from headway.verifiers.likelihood import Control, Mode
from headway.wrappers.channel import ChannelWrapper, Ended
from headway.wrappers.transforms import Diff


class Gain(Diff):
    """Pays ``scale * (gamma * phi' - phi)`` for a turn, but 0.0 for the one that answers.

    That turn is neither paid nor measured: what it says is judged by the outcome. Discounted, an
    episode that answers on its turn T sums to ``scale * (gamma**(T-1) * phi_{T-1} - phi_0)``, any
    other to ``scale * (gamma**T * phi_T - phi_0)``.

    Args:
        name: Name of the channel.
        gamma: The learner's discount per turn, in (0, 1].
        scale: In (0, inf).
        potential: What is known of the answer.

    Raises:
        ValueError: An argument is outside its range.

    Source: IGPO (2025), with differences under the learner's discount.
    """

    def __init__(self, name: str, *, gamma: float, scale: float, potential: Potential) -> None:
        super().__init__(
            name,
            gamma=gamma,
            scale=scale,
            terminal="keep",
            on_truncation="keep",
            potential=potential,
        )

    def step(self, before: Verdict, after: Verdict, ended: Ended) -> float:
        """The scaled difference; 0.0 on a turn that terminates the episode, as an answer does."""
        return 0.0 if ended == "terminated" else super().step(before, after, ended)


class InfoGain(ChannelWrapper):
    """Pays ``c * (gamma * phi' - phi)`` for each turn but the one that answers, which pays 0.

    phi is what is known of the hidden answer, in [0, 1]. Under the same discount an episode that
    answers on its turn T sums to ``c * (gamma**(T-1) * phi_{T-1} - phi_0)``: at most ``c``, and
    reading the same thing twice adds nothing. It is kept at the end, so the best policy may change.
    A task without an answer, or without a set of candidates, pays 0.0 and leaves no ``phi``.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        gamma: Discount per turn in (0, 1]; must equal the learner's.
        c: Worth of knowing the answer beside the outcome of 1.0, in (0, 1).
        source: ``"exact"``: the share of the answer's bits that the records which were seen settle
            (``phi["information"]``). ``"likelihood"``: how likely a scorer finds the right answer
            after the whole transcript (``phi["likelihood"]``); ``env`` must offer ``gold()``.
            It pays for what the agent says as well, unless ``control="subtract"``.
        mode: Of a likelihood: ``"prob"``, or ``"logp"`` for answers whose probability stays small:
            long ones, and all of them in the eyes of ``scorer="cache"``. Without
            ``control="subtract"`` it pays for reciting whatever could be the answer.
        scorer: Of a likelihood: one of ``SCORERS``, or ``"module:function"``. To train on, take
            ``control="subtract"`` with any of them.
        control: Of a likelihood: ``"subtract"`` takes away what is as likely without what the
            tools replied, so that the agent's own words are paid nothing, nor an echo of them
            (``phi["likelihood:subtract"]``): quoting what was read costs nothing, guessing before
            it is read leaves less to earn, and the scorer is asked twice a turn. ``"blank"`` pays
            for the agent's own words alone (``phi["likelihood:blank"]``): to compare with, not to
            train on. None takes nothing away.
        name: Name of the channel.

    Raises:
        ValueError: An argument is outside its range or says nothing about the source, or ``name``
            is taken.
        TypeError: Nothing in ``env`` offers ``grade()``.

    Source: IGPO (2025), with differences under the learner's discount.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        gamma: float,
        c: float = 0.5,
        source: Literal["exact", "likelihood"] = "exact",
        mode: Mode = "prob",
        scorer: str = "cache",
        control: Control | None = None,
        name: str = "information",
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            gamma=gamma,
            c=c,
            source=source,
            mode=mode,
            scorer=scorer,
            control=control,
            name=name,
        )
        likelihood = AnswerLikelihood(scorer=scorer, mode=mode, control=control)
        given = (mode, scorer, control)
        if one_of("source", source, ("exact", "likelihood")) == "exact" and given != DEFAULTS:
            raise ValueError(
                f"mode, scorer and control must be {DEFAULTS} with source='exact', got {given}; "
                "say source='likelihood'"
            )
        potential = Information() if source == "exact" else likelihood
        scale = number("c", c, "(0, 1)")
        super().__init__(env, Gain(name, gamma=gamma, scale=scale, potential=potential))


DEFAULTS = ("prob", "cache", None)
"""What the arguments of a likelihood are where there is none."""
