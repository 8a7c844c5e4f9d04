"""Many at once: the same texts in every kind of vector, and failures that stay in their lane."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

import headway
from headway.envs.box import Box, SandboxDied
from headway.envs.domain import Domain
from headway.envs.domains.apps import APPS
from headway.envs.tool_env import ToolEnv
from headway.envs.tools import tool
from headway.envs.vector import Turn
from headway.wrappers import ProgressReward

ID = "headway/Apps-v0"
SEEDS = (3, 4, 5)
NOTHING = "nada, 何も, 🍸"

# From Python 3.12 on a fork is warned of wherever some library has started a thread.
FORK = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@tool(writes=True)
def crash(box: Box) -> str:
    """Break the machine."""
    raise SandboxDied("the machine broke", by="infra")


@pytest.fixture(scope="module")
def fragile() -> Domain:
    """Apps with a machine that can be broken."""
    return replace(APPS, tools=(*APPS.tools, crash))


Lane = list[tuple[str | None, str, float, bool, bool]]
LAYER = functools.partial(ProgressReward, gamma=0.9)


def play_alone(env: gym.Env[Any, Any], seed: int) -> Lane:
    """Two episodes and a bit, played by one environment: actions and outcomes.

    As in Gymnasium's next-step mode, the step after an end is a reset that ignores its action.
    """
    lane: Lane = [(None, env.reset(seed=seed)[0], 0.0, False, False)]
    for episode in range(3):
        work = [NOTHING, "", *env.unwrapped.solution()]
        for action in work[: 2 if episode == 2 else None]:
            lane.append((action, *env.step(action)[:4]))
        if episode < 2:
            lane.append((NOTHING, env.reset()[0], 0.0, False, False))
    return lane


@pytest.fixture(scope="module")
def alone() -> list[Lane]:
    """What each seed comes to by itself, with a reward layer."""
    return [play_alone(LAYER(gym.make(ID)), seed) for seed in SEEDS]


def rows(lanes: list[Lane]) -> Iterator[list[tuple[Any, ...]]]:
    """The lanes turn by turn, as long as all of them go on."""
    return (list(row) for row in zip(*lanes, strict=False))


def check(vector: VectorEnv[Any, Any, Any], lanes: list[Lane]) -> None:
    """Plays the same actions in a vector and compares whole texts, rewards and ends."""
    first, *rest = rows(lanes)
    obs, infos = vector.reset(seed=list(SEEDS))
    assert list(obs) == [turn[1] for turn in first]
    assert list(infos["turn"]) == [0, 0, 0]
    ended = 0
    for row in rest:
        obs, rewards, terminated, truncated, _ = vector.step([turn[0] for turn in row])
        got = zip(obs, rewards.tolist(), terminated.tolist(), truncated.tolist(), strict=True)
        assert list(got) == [turn[1:] for turn in row]
        assert all(type(text) is str for text in obs)
        ended += sum(terminated)
    assert ended > len(SEEDS)
    vector.close()


def test_sync_carries_the_same_texts(alone) -> None:
    check(headway.make_vec(ID, len(SEEDS), wrappers=[LAYER]), alone)


@FORK
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_async_carries_the_same_texts(alone, context: str) -> None:
    vector = headway.make_vec(
        ID,
        len(SEEDS),
        vectorization_mode="async",
        vector_kwargs={"context": context},
        wrappers=[LAYER],
    )
    assert isinstance(vector, AsyncVectorEnv)
    check(vector, alone)


def test_a_bare_spawned_worker_finds_the_id() -> None:
    """The worker has never imported headway; the id alone tells it to."""
    make = functools.partial(gym.make, "headway:headway/Apps-v0")
    bare = [play_alone(gym.make(ID), seed) for seed in SEEDS]
    check(AsyncVectorEnv([make] * len(SEEDS), shared_memory=False, context="spawn"), bare)


def test_lanes_carry_the_same_texts(alone) -> None:
    """Whichever way they are stepped; resets are asked for."""
    together = headway.TextVec(lambda: LAYER(gym.make(ID)), len(SEEDS))
    singly = headway.TextVec(lambda: LAYER(gym.make(ID)), len(SEEDS))
    first = [together.reset(SEEDS), [singly.reset_lane(i, seed=s) for i, s in enumerate(SEEDS)]]
    for results in first:
        assert [obs for obs, _ in results] == [lane[0][1] for lane in alone]
    over = [False] * len(SEEDS)
    for row in list(rows(alone))[1:]:
        actions = [None if done else turn[0] for done, turn in zip(over, row, strict=True)]
        results = together.step(actions)
        assert [result is None for result in results] == over
        for lane, (done, turn) in enumerate(zip(over, row, strict=True)):
            if done:
                assert together.reset_lane(lane)[0] == singly.reset_lane(lane)[0] == turn[1]
            else:
                assert isinstance(results[lane], Turn) and results[lane][:4] == turn[1:]
                assert singly.step_lane(lane, turn[0])[:4] == turn[1:]
            over[lane] = turn[3] or turn[4]
    together.close()
    singly.close()


def test_stock_shared_memory_names_the_cure() -> None:
    """It cannot carry text, and says so before any episode."""
    with pytest.raises(ValueError, match="shared_memory=False"):
        gym.make_vec(ID, 2, vectorization_mode="async")


def test_shared_memory_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="shared_memory must be False"):
        headway.make_vec(ID, 2, vectorization_mode="async", vector_kwargs={"shared_memory": True})


@pytest.mark.parametrize("mode", ["vector_entry_point", "asynch", None, 1])
def test_unknown_modes_are_explained(mode: Any) -> None:
    with pytest.raises(ValueError, match="vectorization_mode must be 'sync' or 'async'"):
        headway.make_vec(ID, 2, vectorization_mode=mode)


def test_wrappers_and_flags_reach_every_lane() -> None:
    vector = headway.make_vec(
        ID, 2, wrappers=[gym.wrappers.RecordEpisodeStatistics], vector_kwargs={"copy": False}
    )
    assert isinstance(vector, SyncVectorEnv) and not vector.copy
    assert [type(env) for env in vector.envs] == [gym.wrappers.RecordEpisodeStatistics] * 2
    vector.close()


def test_attributes_go_through_a_vector() -> None:
    vector = headway.make_vec(ID, 2)
    vector.reset(seed=[1, 2])
    tasks = [instance.task.id for instance in vector.get_attr("instance")]
    assert [task.rsplit("/", 1)[1] for task in tasks] == ["1", "2"]
    vector.close()


# Lanes.


def lanes_of(domain: Domain, count: int = 3) -> headway.TextVec:
    """Bare lanes of one domain, which all play the same template."""
    return headway.TextVec(lambda: ToolEnv(domain, template="bills"), count)


def test_one_lanes_death_does_not_touch_the_others(fragile) -> None:
    """The dead lane's result is the failure, until it is reset."""
    vec = lanes_of(fragile)
    vec.reset([1, 1, 1])
    boom = vec.envs[1].unwrapped.format("crash", {})
    work = vec.envs[0].unwrapped.solution()
    alive, dead, also = vec.step([work[0], boom, work[0]])
    assert isinstance(dead, SandboxDied) and dead.by == "infra"
    assert alive[:4] == also[:4] and alive.info["turn"] == 1
    for turn, action in enumerate(work[1:]):
        results = vec.step([action, NOTHING if turn % 2 else None, action])
        assert results[1] is (dead if turn % 2 else None)
    assert [results[i].reward for i in (0, 2)] == [1.0, 1.0]
    _, info = vec.reset_lane(1, seed=1)
    assert info["turn"] == 0 and vec.step([None, NOTHING, None])[1].info["turn"] == 1


