"""What is minimised: pure functions of tensors, one entry a token, all sums in float32.

``mask`` is True on sampled tokens. What stands elsewhere is never read, and gets no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headway.agents.trajectory import TEMPERATURES
from headway.arguments import number, one_of, whole

FAR = 20.0
"""Differences of log-probabilities count as no more than this, in nats."""

Head = Callable[[Tensor], Tensor]
"""Hidden states (n, width) to logits (n, vocabulary)."""


def policy_loss(
    logp: Tensor,
    logp_old: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    normaliser: float,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float = 3.0,
    weights: Tensor | None = None,
) -> Tensor:
    r"""The clipped policy-gradient loss.

    .. math:: -\frac{1}{N} \sum_j m_j \min(\rho_j A_j,\ \mathrm{clip}(\rho_j, 1 - l, 1 + h)\, A_j),
              \quad \rho_j = e^{\log p_j - \log p^\mathrm{old}_j}

    and for a negative advantage no less than ``dual_clip * A``. In the first update after sampling
    all ratios are 1 and the gradient is that of REINFORCE.

    A token's weight must not depend on what else was sampled beside it, so the sum is not divided
    by the tokens of each trajectory, nor by those of a micro-batch.

    Args:
        logp: Any shape; of the policy, with gradient, in nats.
        logp_old: Same shape; of the policy before the first step on this batch.
        advantage: Same shape; constant in the gradient.
        mask: Same shape, bool.
        normaliser: N, above 0: a constant, such as trajectories times the most tokens of a turn
            (Dr. GRPO), or the sampled tokens of the whole batch (DAPO), counted before it is cut
            into micro-batches, whose losses then sum to that of the batch.
        clip_low: l, in [0, 1].
        clip_high: h, in [0, inf).
        dual_clip: In (1, inf).
        weights: Same shape; see :func:`mismatch`. None for 1.

    Returns:
        A scalar.

    Raises:
        ValueError: Shapes differ, or an argument is outside its range.

    Source: PPO (2017); the upper clip DAPO (2025); the dual clip Ye et al. (2020).
    """
    normaliser = number("normaliser", normaliser, "(0, inf)")
    clip_low = number("clip_low", clip_low, "[0, 1]")
    clip_high = number("clip_high", clip_high, "[0, inf)")
    dual_clip = number("dual_clip", dual_clip, "(1, inf)")
    _same(logp, advantage, *([] if weights is None else [weights]))
    ratio = _difference(logp, logp_old, mask).exp()
    worth = torch.where(mask, advantage.detach().float(), 0.0)
    gain = torch.minimum(ratio * worth, ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * worth)
    gain = torch.where(worth < 0.0, torch.maximum(gain, dual_clip * worth), gain)
    if weights is not None:
        gain = gain * torch.where(mask, weights.detach().float(), 0.0)
    return -gain.sum() / normaliser


def mismatch(
    logp: Tensor,
    logp_sampled: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    of: Literal["token", "trajectory"] = "token",
) -> Tensor:
    """Weights that correct for a sampler whose probabilities are not quite the learner's.

    Args:
        logp: (rows, length); of the learner before its first step on the batch.
        logp_sampled: Same shape; what the sampler gave, at the same temperature.
        mask: Same shape, bool.
        cap: In [1, inf).
        of: ``"token"``: the ratio of each token, at most ``cap``. ``"trajectory"``: that of each
            row, and 0 for the whole row where it is above ``cap``.

    Returns:
        Same shape, float32, without gradient; 0 where ``mask`` is False.

    Raises:
        ValueError: Shapes differ, or an argument is outside its range.

    Source: truncated importance sampling, Espeholt et al. (2018); TRL for the second form.
    """
    cap = number("cap", cap, "[1, inf)")
    with torch.no_grad():
        off = _difference(logp, logp_sampled, mask)
        if one_of("of", of, ("token", "trajectory")) == "trajectory":
            off = off.sum(-1, keepdim=True).clamp(-FAR, FAR).expand_as(off)
            weights = torch.where(off.exp() > cap, 0.0, off.exp())
        else:
            weights = off.exp().clamp(max=cap)
        return torch.where(mask, weights, 0.0)


def k1(logp: Tensor, logp_ref: Tensor, mask: Tensor, *, normaliser: float | None = None) -> Tensor:
    """Divergence from the policy that sampled to another: ``logp - logp_ref``, on average.

    Unbiased as a figure, though it may be negative. As a loss its expected gradient is 0; it
    belongs in the reward.

    Args:
        logp: Of the policy that sampled, in nats.
        logp_ref: Same shape; of the other.
        mask: Same shape, bool.
        normaliser: What the sum is divided by, above 0; None for the number of sampled tokens.

    Returns:
        A scalar, in nats per token.

    Raises:
        ValueError: Shapes differ.

    Source: Schulman, Approximating KL divergence (2020).
    """
    return _mean(_difference(logp, logp_ref, mask), mask, normaliser)


def k2(logp: Tensor, logp_ref: Tensor, mask: Tensor, *, normaliser: float | None = None) -> Tensor:
    """``(logp - logp_ref)**2 / 2``, on average: as a loss it has the right gradient on-policy.

    Arguments, result, errors and source are those of :func:`k1`.
    """
    return _mean(_difference(logp, logp_ref, mask).square() / 2.0, mask, normaliser)


def k3(logp: Tensor, logp_ref: Tensor, mask: Tensor, *, normaliser: float | None = None) -> Tensor:
    """``exp(-x) - 1 + x`` for ``x = logp - logp_ref``, on average: unbiased and at least 0.

    To watch. As a loss its gradient is that of the divergence the other way round. Arguments,
    result, errors and source are those of :func:`k1`.
    """
    off = _difference(logp, logp_ref, mask)
    return _mean((-off).exp() - 1.0 + off, mask, normaliser)


def auxiliary_loss(logp: Tensor, weights: Tensor, *, normaliser: float) -> Tensor:
    """Cross-entropy on given tokens, each with a weight: a second thing to learn beside the reward.

    Args:
        logp: Any shape; of tokens that are to become likelier, with gradient, in nats.
        weights: Same shape, constant in the gradient; 0 where nothing is to be learnt.
        normaliser: Above 0, counted over the whole batch as in :func:`policy_loss`.

    Returns:
        A scalar.

    Raises:
        ValueError: Shapes differ, or ``normaliser`` is not above 0.
    """
    _same(logp, weights)
    weights = weights.detach().float()
    wanted = torch.where(weights != 0.0, logp.float(), 0.0)
    return -(wanted * weights).sum() / number("normaliser", normaliser, "(0, inf)")


def token_logp(
    hidden: Tensor, head: Head, ids: Tensor, *, temperature: float = 1.0, rows: int = 1024
) -> Tensor:
    """Log-probabilities of tokens, with never more than ``rows`` rows of logits at once.

    A vocabulary of 150,000 makes 10 GB of the logits of 16,000 tokens; so only the positions that
    are asked for are passed in, and what the gradient needs is computed again on the way back.

    Args:
        hidden: (n, width), the state that each token was sampled from.
        head: Of the model.
        ids: (n,) int64, the tokens.
        temperature: That logits are divided by, in [0.001, 1000]: the sampler's.
        rows: At least 1.

    Returns:
        (n,) float32, at most 0, in nats, with gradient.

    Raises:
        ValueError: Lengths differ, or an argument is outside its range.
    """
    temperature = number("temperature", temperature, TEMPERATURES)

    def part(hidden: Tensor, ids: Tensor) -> Tensor:
        logits = head(hidden).float() / temperature
        return -torch.nn.functional.cross_entropy(logits, ids, reduction="none")

    if len(hidden) != len(ids):
        raise ValueError(f"hidden and ids must be equally long, got {len(hidden)} and {len(ids)}")
    rows = whole("rows", rows, 1)
    pieces = list(zip(torch.split(hidden, rows), torch.split(ids, rows), strict=True))
    if len(pieces) == 1:
        return part(hidden, ids)
    return torch.cat([checkpoint(part, *piece, use_reentrant=False) for piece in pieces])


def _difference(logp: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """``logp - other`` where sampled, in float32 and bounded; 0 elsewhere."""
    _same(logp, other, mask)
    if mask.dtype is not torch.bool:
        raise ValueError(f"mask must be bool, got {mask.dtype}")
    return torch.where(mask, logp.float() - other.float(), 0.0).clamp(-FAR, FAR)


def _mean(values: Tensor, mask: Tensor, normaliser: float | None) -> Tensor:
    if normaliser is None:
        return values.sum() / mask.sum().clamp(min=1)
    return values.sum() / number("normaliser", normaliser, "(0, inf)")


def _same(*tensors: Tensor) -> None:
    if len({t.shape for t in tensors}) > 1:
        raise ValueError(
            f"tensors must have one shape, got {', '.join(str(tuple(t.shape)) for t in tensors)}"
        )
