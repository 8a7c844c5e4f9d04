"""Numbered actions and numeric observations: fixed sizes, legal moves, the same rewards."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import headway
from headway.envs.domains.apps import APPS
from headway.envs.domains.house import HOUSE
from headway.envs.domains.house.tools import in_sight, room_of
from headway.envs.domains.house.view import SIZE, SLOTS
from headway.envs.tool_env import ToolEnv
from headway.wrappers import PotentialShaping, ProgressReward
from headway.wrappers.views import DiscreteActions, Features

ID = "headway/House-v0"
SHAPED = {"gamma": 0.99, "on_truncation": "keep"}


def make(**kwargs: Any) -> gym.Env[Any, Any]:
    """House with both views, ended by success."""
    return DiscreteActions(Features(gym.make(ID, ends_on="success", **kwargs)))


def base(env: gym.Env[Any, Any]) -> ToolEnv:
    tool_env = env.unwrapped
    assert isinstance(tool_env, ToolEnv)
    return tool_env


def choose(env: gym.Env[Any, Any], rng: np.random.Generator) -> int:
    """A random action among those that are possible."""
    return int(rng.choice(np.flatnonzero(env.get_wrapper_attr("action_masks")())))


def cells() -> Iterator[dict[str, Any]]:
    """Templates, difficulties and splits in turn."""
    for n in range(21):
        split = ("train", "dev", "test")[n % 3]
        names = HOUSE.template_names(split)
        yield {"template": names[n // 3 % len(names)], "difficulty": 1 + n % 5, "split": split}


def test_sizes_never_change() -> None:
    """One space for every seed, template, difficulty and split."""
    env = make()
    assert env.action_space == gym.spaces.Discrete(len(SLOTS)) and len(SLOTS) + 1 <= 24
    assert env.observation_space == gym.spaces.Box(0, 1, (SIZE + 1,), np.float32)
    for seed, options in enumerate(cells()):
        obs, _ = env.reset(seed=seed, options=options)
        assert obs in env.observation_space
        assert len(base(env).actions()) == len(SLOTS) == len(base(env).mask())


def test_a_mask_says_what_is_possible() -> None:
    """A possible action is no mistake; another one is, or changes nothing."""
    rng, env = np.random.default_rng(0), make()
    for seed, options in enumerate(cells()):
        env.reset(seed=seed, options=options)
        for _ in range(25):
            inner = base(env)
            inner.box._flaky = frozenset()
            for text, legal in zip(inner.actions(), inner.mask(), strict=True):
                twin, call = inner.box.fork(), json.loads(text)
                reply = twin.call(call["tool"], call["args"])
                assert not (legal and reply.error), (text, reply.text)
                assert legal or twin.stamp() == inner.box.stamp(), text
            if rng.random() < 0.1 and (here := _openly(inner)):
                inner.box.call("discard", {"thing": here[0]})
            if any(env.step(choose(env, rng))[2:4]):
                break
            assert env.get_wrapper_attr("features")() in env.observation_space


def _openly(env: ToolEnv) -> list[str]:
    """What the agent could throw away."""
    room, things = room_of(env.box), env.box.table("things")
    return [name for name, row in things.items() if in_sight(env.box, row, room)]


@pytest.mark.parametrize("template", HOUSE.template_names("test"))
def test_every_task_can_be_solved_by_numbers(template: str) -> None:
    """The oracle's calls stand among the actions, reading aside."""
    for difficulty in (1, 3, 5):
        env = make(template=template, difficulty=difficulty, split="test")
        obs, _ = env.reset(seed=difficulty)
        assert obs[-1] == 1.0
        ended = False
        for text in base(env).solution():
            if '"read"' in text or '"submit"' in text:
                continue
            if text in base(env).actions():
                number = base(env).actions().index(text)
                last, (obs, reward, ended, truncated, _) = obs, env.step(number)
                assert obs[-1] < last[-1]
            else:
                assert '"go"' in text, text
        assert ended and reward == 1.0 and not truncated, (difficulty, obs)