def test_a_single_step_raises_the_death(fragile) -> None:
    vec = lanes_of(fragile, 2)
    vec.reset([1, 1])
    with pytest.raises(SandboxDied):
        vec.step_lane(0, vec.envs[0].unwrapped.format("crash", {}))
    assert vec.step_lane(1, NOTHING).info["turn"] == 1


def test_a_machine_that_dies_in_a_reset_takes_no_other_lane_along() -> None:
    class Mortal(ToolEnv):
        def reset(self, **kwargs: Any) -> Any:
            if kwargs["seed"] == 2:
                raise SandboxDied("no machine", by="infra")
            return super().reset(**kwargs)

    vec = headway.TextVec(lambda: Mortal(APPS), 3)
    first, dead, last = vec.reset([1, 2, 3])
    assert isinstance(dead, SandboxDied)
    assert [first[1]["turn"], last[1]["turn"]] == [0, 0]


def test_a_forked_lane_goes_its_own_way() -> None:
    vec = lanes_of(APPS)
    vec.reset([1, 2, 3])
    work = vec.envs[0].unwrapped.solution()
    vec.step([work[0], None, None])
    vec.fork_lane(0, 2)
    assert vec.envs[0] is not vec.envs[2]
    rest = [vec.step([action, None, action]) for action in work[1:]]
    assert all(a[:4] == c[:4] for a, _, c in rest) and rest[-1][2].reward == 1.0
    vec.fork_lane(1, 0)
    ended = vec.step([headway.CUT, NOTHING, None])
    assert ended[0].truncated and not ended[1].truncated
    assert ended[0].info["task_id"] == ended[1].info["task_id"]


