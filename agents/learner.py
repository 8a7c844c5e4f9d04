"""One update of a policy from a batch of trajectories, taken back if it goes too far."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.agents.loss import auxiliary_loss, k3, mismatch, policy_loss
from headway.agents.policy import Policy
from headway.agents.trajectory import Trajectory

REMEMBERED = 20
"""Gradient norms of so many updates say what is usual."""

FEWEST = 5
"""So many norms have to be known before one is called unusual."""

LIMIT = 3.0
"""A gradient longer than so many times the usual is shortened to that."""

TRIES = 4
"""How often an update that goes too far is tried again at half the rate."""

RECOVERY = 2.0**0.1
"""Factor by which a rate that was halved grows back with each update: ten undo one halving."""

PROBED = 2_048
"""About so many tokens of a batch are read again to measure the effect of an update."""

BROKEN = 3
"""Gradients in a row that are not finite, after which there is no going on."""


class Update(NamedTuple):
    """What an update did.

    Attributes:
        norm: Length of the gradient before it was shortened; None where there was nothing to learn,
            and not finite where it was left out for that.
        kl: Divergence of the policy before from that after, in nats per token, measured on part of
            the batch; of a rejected update that of its last try.
        moved: Length of the change of all weights; 0.0 of a rejected one.
        rate: Learning rate of the last try.
        rejected: Tries that went too far. ``TRIES`` of them: the weights are as they were.
        gap: Largest difference between log-probabilities as sampled and as recomputed.
    """

    norm: float | None
    kl: float | None
    moved: float
    rate: float
    rejected: int
    gap: float


class Learner:
    """AdamW on the policy gradient of a batch, once: on-policy, so a ratio is 1 before the step.

    After each step the divergence from the policy before is measured on part of the batch. Where it
    is above the limit the weights and the optimiser are put back and the step is taken again at
    half the rate; after ``TRIES`` such tries it is left out. One step too far can end a run: Adam's
    second moment is small after many small gradients, and one large one passes a fixed clip. So
    gradients are clipped relative to what is usual, too.

    Args:
        policy: Its trainable weights are changed.
        rate: Learning rate.
        batch_tokens: Most tokens of a micro-batch, padding included.
        kl_limit: In nats per token.
        temperature: Of sampling; the loss is of the distribution that was sampled from.
        auxiliary: Weight of a second loss, the mean cross-entropy of what the tools said, in nats
            per token; at least 0. It joins updates that have something else to learn.
        turn_tokens: Constant that the loss is divided by, beside the number of trajectories. A
            constant, because to divide by what was sampled would weigh tokens by the length of
            their batch.

    Source: the ratio and its clip PPO (2017), a constant in place of lengths Dr. GRPO (2025).
    """

    def __init__(
        self,
        policy: Policy,
        *,
        rate: float,
        batch_tokens: int,
        kl_limit: float,
        temperature: float,
        turn_tokens: int,
        auxiliary: float = 0.0,
    ) -> None:
        self.policy = policy
        self.rate = rate
        self.batch_tokens = batch_tokens
        self.kl_limit = kl_limit
        self.temperature = temperature
        self.turn_tokens = turn_tokens
        self.auxiliary = auxiliary
        self.weights = policy.learns
        self.optimiser = torch.optim.AdamW(
            self.weights, lr=rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        self.norms: deque[float] = deque(maxlen=REMEMBERED)
        self.factor = 1.0
        self.broken = 0

    def step(
        self,
        trajectories: Sequence[Trajectory],
        advantages: Sequence[NDArray[np.float32]],
    ) -> Update:
        """Learns from a batch.

        Args:
            trajectories: All that were sampled, also those without an advantage: they count in the
                mean.
            advantages: One a token of each trajectory; 0 where nothing is to be learnt.

        Raises:
            FloatingPointError: ``BROKEN`` gradients in a row were not finite; each was left out.
        """
        also = [self.auxiliary > 0.0 and t.scored and bool(t.mask.any()) for t in trajectories]
        worth = [i for i, a in enumerate(advantages) if also[i] or np.any(a)]
        if not any(map(np.any, advantages)):
            # A step without a gradient would let the second moment decay, and the next one jump.
            # One of the second loss alone would be as long as any: Adam knows no size of a loss.
            return Update(None, None, 0.0, self.rate * self.factor, 0, 0.0)
        self.optimiser.zero_grad(set_to_none=True)
        scale = len(trajectories) * self.turn_tokens
        told = sum(int(_told(t).sum()) for t, a in zip(trajectories, also, strict=True) if a)
        every = math.ceil(sum(len(trajectories[i].ids) for i in worth) / PROBED)
        probed = set(worth[every // 2 :: every]) or {worth[0]}
        gap, probes = 0.0, []
        for batch in self._batches(trajectories, advantages, also, worth):
            asked = batch.mask | batch.told if told else batch.mask
            logp = self.policy.logp(batch.ids, asked, temperature=self.temperature)
            # The learner's own probabilities are the old ones, as this is its first step on the
            # batch; what a sampler of other precision gave only weighs.
            old = logp.detach()
            gap = max(gap, float(((old - batch.logp) * batch.mask).abs().max()))
            loss = policy_loss(
                logp,
                old,
                batch.advantage,
                batch.mask,
                normaliser=scale,
                weights=mismatch(old, batch.logp, batch.mask),
            )
            if told:
                loss = loss + auxiliary_loss(logp, self.auxiliary * batch.told, normaliser=told)
            loss.backward()  # type: ignore[no-untyped-call]
            rows = [row for row, i in enumerate(batch.place) if i in probed]
            if rows:
                probes.append(_Probe(batch.ids[rows], batch.mask[rows], old[rows]))
        norm = float(
            torch.nn.utils.get_total_norm(w.grad for w in self.weights if w.grad is not None)
        )
        self.broken = 0 if math.isfinite(norm) else self.broken + 1
        if self.broken:
            self.optimiser.zero_grad(set_to_none=True)
            if self.broken == BROKEN:
                raise FloatingPointError(
                    f"the gradients of {BROKEN} updates in a row are not finite: the weights or "
                    "the advantages are spoilt"
                )
            return Update(norm, None, 0.0, self.rate * self.factor, 0, gap)
        if len(self.norms) >= FEWEST:
            most = LIMIT * statistics.median(self.norms)
            torch.nn.utils.clip_grads_with_norm_(self.weights, most, torch.tensor(norm))
        self.norms.append(norm)
        return self._guarded(norm, gap, probes)

    def state_dict(self) -> dict[str, Any]:
        """All that the next update depends on, but for the weights."""
        return {
            "optimiser": self.optimiser.state_dict(),
            "norms": list(self.norms),
            "factor": self.factor,
            "broken": self.broken,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned."""
        self.optimiser.load_state_dict(state["optimiser"])
        self.norms = deque(state["norms"], maxlen=REMEMBERED)
        self.factor = state["factor"]
        self.broken = state["broken"]

    def _guarded(self, norm: float, gap: float, probes: Sequence[_Probe]) -> Update:
        """Takes the step whose gradient is there, at a rate that does not go too far."""
        weights = [w.detach().clone() for w in self.weights]
        moments = _copied(self.optimiser.state_dict())
        kl = math.inf
        for rejected in range(TRIES):
            rate = self.rate * self.factor
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            self.optimiser.step()
            with torch.no_grad():
                kl = self._divergence(probes)
                if kl <= self.kl_limit:
                    self.factor = min(1.0, self.factor * RECOVERY)
                    pairs = zip(self.weights, weights, strict=True)
                    moved = math.sqrt(sum(float((w - old).square().sum()) for w, old in pairs))
                    return Update(norm, kl, moved, rate, rejected, gap)
                for w, old in zip(self.weights, weights, strict=True):
                    w.copy_(old)
            self.optimiser.load_state_dict(_copied(moments))
            self.factor /= 2.0
        return Update(norm, kl, 0.0, rate, TRIES, gap)

    def _divergence(self, probes: Sequence[_Probe]) -> float:
        """Of the policy from what it was, in nats per token."""
        count = sum(int(probe.mask.sum()) for probe in probes)
        found = 0.0
        for ids, mask, old in probes:
            logp = self.policy.logp(ids, mask, temperature=self.temperature)
            found += float(k3(old, logp, mask, normaliser=count))
        return found

    def _batches(
        self,
        trajectories: Sequence[Trajectory],
        advantages: Sequence[NDArray[np.float32]],
        also: Sequence[bool],
        worth: Sequence[int],
    ) -> Iterator[_Batch]:
        """Micro-batches of about equal length each."""
        order = sorted(worth, key=lambda i: len(trajectories[i].ids))
        while order:
            count = max(1, self.batch_tokens // len(trajectories[order[-1]].ids))
            chosen, order = order[-count:], order[:-count]
            yield _batch(trajectories, advantages, also, chosen, self.policy.device)


class _Probe(NamedTuple):
    """Some rows of a batch, and their log-probabilities before the step."""

    ids: Tensor
    mask: Tensor
    old: Tensor


class _Batch(NamedTuple):
    """Padded on the right; the first column of all others belongs to the second of ids.

    Attributes:
        place: (rows,), which trajectories these are.
        ids: (rows, length) int64.
        mask: (rows, length - 1) bool, what was sampled.
        told: Same shape, what was read after the first turn, where the second loss is of it.
        logp: Same shape, of what was sampled.
        advantage: Same shape.
    """

    place: Sequence[int]
    ids: Tensor
    mask: Tensor
    told: Tensor
    logp: Tensor
    advantage: Tensor


def _batch(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[NDArray[np.float32]],
    also: Sequence[bool],
    chosen: Sequence[int],
    device: torch.device,
) -> _Batch:
    longest = max(len(trajectories[i].ids) for i in chosen)

    def padded(rows: Sequence[NDArray[Any]], kind: type[np.generic]) -> Tensor:
        out = np.zeros((len(rows), longest), kind)
        for row, values in zip(out, rows, strict=True):
            row[: len(values)] = values
        return torch.from_numpy(out).to(device)

    picked = [trajectories[i] for i in chosen]
    return _Batch(
        place=chosen,
        ids=padded([t.ids for t in picked], np.int64),
        mask=padded([t.mask for t in picked], np.bool_)[:, 1:],
        told=padded([_told(t) & also[i] for i, t in zip(chosen, picked, strict=True)], np.bool_)[
            :, 1:
        ],
        logp=padded([t.logp for t in picked], np.float32)[:, 1:],
        advantage=padded([advantages[i] for i in chosen], np.float32)[:, 1:],
    )


def _told(trajectory: Trajectory) -> NDArray[np.bool_]:
    """Which tokens were read after the first turn."""
    found: NDArray[np.bool_] = np.maximum.accumulate(trajectory.mask) & ~trajectory.mask
    return found


def _copied(state: Any) -> Any:
    """Plain data with tensors of its own."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    return [_copied(value) for value in state] if isinstance(state, list) else state
