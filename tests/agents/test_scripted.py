"""What the four agents without a model earn, and that chance is theirs alone."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest

from headway.agents import AGENTS, NoOp, Oracle, Random, Reader, play
from headway.envs.domain import load
from headway.envs.task import DIFFICULTIES

TEMPLATES = load("headway.envs.domains.apps:APPS").template_names("test")


@pytest.fixture(
    params=[(t, d) for t in TEMPLATES for d in DIFFICULTIES], ids="{0[0]}-{0[1]}".format
)
def env(request):
    """One task of every template at every difficulty, the renderings going round."""
    template, difficulty = request.param
    rendering = (difficulty + TEMPLATES.index(template)) % 5
    yield gym.make(
        "headway/Apps-v0",
        template=template,
        difficulty=difficulty,
        rendering=rendering,
        split="test",
    )


@pytest.fixture
def bills():
    return gym.make("headway/Apps-v0", template="bills", difficulty=2)


def test_what_they_earn(env):
    """The ceiling is 1, the floor exactly 0, and looking is worth something but little."""
    oracle, noop, reader = (play(env, agent, seed=3) for agent in (Oracle(), NoOp(), Reader()))
    assert oracle.success and oracle.curve[-1] == 1.0
    assert not noop.success and noop.curve == (0.0, 0.0)
    assert not reader.success and 0.0 < reader.curve[-1] <= 0.15 + 1e-9


def test_reader_reads_before_it_submits(bills):
    bills.reset(seed=0)
    episode = play(bills, Reader(), seed=0)
    looks = bills.unwrapped.instance.look(bills.unwrapped.instance.open())
    limit = bills.unwrapped.instance.task.max_turns
    assert episode.turns == min(len(looks) + 1, limit)
    assert bills.unwrapped.box.table("submission")


def actions(agent, env, seed, turns=12):
    obs, _ = env.reset(seed=seed)
    agent.reset(env, obs)
    taken = []
    for _ in range(turns):
        taken.append(agent.act(obs))
        obs, *_ = env.step(taken[-1])
    return taken


def test_random_makes_calls_that_are_taken(bills):
    """Its calls are valid: no reply complains about the call itself."""
    agent, (obs, _) = Random(), bills.reset(seed=1)
    agent.reset(bills, obs)
    over = False
    while not over:
        obs, _, terminated, truncated, _ = bills.step(agent.act(obs))
        over = terminated or truncated
        assert "argument" not in obs and "must be" not in obs
        assert "unknown tool" not in obs and "no tool call" not in obs
    assert truncated


def test_random_repeats_under_its_seed_only(bills):
    first = Random(5)
    runs = [actions(first, bills, 0), actions(first, bills, 0), actions(first, bills, 1)]
    again = Random(5)
    assert runs == [actions(again, bills, 0), actions(again, bills, 0), actions(again, bills, 1)]
    assert runs[0] != runs[1], "two episodes of one task must have streams of their own"
    assert runs[0] != actions(Random(6), bills, 0)
    assert runs[0][0] != actions(Random(5), bills, 2)[0]


def test_random_leaves_global_streams_alone(bills):
    before = random.getstate(), np.random.get_state()[1].tolist()
    actions(Random(), bills, 0)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize("name", AGENTS)
def test_other_environments_are_refused(name):
    env = gym.make("CartPole-v1")
    with pytest.raises(TypeError, match=r"env must be a headway environment.*CartPole"):
        AGENTS[name](0).reset(env, "")


@pytest.mark.parametrize("name", AGENTS)
def test_acting_before_an_episode_is_refused(name):
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        AGENTS[name](0).act("")


@pytest.mark.parametrize("name", AGENTS)
def test_they_play_through_wrappers_and_other_formats(name, bills):
    env = gym.wrappers.RecordEpisodeStatistics(
        gym.make("headway/Apps-v0", template="receipts", action_format="hermes", split="dev")
    )
    assert play(env, AGENTS[name](0), seed=0).success == (name == "oracle")


def test_random_seed_must_be_an_int():
    with pytest.raises(TypeError, match=r"got 1\.5"):
        Random(1.5)


def test_agents_are_read_only():
    with pytest.raises(TypeError):
        AGENTS["mine"] = Oracle
