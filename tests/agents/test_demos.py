"""Demonstrations: the tokens that a rollout would have fed, and noise that spoils nothing."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents.demos import Expert, Plan, demonstrations, teacher_of
from headway.agents.evaluate import make
from headway.agents.policy import Policy
from headway.agents.rollout import collect
from headway.agents.tiny import bpe, tiny
from headway.bench.depot import WORDS, Depot
from headway.envs.rng import Rng
from headway.wrappers import ProgressReward

WORLDS = ("headway/Apps-v0", "headway/House-v0", "headway/HopSearch-v0")


@pytest.fixture(scope="module")
def small() -> Policy:
    """For the depot."""
    return tiny(WORDS, seed=0, context=160)


@pytest.fixture(scope="module")
def spelling() -> Policy:
    """For any text."""
    texts = [make(id).reset(seed=0)[0] for id in WORLDS]
    return tiny(
        bpe(texts, vocabulary=400), seed=0, layers=1, width=16, heads=2, ffn=16, context=9000
    )


def depot() -> gym.Env[Any, Any]:
    return Depot(12)


class Heard:
    """A teacher that remembers what was played."""

    def __init__(self, teacher: Any, played: list[str]) -> None:
        self.teacher, self.played = teacher, played

    def right(self) -> str:
        return self.teacher.right()

    def stray(self, rng: Rng) -> str:
        return self.teacher.stray(rng)

    def took(self, action: str, meant: bool) -> None:
        self.played.append(action)
        self.teacher.took(action, meant)

    def finishes(self, twin: gym.Env[Any, Any]) -> bool:
        return self.teacher.finishes(twin)


def heard(new, policy, **options):
    """Demonstrations, and the actions of each."""
    played: list[list[str]] = []

    def teacher(env: gym.Env[Any, Any]) -> Heard:
        played.append([])
        return Heard(teacher_of(env), played[-1])

    return demonstrations(new, policy.template, teacher=teacher, **options), played


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_ids_and_mask_are_those_of_a_rollout_of_the_same_actions(small, noise):
    demos, played = heard(depot, small, episodes=6, seed=3, noise=noise, clone_noise=True)
    for demo, actions in zip(demos, played, strict=True):
        (same,) = collect(
            small,
            [{"options": {"task_id": demo.task_id}}],
            depot,
            key=(0,),
            teacher=lambda env, obs, turn, actions=actions: actions[turn],
        ).trajectories
        assert same.task_id == demo.task_id and same.success and demo.success
        np.testing.assert_array_equal(demo.ids, same.ids)
        np.testing.assert_array_equal(demo.mask, same.mask)
        assert (demo.ids.dtype, demo.mask.dtype) == (np.int32, np.bool_)
        assert demo.turns == len(same.turns) == len(actions)


@pytest.mark.parametrize("action_format", ["hermes", "command"])
def test_the_same_in_a_headway_world(spelling, action_format):
    def new() -> gym.Env[Any, Any]:
        return ProgressReward(make(WORLDS[0], action_format=action_format), gamma=0.9)

    demos, played = heard(new, spelling, episodes=2, seed=1, noise=0.3, clone_noise=True)
    for demo, actions in zip(demos, played, strict=True):
        (same,) = collect(
            spelling,
            [{"options": {"task_id": demo.task_id}}],
            new,
            key=(0,),
            turn_tokens=2000,
            teacher=lambda env, obs, turn, actions=actions: actions[turn],
        ).trajectories
        np.testing.assert_array_equal(demo.ids, same.ids)
        np.testing.assert_array_equal(demo.mask, same.mask)
        assert [turn.action for turn in same.turns] == actions


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), noise=st.floats(0.0, 0.9), cloned=st.booleans())
def test_the_mask_is_on_what_the_teacher_meant(small, seed, noise, cloned):
    (demo,), (actions,) = heard(
        depot, small, episodes=1, seed=seed, noise=noise, clone_noise=cloned
    )
    runs = [
        (bool(on), small.template.text([i for i, _ in part]))
        for on, part in itertools.groupby(
            zip(demo.ids.tolist(), demo.mask.tolist(), strict=True), key=lambda pair: pair[1]
        )
    ]
    shown = [text for on, text in runs if on]
    assert all(len(text.split()) == 3 for text in shown)
    assert demo.strays == len(actions) - len(shown) if not cloned else len(shown) == len(actions)
    rest = iter(actions)
    assert all(text in rest for text in shown)  # a subsequence
    assert demo.success and demo.turns == len(actions) <= 12


def test_noise_is_as_common_as_asked_and_is_recovered_from(small):
    demos = demonstrations(depot, small.template, episodes=200, seed=0, noise=0.3)
    share = sum(demo.strays for demo in demos) / sum(demo.turns for demo in demos)
    assert 0.2 < share < 0.32
    assert all(demo.success for demo in demos)
    assert len({demo.task_id for demo in demos}) > 190
    none = demonstrations(depot, small.template, episodes=20, seed=0)
    assert all((demo.strays, demo.turns) == (0, 6) for demo in none)


def test_without_recovery_noise_may_be_the_end(small):
    demos = demonstrations(
        depot, small.template, episodes=60, seed=0, noise=0.6, recover=False, clone_noise=True
    )
    assert 0 < sum(demo.success for demo in demos) < 60
    assert 0.5 < sum(d.strays for d in demos) / sum(d.turns for d in demos) < 0.7


@pytest.mark.parametrize("id", WORLDS)
def test_stray_calls_of_every_kind_spoil_no_solution(spelling, id):
    """Reads, repeats, failed calls, and calls that write where that does no harm."""
    demos, played = heard(
        lambda: make(id, difficulty=2, action_format="command"),
        spelling,
        episodes=6,
        seed=0,
        noise=0.5,
    )
    assert all(demo.success for demo in demos)
    assert sum(demo.strays for demo in demos) >= 12
    for demo in demos:
        assert "/train/" in demo.task_id
    repeated = sum(a == b for actions in played for a, b in itertools.pairwise(actions))
    assert repeated > 0


@pytest.mark.parametrize("id", [WORLDS[0], WORLDS[2]])
def test_the_kinds_of_stray_calls(id):
    """A quarter each, but for any valid call, which may be one of the others as well."""
    env = make(id, action_format="command").unwrapped
    env.reset(seed=4)
    plan, rng = Plan(env), Rng("test")
    first = plan.right()
    env.step(first)
    plan.took(first, True)
    strays = [plan.stray(rng) for _ in range(200)]
    looks = {env.format(look.tool, look.args) for look in env.instance.look(env.box)}
    tool, *words = plan.right().split()
    short = sum(s.split()[0] == tool and len(s.split()) <= len(words) for s in strays)
    assert 30 <= strays.count(first) <= 70
    assert 30 <= sum(stray in looks for stray in strays) <= 100
    assert short >= 20
    assert len(set(strays)) > 30


def test_equal_seeds_equal_episodes_and_each_is_its_own(small):
    options = {"noise": 0.4, "clone_noise": True}
    few = demonstrations(depot, small.template, episodes=3, seed=5, **options)
    more = demonstrations(depot, small.template, episodes=6, seed=5, **options)
    other = demonstrations(depot, small.template, episodes=6, seed=6, **options)
    for a, b in zip(few, more, strict=False):
        assert a.task_id == b.task_id and a.ids.tolist() == b.ids.tolist()
    assert not {demo.task_id for demo in more} & {demo.task_id for demo in other}
    plain = demonstrations(depot, small.template, episodes=6, seed=5)
    assert [demo.task_id for demo in plain] == [demo.task_id for demo in more]


def test_other_splits_are_never_shown(spelling):
    demos = demonstrations(
        lambda: make(WORLDS[1], split="test"), spelling.template, episodes=3, seed=0
    )
    assert all("/train/" in demo.task_id for demo in demos)


def test_progress_is_told_and_the_environment_closed(small):
    told, closed = [], []

    class Closing(Depot):
        def close(self) -> None:
            closed.append(1)

    demonstrations(
        Closing, small.template, episodes=3, seed=0, told=lambda done, of: told.append((done, of))
    )
    assert (told, closed) == ([(1, 3), (2, 3), (3, 3)], [1])


def test_what_is_refused(small):
    template = small.template
    for bad, message in (
        ({"episodes": 0}, "episodes must be an int of at least 1, got 0"),
        ({"noise": 1.0}, r"noise must be a number in \[0, 1\), got 1.0"),
        ({"seed": -1}, "seed must be an int of at least 0, got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            demonstrations(depot, template, **{"episodes": 1, "seed": 0, **bad})
    with pytest.raises(TypeError, match="offer expert"):
        demonstrations(lambda: gym.make("CartPole-v1"), template, episodes=1, seed=0)

    class Lazy(Expert):
        def right(self) -> str:
            return "quit north nah"

    with pytest.raises(ValueError, match=r"teacher must succeed, but failed in Depot-v0/12/\d+"):
        demonstrations(depot, template, episodes=1, seed=0, teacher=lambda env: Lazy(env.unwrapped))


def test_a_solution_that_does_not_end_is_no_demonstration():
    env = make(WORLDS[1])
    env.reset(seed=0)
    plan = Plan(env.unwrapped)
    for _ in env.unwrapped.instance.solution():
        plan.took(plan.right(), True)
    with pytest.raises(ValueError, match="does not end it"):
        plan.right()
    assert not plan.finishes(env)
