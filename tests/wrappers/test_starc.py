"""STARC: what it sees through, what it tells apart, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wrappers.starc import starc

SEEDS = st.integers(0, 10**6)


def problem(seed, states=4, actions=3):
    """Transitions that end, and a generator for rewards on them; the last state pays nothing."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(states), (states, actions))
    chances[-1] = 0.0
    chances[-1, :, -1] = 1.0

    def reward():
        found = rng.normal(size=chances.shape)
        found[-1] = 0.0
        return found

    return chances, reward, rng


@given(SEEDS, st.sampled_from([0.5, 0.9, 1.0]), st.floats(0.01, 1e9))
def test_starc_sees_through_shaping_and_scale(seed, gamma, scale):
    chances, reward, rng = problem(seed)
    one, phi = reward(), rng.normal(size=len(chances))
    phi[-1] = 0.0
    shaped = scale * (one + gamma * phi[None, None, :] - phi[:, None, None])
    assert starc(one, shaped, chances, gamma) < 1e-8


@given(SEEDS, st.sampled_from([0.9, 1.0]), st.integers(1, 3))
def test_starc_sees_through_shaping_with_several_ends(seed, gamma, ends):
    """What comes after different ends is nothing, whichever it was."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(5), (5, 3))
    one = rng.normal(size=chances.shape)
    for end in range(5 - ends, 5):
        chances[end], chances[end, :, end], one[end] = 0.0, 1.0, 0.0
    phi = np.where(np.arange(5) < 5 - ends, rng.normal(size=5), 0.0)
    shaped = one + gamma * phi[None, None, :] - phi[:, None, None]
    assert starc(one, shaped, chances, gamma) < 1e-8


@given(SEEDS, st.sampled_from([0.5, 0.9, 1.0]))
def test_starc_is_a_distance(seed, gamma):
    chances, reward, _ = problem(seed)
    a, b, c = reward(), reward(), reward()
    ab, bc, ac = (starc(*pair, chances, gamma) for pair in ((a, b), (b, c), (a, c)))
    assert starc(a, a, chances, gamma) == 0.0
    assert starc(a, -a, chances, gamma) == pytest.approx(1.0)
    assert 0.0 < ab <= 1.0 + 1e-12 and ab == starc(b, a, chances, gamma)
    assert ac <= ab + bc + 1e-12
    assert starc(a, np.zeros_like(a), chances, gamma) == pytest.approx(0.5)


def test_starc_by_hand():
    """One choice of three, of which two rewards pay for different ones; nothing comes after it."""
    chances = np.zeros((2, 3, 2))
    chances[:, :, 1] = 1.0
    first, second = np.zeros((2, 3, 2)), np.zeros((2, 3, 2))
    first[0, 0], second[0, 1] = 1.0, 1.0
    # V = 1/3, so c = (2, -1, -1) / 3 and (-1, 2, -1) / 3, at a cosine of -1/2.
    assert starc(first, second, chances, 0.9) == pytest.approx(math.sqrt(3.0) / 2.0)


def test_starc_refuses_what_it_cannot_judge():
    chances, reward, _ = problem(0)
    with pytest.raises(ValueError, match=r"rewards must have shape \(4, 3, 4\), got \(4, 3\)"):
        starc(reward()[:, :, 0], reward(), chances, 0.9)
    with pytest.raises(ValueError, match="sum to 1"):
        starc(reward(), reward(), 2 * chances, 0.9)
    with pytest.raises(ValueError, match=r"\(states, actions, states\), got \(4, 3\)"):
        starc(reward(), reward(), chances[:, :, 0], 0.9)
    endless = reward()
    endless[-1] = 1.0
    with pytest.raises(ValueError, match=r"gamma must be below 1\.0"):
        starc(endless, reward(), chances, 1.0)
