"""How far a reward is from another one, up to shaping and scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headway.arguments import number


def starc(reward1: ArrayLike, reward2: ArrayLike, transitions: ArrayLike, gamma: float) -> float:
    """The STARC distance between two rewards on one set of transitions, in [0, 1].

    Each is canonised, ``c(s, a) = E[R(s, a, S') - V(s) + gamma V(S')]`` with V its value under the
    uniform policy, and scaled to length 1; the distance is half of that between the two. It is 0
    for rewards that differ by shaping and positive scaling, and 1 for opposite ones. That it is
    above 0 does not mean that the best policies differ.

    Args:
        reward1: (states, actions, states).
        reward2: The same.
        transitions: Probabilities, (states, actions, states), each row summing to 1.
        gamma: Discount in (0, 1]. With 1.0 every way must come to states that pay nothing.

    Raises:
        ValueError: Shapes differ, rows do not sum to 1, ``gamma`` is outside its range, or the
            value of the uniform policy is not finite.

    Source: Skalse et al. (2024), "STARC".
    """
    gamma = number("gamma", gamma, "(0, 1]")
    chances = np.asarray(transitions, dtype=float)
    if chances.ndim != 3 or chances.shape[0] != chances.shape[2] or 0 in chances.shape:
        raise ValueError(
            f"transitions must have shape (states, actions, states), got {chances.shape}"
        )
    if not np.allclose(chances.sum(axis=2), 1.0) or (chances < 0.0).any():
        raise ValueError("transitions must be probabilities that sum to 1 over the last axis")
    first, second = (_canonical(reward, chances, gamma) for reward in (reward1, reward2))
    return float(np.linalg.norm(first - second)) / 2.0


def _canonical(reward: ArrayLike, chances: NDArray[Any], gamma: float) -> NDArray[Any]:
    rewards = np.asarray(reward, dtype=float)
    if rewards.shape != chances.shape:
        raise ValueError(f"rewards must have shape {chances.shape}, got {rewards.shape}")
    expected = (chances * rewards).sum(axis=2)
    mean, moves = expected.mean(axis=1), chances.mean(axis=1)
    system = np.eye(len(mean)) - gamma * moves
    free = np.ones(len(mean), dtype=bool)
    if gamma == 1.0:
        # Where several states are left never more, what they are worth is no matter of the others:
        # without a value of their own the smallest solution would depend on the shaping.
        free = ~np.isclose(np.diagonal(chances, axis1=0, axis2=2), 1.0).all(axis=0)
    value = np.zeros(len(mean))
    value[free] = np.linalg.lstsq(system[np.ix_(free, free)], mean[free], rcond=None)[0]
    if not np.isfinite(expected).all():
        raise ValueError("rewards must be finite")
    size = float(np.abs(expected).max())
    if not np.allclose(system @ value, mean, atol=1e-9 * max(1.0, size)):
        raise ValueError(f"gamma must be below 1.0 where rewards go on for ever, got {gamma!r}")
    canonical: NDArray[Any] = expected - value[:, None] + gamma * (chances @ value)
    length = float(np.linalg.norm(canonical))
    scale = max(1.0, size)
    return canonical / length if length > 1e-12 * scale else np.zeros_like(canonical)