def test_options_go_to_their_lane() -> None:
    vec = headway.TextVec(ID, 2, template="bills")
    results = vec.reset([1, 1], [{"template": "move"}, None])
    assert [info["task_id"].split("/")[1] for _, info in results] == ["move", "bills"]
    assert len(vec) == 2


def test_unseeded_lanes_differ() -> None:
    """Nothing global is seeded, and lanes do not share a stream."""
    vec = headway.TextVec(ID, 4)
    assert len({info["task_id"] for _, info in vec.reset()}) == 4


@pytest.mark.parametrize("count", [0, -1])
def test_too_few_lanes_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"lanes must be at least 1, got {count}"):
        headway.TextVec(ID, count)


def test_a_single_step_marks_the_lane(fragile) -> None:
    """What died alone is dead together, and the others go on."""
    vec = lanes_of(fragile, 2)
    vec.reset([1, 1])
    boom = vec.envs[0].unwrapped.format("crash", {})
    with pytest.raises(SandboxDied):
        vec.step_lane(0, boom)
    dead, alive = vec.step([NOTHING, NOTHING])
    assert isinstance(dead, SandboxDied) and alive.info["turn"] == 1
    with pytest.raises(SandboxDied):
        vec.step_lane(0, NOTHING)


def test_the_sibling_of_a_dead_lane_is_dead(fragile) -> None:
    vec = lanes_of(fragile, 2)
    vec.reset([1, 1])
    vec.step([vec.envs[0].unwrapped.format("crash", {}), None])
    vec.fork_lane(0, 1)
    assert all(isinstance(result, SandboxDied) for result in vec.step([NOTHING, NOTHING]))


def test_a_lane_that_is_over_stops_nobody() -> None:
    """The error comes before any lane has moved."""
    vec = lanes_of(APPS, 2)
    vec.reset([1, 1])
    vec.step([None, headway.CUT])
    with pytest.raises(gym.error.ResetNeeded, match=r"lanes \[1\]"):
        vec.step([NOTHING, NOTHING])
    assert vec.step([NOTHING, None])[0].info["turn"] == 1


def test_progress_reaches_the_schedules_of_all_lanes() -> None:
    from headway.wrappers import ProgressReward, ScheduledReward

    vec = headway.TextVec(
        lambda: ScheduledReward(ProgressReward(gym.make(ID), gamma=1.0), steps=10), 2
    )
    assert headway.set_progress(vec, 5) == 2


def test_schedules_in_other_processes_are_not_passed_over_in_silence() -> None:
    vector = headway.make_vec(ID, 1, vectorization_mode="async")
    try:
        with pytest.raises(TypeError, match="set_progress"):
            headway.set_progress(vector, 5)
    finally:
        vector.close()


def test_resetting_all_lanes_revives_the_dead(fragile) -> None:
    vec = lanes_of(fragile, 2)
    vec.reset([1, 1])
    vec.step([vec.envs[0].unwrapped.format("crash", {}), NOTHING])
    vec.reset([1, 1])
    assert [turn.info["turn"] for turn in vec.step([NOTHING] * 2)] == [1, 1]


def test_a_fork_over_a_dead_lane_revives_it(fragile) -> None:
    vec = lanes_of(fragile, 2)
    vec.reset([1, 2])
    vec.step([vec.envs[0].unwrapped.format("crash", {}), NOTHING])
    vec.fork_lane(1, 0)
    turns = vec.step([NOTHING] * 2)
    assert turns[0] == turns[1] and turns[0].info["turn"] == 2


@pytest.mark.parametrize("given", [{"seeds": [1]}, {"options": [None] * 3}])
def test_seeds_and_options_are_one_a_lane(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be one a lane, 2, got"):
        lanes_of(APPS, 2).reset(**given)


@pytest.mark.parametrize("count", [1, 3])
def test_actions_are_one_a_lane(count: int) -> None:
    """Before any lane has moved."""
    vec = lanes_of(APPS, 2)
    vec.reset([1, 2])
    with pytest.raises(ValueError, match=f"one a lane, 2, got {count}"):
        vec.step([NOTHING] * count)
    assert [turn.info["turn"] for turn in vec.step([NOTHING] * 2)] == [1, 1]
