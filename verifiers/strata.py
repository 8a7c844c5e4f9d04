"""A judge's scores beside a verifier's verdicts: what is verified comes first.

For trainers that have the scores of a whole group: the estimator ``"hero"`` of
:mod:`headway.agents.credit` stratifies; the weight of a prompt is for trainers of your own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headway.arguments import number

SAME = 1e-9
"""Scores that differ by no more than this are one score."""


def stratify(
    scores: Sequence[float],
    passed: Sequence[bool],
    *,
    fail: float = 0.05,
    success: float = 0.05,
) -> list[float]:
    """Lays the scores of a group into two bands, one for failures and one for passes.

    With u in [0, 1] the place of a score between the least and the greatest of its band, and 1/2
    where all are equal: ``-fail + 2 * fail * u`` for a failure, ``1 - success + 2 * success * u``
    for a pass. So every pass is above every failure, and the order in a band is the judge's.

    Args:
        scores: What a judge gave each trajectory of one task; finite.
        passed: What the verifier says of each.
        fail: Half the width of the band around 0, in [0, 1).
        success: Half the width of the band around 1, in [0, 1).

    Returns:
        As many rewards.

    Raises:
        ValueError: An argument is outside its range, or the widths sum to 1 or more.

    Source: HERO (2025).
    """
    fail, success = number("fail", fail, "[0, 1)"), number("success", success, "[0, 1)")
    if fail + success >= 1.0:
        raise ValueError(
            f"fail + success must be below 1, or bands overlap, got {fail} and {success}"
        )
    for score in scores:
        number("scores", score, "(-inf, inf)")
    rewards = []
    for score, good in zip(scores, passed, strict=True):
        band = [s for s, one in zip(scores, passed, strict=True) if bool(one) is bool(good)]
        low, high = min(band), max(band)
        u = (score - low) / (high - low) if high - low > SAME else 0.5
        rewards.append(1.0 - success + 2.0 * success * u if good else -fail + 2.0 * fail * u)
    return rewards


def prompt_weight(
    scores: Sequence[float],
    mean: float,
    *,
    low: float = 0.4,
    high: float = 3.0,
    steep: float = 6.0,
) -> float:
    """How much a task counts: more where the judge tells its trajectories apart.

    ``low + (high - low) * sigmoid(steep * (std(scores) - mean))``.

    Args:
        scores: What a judge gave each trajectory of one task; at least one.
        mean: Running mean of that standard deviation over tasks, in [0, inf).
        low: Least weight, in [0, inf).
        high: Greatest weight, in [0, inf) and at least ``low``.
        steep: In (0, inf).

    Returns:
        In [low, high].

    Raises:
        ValueError: An argument is outside its range.

    Source: HERO (2025).
    """
    low, high = number("low", low, "[0, inf)"), number("high", high, f"[{low}, inf)")
    mean, steep = number("mean", mean, "[0, inf)"), number("steep", steep, "(0, inf)")
    if not scores:
        raise ValueError("scores must have at least one number, got none")
    spread = float(np.std([number("scores", score, "(-inf, inf)") for score in scores]))
    return low + (high - low) / (1.0 + math.exp(min(700.0, -steep * (spread - mean))))


def renorm(process: Sequence[float], outcome: float) -> list[float]:
    """Scores of turns, made to agree in sign with the outcome: ``process + outcome - 1``.

    Args:
        process: What a judge gave each turn, in [0, 1].
        outcome: 0 or 1; in between it is a partial one.

    Returns:
        In [-1, 1]: at least 0 after an outcome of 1, at most 0 after one of 0.

    Raises:
        ValueError: A number is outside its range.

    Source: PPR (2025).
    """
    outcome = number("outcome", outcome, "[0, 1]")
    return [number("process", score, "[0, 1]") + outcome - 1.0 for score in process]
