"""Weights that fall to exactly nothing, and take effect at a reset."""

from __future__ import annotations

import math

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import get_state, set_state
from headway.wrappers import (
    S2D,
    SCHEDULES,
    Anneal,
    Bound,
    GatedReward,
    PotentialShaping,
    ProgressReward,
    Schedule,
    ScheduledReward,
    set_progress,
)

SHAPING = {"gamma": 1.0, "on_truncation": "zero"}


@given(k=st.integers(0, 10_000), steps=st.integers(1, 5000), start=st.floats(0.0, 5.0))
def test_linear(k, steps, start):
    """Falls evenly, reaches 0.0 at ``steps`` and stays there."""
    linear = SCHEDULES["linear"]
    weight = linear(k, start, steps)
    assert weight == pytest.approx(start * (steps - k) / steps if k < steps else 0.0)
    assert linear(0, start, steps) == start
    assert linear(steps, start, steps) == linear(steps + k, start, steps) == 0.0
    assert linear(k + 1, start, steps) <= weight


@given(k=st.integers(0, 10_000), start=st.floats(0.0, 5.0))
def test_const(k, start):
    assert SCHEDULES["const"](k, start) == start


@given(k=st.integers(0, 10_000), steps=st.integers(1, 5000), start=st.floats(0.01, 5.0))
def test_cosine(k, steps, start):
    """Half a wave: flat at both ends, half the weight half-way, 0.0 from ``steps`` on."""
    cosine = SCHEDULES["cosine"]
    weight = cosine(k, start, steps)
    assert cosine(0, start, steps) == start
    assert cosine(steps, start, 2 * steps) == pytest.approx(start / 2)
    assert cosine(steps, start, steps) == cosine(steps + k, start, steps) == 0.0
    assert 0.0 <= cosine(k + 1, start, steps) <= weight
    mirrored = cosine(steps - min(k, steps), start, steps)
    assert mirrored + cosine(min(k, steps), start, steps) == pytest.approx(start)


@given(k=st.integers(0, 10_000), steps=st.integers(1, 5000), start=st.floats(0.01, 5.0))
def test_exp_step_and_until(k, steps, start):
    exp, step, until = (SCHEDULES[name] for name in ("exp", "step", "until"))
    assert exp(0, start, steps) == start
    assert exp(k + steps, start, steps) == pytest.approx(exp(k, start, steps) / math.e)
    assert exp(steps, start, steps) > 0.0
    assert step(k, start, steps) == (start if k >= steps else 0.0)
    assert step(k, start, steps) + until(k, start, steps) == start
    assert until(steps - 1, start, steps) == start != until(steps, start, steps) == 0.0


@given(data=st.data(), k=st.integers(0, 12), start=st.floats(0.0, 2.0))
def test_scales_channels_and_nothing_else(Script, play, scripts, data, k, start):
    script = data.draw(scripts())
    free = play(ProgressReward(Script(**script), gamma=0.9))
    env = ScheduledReward(ProgressReward(Script(**script), gamma=0.9), steps=10, start=start)
    env.set_progress(k)
    weight = SCHEDULES["linear"](k, start, 10)
    for (*_, was), (reward, _, _, now) in zip(free, play(env), strict=True):
        amount = was["channels"]["progress"]
        assert now["channels"]["progress"] == weight * amount
        assert now["channels_raw"]["progress"] == amount
        assert now["base"] == was["base"]
        assert reward == now["base"] + now["channels"]["progress"]


@given(data=st.data())
def test_at_weight_zero_nothing_is_left(Script, play, scripts, data):
    """Rewards are those of the bare environment bit for bit; not even a sign of zero remains."""
    script = data.draw(scripts())
    env = PotentialShaping(
        ProgressReward(Script(**script), gamma=0.9), gamma=0.9, on_truncation="zero"
    )
    env = ScheduledReward(env, steps=5)
    env.set_progress(5)
    turns = play(env)
    assert [r for r, *_ in turns] == [r for r, *_ in play(Script(**script))]
    assert {repr(x) for *_, r in turns for x in r["channels"].values()} == {"0.0"}


@given(data=st.data(), k=st.integers(0, 20), schedule=st.sampled_from(["linear", "cosine"]))
def test_anneal(Script, play, scripts, data, k, schedule):
    """A schedule by another name, which ends at nothing; a stack that resumes at k goes on so."""
    script = data.draw(scripts())
    env, same, late = (
        wrap(ProgressReward(Script(**script), gamma=0.9), steps=10, schedule=schedule)
        for wrap in (Anneal, ScheduledReward, Anneal)
    )
    for one in (env, same):
        assert set_progress(one, k) == 1
    env.reset(), late.reset()
    set_state(late, get_state(env))
    paid = [r for r, *_ in play(env)]
    assert paid == [r for r, *_ in play(same)] == [r for r, *_ in play(late)]
    if k >= 10:
        assert paid == [r for r, *_ in play(Script(**script))]


@given(data=st.data(), k=st.integers(0, 4), cut=st.sampled_from(["zero", "keep"]))
def test_sparse_to_dense(Script, play, scripts, data, k, cut):
    """Bare rewards bit for bit, and strict shaping from ``start_at`` on; other channels as ever."""
    script = data.draw(scripts())
    ends = {"gamma": 0.9, "on_truncation": cut, "beta": 0.5}
    env = S2D(ProgressReward(Script(**script), gamma=0.9), **ends, start_at=3)
    assert set_progress(env, k) == 1
    shaped = PotentialShaping(ProgressReward(Script(**script), gamma=0.9), **ends)
    for (reward, *_, got), (whole, *_, record) in zip(play(env), play(shaped), strict=True):
        assert got["channels"]["s2d"] == (record["channels"]["potential"] if k >= 3 else 0.0)
        assert reward == (whole if k >= 3 else got["base"] + got["channels"]["progress"])
        assert repr(got["channels"]["s2d"]) != "-0.0"
    assert env.layer.keeps_optimum(0.9) == (cut == "zero")
    assert not env.layer.keeps_optimum(1.0)