def test_what_is_left_to_do_is_shown() -> None:
    """The numbers about a thing's goal are there at first, and gone when it is reached."""
    env = make(template="chores", difficulty=2)
    env.reset(seed=3)
    reader = base(env)._read()
    out = np.zeros(SIZE, np.float32)
    reader.features(base(env).box, out)
    assert set(np.unique(out)) == {0.0, 1.0}
    goals = {name: reader._ones(name, row) for name, row in base(env).box.table("things").items()}  # type: ignore[attr-defined]
    for text in base(env).solution()[:-1]:
        base(env).step(text)
    done = {name: reader._ones(name, row) for name, row in base(env).box.table("things").items()}  # type: ignore[attr-defined]
    for name in reader.goal:  # type: ignore[attr-defined]
        assert max(goals[name]) > max(done[name])
    assert reader.things[:2] == list(reader.goal)  # type: ignore[attr-defined]
    after = np.zeros(SIZE, np.float32)
    reader.features(base(env).box, after)
    assert after.sum() < out.sum()


def test_what_cannot_be_done_costs_a_turn() -> None:
    """It is answered, the state stays, and nothing is raised; numbers outside the space too."""
    env = DiscreteActions(gym.make(ID))
    env.reset(seed=1)
    before = base(env).box.canonical()
    illegal = int(np.flatnonzero(~env.action_masks())[-1])
    numbers = [illegal, np.int64(illegal), np.array(illegal), np.array([illegal]), -1, 10**5000]
    for turn, action in enumerate(numbers, 1):
        obs, reward, terminated, truncated, info = env.step(action)
        assert "Error" in obs and (reward, terminated, truncated) == (0.0, False, False)
        assert info["turn"] == turn and base(env).box.canonical() == before
    for wrong in (1.5, True, np.bool_(True), np.array([True]), np.array([1, 2]), np.array([[1]])):
        with pytest.raises(TypeError, match=r"action must be str or headway\.CUT, got"):
            env.step(wrong)
    obs, *_ = env.step('{"tool": "look"}')
    assert obs.startswith("You are in the ")
    *_, truncated, info = env.step(headway.CUT)
    assert truncated


def test_submit_is_an_action_only_where_it_is_needed() -> None:
    """The last one; always possible while the episode runs, and none is after it."""
    env = DiscreteActions(gym.make(ID))
    assert env.action_space == gym.spaces.Discrete(len(SLOTS) + 1)
    assert not env.action_masks().any()
    env.reset(seed=0)
    assert env.action_masks()[-1] and base(env).actions()[-1] == '{"tool": "submit", "args": {}}'
    *_, terminated, truncated, _ = env.step(len(SLOTS))
    assert terminated and not truncated and not env.action_masks().any()


@pytest.mark.parametrize("outside", [True, False])
def test_rewards_are_the_same_above_and_below_reward_layers(outside: bool) -> None:
    """And so is ``info``, to the last entry."""
    plain = ProgressReward(PotentialShaping(gym.make(ID, ends_on="success"), **SHAPED), gamma=0.99)
    if outside:
        env = DiscreteActions(Features(plain))
    else:
        inner = DiscreteActions(Features(gym.make(ID, ends_on="success")))
        env = ProgressReward(PotentialShaping(inner, **SHAPED), gamma=0.99)
    text = ProgressReward(PotentialShaping(gym.make(ID, ends_on="success"), **SHAPED), gamma=0.99)
    rng, options, paid = np.random.default_rng(5), {"template": "chores"}, 0
    for seed in range(4):
        _, info = env.reset(seed=seed, options=options)
        _, wanted = text.reset(seed=seed, options=options)
        assert info == wanted
        plan, ended = base(env).solution()[:-1], False
        while not ended:
            texts = base(env).actions()
            number = texts.index(plan.pop(0)) if plan and plan[0] in texts else choose(env, rng)
            _, reward, *ends, info = env.step(number)
            _, same, *others, wanted = text.step(texts[number])
            assert (reward, ends, info) == (same, others, wanted)
            paid += reward != 0
            ended = any(ends)
    assert paid > 8


