"""Same seed, same bytes, in every process; and resets that leave nothing behind."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from headway.envs.domains.apps import APPS

ID = "headway/Apps-v0"
GROWTH = 5_000_000

EPISODES = """
import json, sys
import gymnasium as gym

def record(step):
    return [*step[:4], step[4]["turn"], repr(step[4]["headway"])]

out = []
for difficulty, rendering, split, template, seed in json.load(sys.stdin):
    env = gym.make("headway:headway/Apps-v0", difficulty=difficulty, rendering=rendering)
    obs, info = env.reset(seed=seed, options={"split": split, "template": template})
    task = env.unwrapped.instance.task
    steps = [record(env.step(action)) for action in env.unwrapped.solution()]
    after = []
    for _ in range(3 if seed == 7 else 1):
        text, info = env.reset()
        after.append([info["task_id"], text, env.unwrapped.instance.task.digest])
    out.append([task.digest, task.canonical(), obs, repr(info), steps, after])
print(json.dumps(out))
"""

CASES = [
    [1, 2, "train", None, 7],
    [2, 0, "dev", "triage", 1],
    [3, 4, "test", "invite", 2],
    [4, 3, "train", "move", 0],
    [5, 1, "test", "receipts", 2**40],
    [5, 4, "dev", "split", 3],
]


def test_three_processes_make_the_same_bytes() -> None:
    """Tasks, first observations, whole oracle episodes, and the unseeded resets after them."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", EPISODES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1", "TZ": zone},
            encoding="utf-8",
        )
        for seed, zone in [("0", "UTC"), ("1", "Pacific/Kiritimati"), ("4242", "America/Nome")]
    ]
    first, *others = [process.communicate(json.dumps(CASES))[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert all(other == first for other in others)
    runs = json.loads(first)
    assert len(runs) == len({run[0] for run in runs}) == len(CASES)
    for *_, steps, after in runs:
        assert steps[-1][1:4] == [1.0, True, False]
        assert len({task_id for task_id, _, _ in after}) == len(after)


def resets(env: gym.Env[Any, Any], seed: int | None, count: int) -> list[Any]:
    """A seeded reset and ``count`` unseeded ones."""
    return [env.reset(seed=seed), *(env.reset() for _ in range(count))]


def test_unseeded_resets_after_a_seeded_one_repeat() -> None:
    """Whatever happens between them, in the environment or to the world's generators."""
    env, other = gym.make(ID), gym.make(ID)
    expected = resets(env, 7, 3)
    other.reset(seed=8)
    again = [other.reset(seed=7)]
    for _ in range(3):
        other.step(other.unwrapped.solution()[0])
        other.action_space.sample()
        random.random()
        np.random.random()
        again.append(other.reset())
    assert again == expected
    assert len({info["task_id"] for _, info in expected}) == 4


def test_no_global_generator_is_touched() -> None:
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    env = gym.make(ID)
    env.reset(seed=5)
    for action in env.unwrapped.solution():
        env.step(action)
    env.reset()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_a_seed_names_one_task_for_each_of_the_other_parts() -> None:
    """Splits need no seeds of their own, and what is not given is drawn from the seed alone."""
    env = gym.make(ID)
    texts = set()
    for split in ("train", "dev", "test"):
        for template in ("bills", "move"):
            obs, info = env.reset(seed=3, options={"split": split, "template": template})
            assert info["task_id"] == f"Apps-v0/{template}/d1/R2/{split}/3"
            texts.add(obs)
    assert len(texts) == 6
    drawn = {env.reset(seed=seed)[1]["task_id"].split("/")[1] for seed in range(40)}
    assert drawn == set(APPS.template_names("train"))


def memory() -> int:
    """Bytes this process holds."""
    gc.collect()
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def files() -> list[str]:
    """What this process has open."""
    return sorted(str(link.resolve()) for link in Path("/proc/self/fd").iterdir())


def wear(fresh: int, cached: int) -> tuple[int, int]:
    """How much memory and how many files resets take once the cache of tasks is full."""
    env = gym.make(ID)

    def run(seeds: range) -> None:
        for seed in seeds:
            env.reset(seed=seed)
            env.step(env.unwrapped.format("note_list", {}))

    run(range(100))
    before, opened = memory(), len(files())
    run(range(100, 100 + fresh))
    for _ in range(cached // 50):
        run(range(50 + fresh, 100 + fresh))
    return memory() - before, len(files()) - opened


linux = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory is read from /proc, which is Linux's"
)


@linux
def test_resets_leave_nothing_behind() -> None:
    """300 new tasks and 4,700 known ones; the suite under ``slow`` makes 5,000 new ones."""
    growth, opened = wear(300, 4700)
    assert growth < GROWTH and opened == 0


@linux
@pytest.mark.slow
def test_five_thousand_new_tasks_leave_nothing_behind() -> None:
    growth, opened = wear(5000, 0)
    assert growth < GROWTH and opened == 0


def test_nothing_waits_for_the_collector() -> None:
    """Episodes make no reference cycle at all, so memory goes back at once."""
    env = gym.make(ID)
    env.reset(seed=1)
    gc.collect()
    gc.disable()
    try:
        for seed in range(1, 6):
            _, info = env.reset(seed=seed)
            for action in ["", "{", '{"tool": "x"}', *env.unwrapped.solution()]:
                _, _, _, _, info = env.step(action)
            del info
        assert gc.collect() == 0
    finally:
        gc.enable()


def reachable(root: Any) -> list[Any]:
    """Everything that hangs on ``root``, classes and code aside."""
    found, todo = {id(root): root}, [root]
    while todo:
        for item in gc.get_referents(todo.pop()):
            if not isinstance(item, type | ModuleType | FunctionType) and id(item) not in found:
                found[id(item)] = item
                todo.append(item)
    return list(found.values())


def test_an_info_holds_plain_data_only() -> None:
    """No way back to itself, to the environment or to what is behind the task."""
    env = gym.make(ID)
    _, first = env.reset(seed=1)
    (*_, last) = [env.step(action) for action in env.unwrapped.solution()]
    for info in (first, last[4]):
        things = reachable(info)
        assert len(things) < 300
        assert {type(x).__name__ for x in things} <= {
            *("dict", "list", "str", "int", "float", "bool", "NoneType", "tuple", "Verdict", "Node")
        }
        assert all(info is not x for thing in things for x in gc.get_referents(thing))
