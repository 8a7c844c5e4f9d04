"""What a learner keeps of an episode: tokens as they were sampled, and what each turn was worth."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.verifiers import Record

TEMPERATURES = "[0.001, 1000]"
"""Of sampling; beyond that logits are no numbers, or all alike."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a policy, and what the environment said to it.

    Attributes:
        action: The text that the environment got.
        observation: What it answered.
        base: The outcome reward of the turn.
        channels: What each dense channel paid for it.
        progress: Verified progress after it, in [0, 1]; carried over where there is no verdict.
        ok: The checks that count after it, by id; empty where there is no verdict.
        status: ``"ok"``, ``"no_verdict"`` or ``"ungraded"``.
        unmeasured: Why some channel could not measure; empty if all could.
        start: Key of the state in which the turn began: equal keys, equal states.
        calls: Tool calls that were made.
        refused: Those of them that were answered with an error.
        cut: The text was ended by the limit on tokens and not by the policy.
    """

    action: str
    observation: str
    base: float
    channels: Mapping[str, float]
    progress: float
    ok: frozenset[str] = frozenset()
    status: str = "ok"
    unmeasured: str = ""
    start: Hashable = None
    calls: int = 0
    refused: int = 0
    cut: bool = False


@dataclass(slots=True)
class Trajectory:
    """One episode of a policy. The four arrays have one entry a token of the whole context.

    Attributes:
        task_id: Of the task.
        group: Trajectories of one group were sampled for one task from one start.
        prompt: The first observation.
        ids: int32, exactly what went through the model, in order.
        mask: bool, True on tokens that the policy sampled, and on no others.
        logp: float32, log-probability of each sampled token under the distribution that it was
            sampled from (temperature included); 0 elsewhere.
        turn: int32, index into ``turns`` of sampled tokens; -1 elsewhere.
        turns: In order.
        progress: Verified progress at reset, in [0, 1].
        success: Whether it ended well.
        ended: ``"terminated"``, ``"truncated"``, or ``"died"`` when the machine failed.
    """

    task_id: str
    group: int
    prompt: str
    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    logp: NDArray[np.float32]
    turn: NDArray[np.int32]
    turns: list[Turn] = field(default_factory=list)
    progress: float = math.nan
    success: bool = False
    ended: str = "terminated"

    @property
    def scored(self) -> bool:
        """Whether its rewards were measured, so that it may be learnt from.

        An episode's status is that of its last turn, and a channel that could not measure on any
        turn spoils the sum.
        """
        if self.ended == "died" or not self.turns:
            return False
        return self.turns[-1].status == "ok" and not any(t.unmeasured for t in self.turns)

    @property
    def sampled(self) -> int:
        """Tokens that the policy sampled."""
        return int(self.mask.sum())

    @property
    def curve(self) -> NDArray[np.float64]:
        """Verified progress at reset and after each turn, shape (turns + 1,)."""
        return np.array([self.progress, *(turn.progress for turn in self.turns)])

    def rewards(self) -> dict[str, NDArray[np.float64]]:
        """What each channel paid in each turn, shape (turns,), and the outcome as ``"base"``."""
        names = dict.fromkeys(["base"])
        for turn in self.turns:
            names |= dict.fromkeys(turn.channels)
        found = {name: np.zeros(len(self.turns)) for name in names}
        for at, turn in enumerate(self.turns):
            found["base"][at] = turn.base
            for name, amount in turn.channels.items():
                found[name][at] = amount
        return found


def told(record: Record, before: float) -> dict[str, Any]:
    """The fields of a :class:`Turn` that stand in the record of an environment's step.

    Args:
        record: ``info["headway"]``.
        before: Verified progress before the turn, kept where there is no verdict.
    """
    verdict = record["verdict"]
    known = verdict is not None and verdict.status == "ok"
    return {
        "base": float(record["base"]),
        "channels": dict(record["channels"]),
        "progress": float(verdict.progress) if known else before,
        "ok": frozenset(n for n, holds in verdict.ok.items() if holds) if known else frozenset(),
        "status": record["status"],
        "unmeasured": "; ".join(f"{k}: {v}" for k, v in record.get("unmeasured", {}).items()),
    }