def test_sparse_to_dense_changes_at_a_reset(Script, play):
    env = S2D(Script([0.25, 0.5, 1.0]), gamma=1.0, on_truncation="zero", start_at=2)
    assert [r for r, *_ in play(env)] == [0.0, 0.0, 0.0]
    env.reset()
    env.set_progress(2)
    assert env.step("go")[1] == 0.0
    assert [r for r, *_ in play(env)] == [0.0, 0.25, -0.5]
    assert [r for r, *_ in play(gym.wrappers.RecordEpisodeStatistics(env))] == [0.0, 0.25, -0.5]


def test_nothing_of_what_knows_no_bound_is_nothing():
    endless = Bound(-math.inf, math.inf, -1.0, math.inf)
    assert Schedule("const", 0.0, None).bound(endless, 0.9) == (0.0, 0.0, 0.0, 0.0)
    assert Schedule("const", 2.0, None).bound(endless, 0.9) == (-math.inf, math.inf, -2.0, math.inf)
    paid = Bound(0.5, 0.75, 0.5, 0.75)
    assert Schedule("linear", 2.0, 3).bound(paid, 0.9) == (0.0, 1.5, 0.0, 1.5)
    assert Schedule("linear", 2.0, 3).keeps_optimum(0.9)


def test_takes_effect_at_the_next_reset(Script, play):
    env = ScheduledReward(ProgressReward(Script([0.0, 0.25, 0.5]), gamma=1.0), steps=4)
    env.reset()
    assert env.step("go")[1] == 0.125
    assert set_progress(env, 2) == 1
    assert env.step("go")[1] == 0.125
    assert [r for r, *_ in play(env)] == [0.0, 0.0625, 0.0625]
    assert [r for r, *_ in play(env)] == [0.0, 0.0625, 0.0625]


def test_reaches_every_schedule_of_a_stack(Script, play):
    """Two schedules, under other wrappers, between and around other layers."""
    env = ScheduledReward(
        ProgressReward(Script([0.0, 0.8]), gamma=1.0), schedule="const", start=0.5
    )
    env = PotentialShaping(env, gamma=1.0, on_truncation="keep", terminal="keep", beta=0.1)
    env = gym.wrappers.RecordEpisodeStatistics(ScheduledReward(env, steps=4))
    assert set_progress(env, 3) == 2
    *_, (_, _, _, record) = play(env)
    assert record["channels"] == {
        "progress": pytest.approx(0.4 * 0.5 * 0.25),
        "potential": pytest.approx(0.08 * 0.25),
    }
    assert set_progress(GatedReward(Script()), 3) == 0


def test_progress_outlasts_episodes(Script, play):
    """What one has set is kept, and goes with the state of the layer."""
    env = ScheduledReward(ProgressReward(Script([0.0, 1.0]), gamma=1.0), steps=4)
    env.set_progress(1)
    env.reset()
    env.set_progress(3)
    twin = ScheduledReward(ProgressReward(Script([0.0, 1.0]), gamma=1.0), steps=4)
    twin.reset()
    twin.set_state(env.get_state())
    twin.env.set_state(env.env.get_state())
    assert twin.step("go")[1] == env.step("go")[1] == 0.375
    assert [r for r, *_ in play(twin)] == [r for r, *_ in play(env)] == [0.0, 0.125]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"schedule": "linaer", "steps": 3}, r"schedule must be one of .* did you mean 'linear'"),
        ({}, "steps must be an int of at least 1, got None"),
        ({"steps": 0}, "steps must be an int of at least 1, got 0"),
        ({"steps": 2.5}, "steps must be an int of at least 1, got 2.5"),
        ({"schedule": "const", "steps": 3}, "steps must be None for schedule 'const', got 3"),
        ({"steps": 3, "start": -0.1}, r"start must be a number in \[0, inf\), got -0.1"),
        ({"steps": 3, "start": float("inf")}, r"start must be a number in \[0, inf\), got inf"),
    ],
)
def test_bad_arguments(Script, kwargs, message):
    with pytest.raises(ValueError, match=message):
        ScheduledReward(Script(), **kwargs)


@pytest.mark.parametrize(
    ("wrapper", "kwargs", "message"),
    [
        (Anneal, {"steps": 0}, "steps must be an int of at least 1, got 0"),
        (Anneal, {"steps": 3, "schedule": "exp"}, "schedule must be one of .*cosine.*, got 'exp'"),
        (S2D, {**SHAPING, "start_at": -1}, "start_at must be an int of at least 0, got -1"),
        (S2D, {**SHAPING, "start_at": 1, "beta": 0}, r"beta must be a number in \(0, 1e6\], got 0"),
    ],
)
def test_bad_arguments_of_transitions(Script, wrapper, kwargs, message):
    with pytest.raises(ValueError, match=message):
        wrapper(Script(), **kwargs)
    with pytest.raises(TypeError, match="steps"):
        Anneal(Script())


@pytest.mark.parametrize("k", [-1, 1.0, "2", None, True])
def test_bad_progress(Script, k):
    """Refused even where there is no schedule to notice."""
    shaped = S2D(Script(), **SHAPING, start_at=1)
    for env in (ScheduledReward(Script(), steps=3), shaped, Script()):
        with pytest.raises(ValueError, match="k must be an int of at least 0"):
            set_progress(env, k)