def test_a_spec_rebuilds_the_stack() -> None:
    """The same numbers from the same seed and actions."""
    env = DiscreteActions(
        Features(PotentialShaping(gym.make(ID, ends_on="success", seeds=(5, 3)), **SHAPED))
    )
    twin = gym.make(env.spec)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    assert twin.action_space == env.action_space
    assert np.array_equal(env.reset(seed=4)[0], twin.reset(seed=4)[0])
    for _ in range(15):
        action = choose(env, rng)
        one, two = env.step(action), twin.step(action)
        assert np.array_equal(one[0], two[0]) and one[1:] == two[1:]
        if one[2] or one[3]:
            assert np.array_equal(env.reset()[0], twin.reset()[0])


def test_forks_and_stored_states_go_on_alike() -> None:
    """And the original does not notice."""
    env = DiscreteActions(PotentialShaping(Features(gym.make(ID, ends_on="success")), **SHAPED))
    rng = np.random.default_rng(2)
    env.reset(seed=6)
    for _ in range(5):
        env.step(choose(env, rng))
    twin, state = headway.fork(env), headway.get_state(env)
    other = DiscreteActions(PotentialShaping(Features(gym.make(ID, ends_on="success")), **SHAPED))
    other.reset(seed=0)
    headway.set_state(other, state)
    for _ in range(6):
        mask = env.action_masks()
        assert np.array_equal(mask, twin.get_wrapper_attr("action_masks")())
        assert np.array_equal(mask, other.action_masks())
        action = int(rng.choice(np.flatnonzero(mask)))
        steps = [e.step(action) for e in (twin, env, other)]
        for obs, reward, *_ in steps[1:]:
            assert np.array_equal(obs, steps[0][0]) and reward == steps[0][1]
        if any(steps[0][2:4]):
            break
    with pytest.raises(ValueError, match="state of a view must be empty"):
        env.set_state({"x": 1})


def test_worlds_without_numbers_say_so() -> None:
    """A domain without a view, and an environment without the methods."""
    assert APPS.views == () and HOUSE.views == ("DiscreteActions", "Features")
    for view in (DiscreteActions, Features):
        with pytest.raises(TypeError, match="domain Apps has no numeric view"):
            view(gym.make("headway/Apps-v0"))
        with pytest.raises(TypeError, match=r"env must offer \w+\(\) for"):
            view(gym.make("CartPole-v1"))


def test_a_range_of_seeds_bounds_what_unseeded_resets_draw() -> None:
    """All of it is drawn, nothing else, proofs are kept, and a seeded reset is free."""
    env = gym.make(ID, seeds=(100, 70), template="fetch")
    env.reset(seed=1)
    drawn = [int(env.reset()[1]["task_id"].rpartition("/")[2].split(".")[0]) for _ in range(300)]
    assert set(drawn) <= set(range(100, 170)) and len(set(drawn)) > 60
    assert {k.seed for k in base(env)._certified} >= set(drawn)
    env.reset(seed=1)
    again = [int(env.reset()[1]["task_id"].rpartition("/")[2].split(".")[0]) for _ in range(9)]
    assert again == drawn[:9]
    assert env.reset(seed=7)[1]["task_id"].partition(".")[0].endswith("/7")
    for bad in ((0,), (0, 0), (-1, 5), 7, (0, 1.5)):
        with pytest.raises(ValueError, match="seeds"):
            gym.make(ID, seeds=bad)


def test_stable_baselines_takes_it_without_a_word() -> None:
    """Its own checker, with every warning an error."""
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(ID, ends_on="success")
        check_env(DiscreteActions(Features(PotentialShaping(env, **SHAPED))), warn=True)


def test_nothing_of_it_loads_torch() -> None:
    """Neither the views nor the environment; torch comes with the learner."""
    code = """
import sys, gymnasium as gym, headway
from headway.wrappers.views import DiscreteActions, Features
DiscreteActions(Features(gym.make("headway/House-v0"))).reset(seed=0)
print([name for name in ("torch", "stable_baselines3") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "[]", done.stderr
