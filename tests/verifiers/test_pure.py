"""Measuring changes nothing, and knows nothing of what comes later."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headway
from headway.agents import NoOp
from headway.verifiers import POTENTIALS, potential_named
from headway.wrappers import ProgressReward

SEEDS = st.integers(0, 40)
TEMPLATES = st.sampled_from([None, "split"])


def state(env):
    return json.dumps(env.unwrapped.get_state(), sort_keys=True), env.unwrapped.anchor()


@settings(max_examples=15)
@given(seed=SEEDS, template=TEMPLATES, data=st.data())
def test_grading_is_pure(seed, template, data):
    """The state is what it was, down to its bytes, and graded again it has the same verdict."""
    env = gym.make("headway/Apps-v0", template=template)
    env.reset(seed=seed)
    solution = env.unwrapped.solution()
    for action in solution[: data.draw(st.integers(0, len(solution) - 1))]:
        env.step(action)
    before = state(env)
    verdict = env.unwrapped.grade()
    for name in POTENTIALS:
        signal = potential_named(name)
        signal.hear(None, "task", {}, env.get_wrapper_attr)
        signal.begin(verdict)
        value = signal.value(verdict)
        assert value is None or 0.0 <= value <= 1.0
    assert state(env) == before
    assert env.unwrapped.grade() == verdict


@settings(max_examples=10)
@given(seed=SEEDS, template=TEMPLATES)
def test_nothing_done_is_worth_nothing(seed, template):
    """Whatever a potential reads, reading and talking do not raise what acting is worth."""
    env = gym.make("headway/Apps-v0", template=template)
    env = ProgressReward(env, gamma=1.0)
    obs, info = env.reset(seed=seed)
    agent, over, phis = NoOp(), False, [info["headway"]["phi"]["checks"]]
    agent.reset(env, obs)
    while not over:
        obs, reward, terminated, truncated, info = env.step(agent.act(obs))
        over = terminated or truncated
        phis.append(info["headway"]["phi"]["checks"])
        assert reward == 0.0
    assert set(phis) == {0.0}


@pytest.mark.parametrize("potential", sorted(set(POTENTIALS) - {"information", "likelihood"}))
@settings(max_examples=6)
@given(seed=SEEDS)
def test_a_prefix_has_its_values_whatever_follows(potential, seed):
    """The oracle ends at 1.0 and success; cut short anywhere it had the same values so far."""

    def values(actions):
        env = ProgressReward(gym.make("headway/Apps-v0"), gamma=1.0, potential=potential)
        _, info = env.reset(seed=seed)
        found = [info["headway"]["phi"][potential]]
        for action in actions:
            *_, info = env.step(action)
            found.append(info["headway"]["phi"][potential])
        return found, info["headway"]["verdict"]

    env = gym.make("headway/Apps-v0")
    env.reset(seed=seed)
    solution = env.unwrapped.solution()
    whole, verdict = values(solution)
    assert whole[0] == 0.0
    assert whole[-1] == pytest.approx(1.0)
    assert verdict.success
    half = len(solution) // 2
    cut, verdict = values([*solution[:half], headway.CUT])
    assert cut[: half + 1] == whole[: half + 1]
    assert cut[-1] == whole[half]
    assert not verdict.success
