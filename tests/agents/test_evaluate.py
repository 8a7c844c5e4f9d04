"""What episodes amount to: means over verdicts only, whatever the number of jobs."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.agents import (
    Episode,
    Evaluation,
    NoOp,
    Oracle,
    evaluate,
    pass_at_k,
    play,
    wilson,
)
from headway.envs.box import SandboxDied
from headway.envs.domain import load
from headway.verifiers import KINDS

APPS = load("headway.envs.domains.apps:APPS")


@given(st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_success(data):
    tries = data.draw(st.integers(1, 8))
    successes = data.draw(st.integers(0, tries))
    k = data.draw(st.integers(1, tries))
    won = [n < successes for n in range(tries)]
    draws = [any(draw) for draw in combinations(won, k)]
    assert pass_at_k(tries, successes, k) == pytest.approx(sum(draws) / len(draws), abs=1e-12)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((4, 2, 0), r"k must be in \[1, 4\], got 0"),
        ((4, 2, 5), r"k must be in \[1, 4\], got 5"),
        ((4, 5, 1), r"successes must be in \[0, 4\], got 5"),
    ],
)
def test_pass_at_k_says_what_is_wrong(args, says):
    with pytest.raises(ValueError, match=says):
        pass_at_k(*args)


def test_wilson_by_hand():
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=5e-5)
    assert wilson(1, 20) == pytest.approx((0.0089, 0.2361), abs=5e-5)
    assert wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=5e-5))
    assert all(map(math.isnan, wilson(0, 0)))
    with pytest.raises(ValueError, match=r"successes must be in \[0, 3\], got 4"):
        wilson(4, 3)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_mirrors(pair):
    won, of = pair
    low, high = wilson(won, of)
    assert 0.0 <= low <= won / of <= high <= 1.0
    mirrored = wilson(of - won, of)
    assert (1 - high, 1 - low) == pytest.approx(mirrored, abs=1e-9)


def episode(task="a", template="t", **fields):
    return Episode(task_id=task, template=template, **fields)


def test_means_are_over_verdicts_only():
    """By hand: a win, a loss, a failed grader and a dead machine."""
    found = Evaluation(
        "env",
        "agent",
        (
            episode(success=True, curve=(0.0, 0.5, 1.0), families={"pay": True, "read": True}),
            episode("b", curve=(0.0, 0.2), families={"pay": False}),
            episode("c", "u", status="no_verdict", curve=(0.0, 0.9, 0.9, 0.9)),
            Episode(status="died"),
        ),
    )
    assert (found.episodes, found.no_verdict, found.died) == (4, 1, 1)
    assert found.success == 0.5
    assert found.interval == wilson(1, 2)
    assert found.progress == pytest.approx(0.6)
    assert found.curve == pytest.approx((0.0, 0.35, 0.6))
    assert found.turns == 1.5
    assert found.pass_at_k == {1: 0.5}
    assert found.by_check == {"pay": 0.5, "read": 1.0}
    parts = found.by_template
    assert [parts[name].episodes for name in ("t", "u", "unknown")] == [2, 1, 1]
    assert math.isnan(parts["u"].success) and math.isnan(parts["u"].progress)


def test_a_curve_begins_where_something_was_measured():
    late = (math.nan, math.nan, 0.4)
    found = Evaluation("env", "agent", (episode(curve=late), episode(curve=(0.0, 0.2))))
    assert found.curve == pytest.approx((0.0, 0.2, 0.3))


def test_pass_at_k_over_tasks():
    """Two tasks of four tries; one try has no verdict, so its task says nothing of k = 4."""
    wins = {"a": (True, False, False, False), "b": (False, False, False, None)}
    played = tuple(
        episode(task, success=bool(won), curve=(0.0,), status="ok" if won is not None else "died")
        for task, tries in wins.items()
        for won in tries
    )
    found = Evaluation("env", "agent", played, samples=4).pass_at_k
    assert found == {1: pytest.approx(0.125), 2: pytest.approx(0.25), 4: pytest.approx(1.0)}


def test_jobs_do_not_change_the_result():
    heard = []

    def run(jobs):
        return evaluate(
            "headway/Apps-v0",
            "random",
            episodes=8,
            samples=2,
            difficulty=2,
            rendering=1,
            jobs=jobs,
            told=lambda done, of: heard.append((done, of)),
        )

    one, two = run(1), run(2)
    assert one == two
    assert heard == [(2, 8), (4, 8), (6, 8), (8, 8)] * 2
    curves = [e.curve for e in one.played]
    assert any(curves[i] != curves[i + 1] for i in range(0, 8, 2)), "samples must differ"
    assert [e.task_id.split("/")[2:] for e in one.played[::2]] == [
        ["d2", "R1", "test", str(seed)] for seed in range(4)
    ]


def test_seeds_are_disjoint():
    parts = [
        evaluate("headway/Apps-v0", "noop", episodes=2, seed0=seed, split="train").played
        for seed in (5, 7)
    ]
    whole = evaluate("headway/Apps-v0", "noop", episodes=4, seed0=5, split="train").played
    assert parts[0] + parts[1] == whole
    assert len({e.task_id for e in whole}) == 4


def test_the_four_in_numbers():
    oracle = evaluate("headway/Apps-v0", "oracle", episodes=4, samples=2)
    assert (oracle.success, oracle.progress, oracle.no_verdict, oracle.died) == (1.0, 1.0, 0, 0)
    assert oracle.pass_at_k == {1: 1.0, 2: 1.0}
    assert set(oracle.by_check.values()) == {1.0}
    noop = evaluate("headway/Apps-v0", "noop", episodes=2)
    assert (noop.success, noop.progress, noop.turns) == (0.0, 0.0, 1.0)
    assert set(noop.by_check.values()) == {0.0}


class Broken:
    """Apps whose row checks can be made to raise and whose machine can be made to die."""

    def __init__(self) -> None:
        self.fault = ""
        rows = KINDS["rows"]

        def prepare(args):
            test = rows.prepare(args)

            def run(view):
                if self.fault == "grader":
                    raise RuntimeError("the grader is broken")
                return test(view)

            return run

        self.domain = replace(APPS, kinds={**KINDS, "rows": replace(rows, prepare=prepare)})

    def make(self, **kwargs):
        self.fault = ""
        return Mortal(gym.make("headway/Apps-v0", domain=self.domain, **kwargs), self)

    def agent(self, fault):
        """An oracle on whose third turn the fault begins."""
        broken = self

        class Unlucky(Oracle):
            turn = 0

            def act(self, obs):
                self.turn += 1
                if self.turn == 3:
                    broken.fault = fault
                return super().act(obs)

        return Unlucky()


class Mortal(gym.Wrapper):
    def __init__(self, env, broken):
        super().__init__(env)
        self.broken = broken

    def step(self, action):
        if self.broken.fault == "machine":
            raise SandboxDied("the machine is gone", by="infra")
        return super().step(action)


def test_what_has_no_verdict_is_counted_apart():
    """Never as a zero, never as a pass: means are those of the episodes that were graded."""
    broken = Broken()
    faults = ["", "grader", "machine"]

    found = evaluate(
        broken.make,
        lambda seed: broken.agent(faults[seed]),
        episodes=3,
        samples=3,
        template="bills",
        difficulty=2,
    )
    fine, failed, dead = found.played
    assert (found.no_verdict, found.died) == (1, 1)
    assert (failed.status, dead.status) == ("no_verdict", "died")
    assert "the grader is broken" in failed.reason and dead.reason == "the machine is gone"
    assert (found.success, found.progress) == (1.0, 1.0)
    assert found.turns == fine.turns
    assert not failed.success and 0.0 < failed.curve[-1] == failed.curve[-2] < 1.0, "not carried"
    assert found.pass_at_k == {1: 1.0, 2: pytest.approx(math.nan, nan_ok=True)}


def test_a_grader_that_recovers_is_no_loss():
    """An episode's status is its final grade's; on the way the last progress is carried."""
    broken = Broken()

    class Hiccup(Oracle):
        turn = 0

        def act(self, obs):
            self.turn += 1
            broken.fault = "grader" if self.turn in (3, 4) else ""
            return super().act(obs)

    found = evaluate(broken.make, lambda seed: Hiccup(), episodes=1, template="bills", difficulty=2)
    assert found.success == 1.0 and found.no_verdict == 0


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"episodes": 0}, "episodes must be an int of at least 1, got 0"),
        ({"episodes": 2.0}, r"episodes must be an int of at least 1, got 2\.0"),
        ({"samples": 0}, "samples must be an int of at least 1, got 0"),
        ({"samples": 3}, "episodes must be a multiple of samples=3, got 4"),
        ({"seed0": -1}, "seed0 must be an int of at least 0, got -1"),
        ({"jobs": 0}, "jobs must be an int of at least 1, got 0"),
        ({"agent": "oracel"}, r"agent must be one of .* got 'oracel'; did you mean 'oracle'\?"),
        ({"split": "tset"}, r"split must be one of .* got 'tset'; did you mean 'test'\?"),
        ({"difficulty": 6}, "difficulty must be one of .* got 6"),
    ],
)
def test_bad_arguments_are_named(changed, says):
    wanted = {"env": "headway/Apps-v0", "agent": "noop", "episodes": 4, **changed}
    with pytest.raises(ValueError, match=says):
        evaluate(**wanted)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"agent": NoOp}, r"agent must take a seed .* NoOp does not; write lambda seed: NoOp\("),
        (
            {"agent": NoOp()},
            r"agent must be a name or a function seed -> agent, got .* lambda seed",
        ),
        ({"agent": None}, "agent must be a name or a function seed -> agent, got None"),
        (
            {"agent": lambda seed: "noop"},
            r"must make agents with reset\(\) and act\(\), made 'noop'",
        ),
        ({"agent": lambda seed: NoOp}, r"must make agents with reset\(\) and act\(\), made <class"),
        ({"env": gym.make("headway/Apps-v0")}, "env must be an id or a function that makes"),
        ({"env": 3}, "env must be an id or a function that makes"),
        ({"env": "CartPole-v1"}, "env must take the settings split of a headway environment"),
        ({"env": lambda **_: gym.make("CartPole-v1")}, "env must be a headway environment, "),
        ({"env": lambda **_: None}, "env must be a headway environment, .* got None"),
        ({"dificulty": 3}, "env must take the settings split, dificulty .*'dificulty'"),
    ],
)
def test_what_is_no_agent_and_no_environment(changed, says):
    wanted = {"env": "headway/Apps-v0", "agent": "noop", "episodes": 1, **changed}
    with pytest.raises((TypeError, ValueError), match=says):
        evaluate(**wanted)


def test_one_may_name_ones_own():
    """A Domain, a registered id and an agent, each by where it stands."""
    names = ["headway.envs.domains.apps:APPS", "headway:headway/Apps-v0", "headway/Apps-v0"]
    founds = [evaluate(name, "headway.agents:Random", episodes=1) for name in names]
    assert founds[0].played == founds[1].played == founds[2].played
    assert (founds[0].id, founds[0].agent) == (names[0], "headway.agents:Random")
    for agent in ("headway.agents:Rndom", "headway.nowhere:Random", ":Random"):
        with pytest.raises(ValueError, match="agent must name what is there as 'module:ATTRIBUTE'"):
            evaluate("headway/Apps-v0", agent, episodes=1)
    with pytest.raises(gym.error.NameNotFound, match="Did you mean: `Apps`"):
        evaluate("headway/Aps-v0", "noop", episodes=1)


def test_names_of_functions_stand_in_the_result():
    broken = Broken()
    found = evaluate(broken.make, idle, episodes=1)
    assert (found.id, found.agent) == ("make", "idle")


def idle(seed):
    return NoOp()


def test_a_family_counts_when_all_of_it_does():
    """The work on the first invoice is left out, that on the last is done."""
    env = gym.make("headway/Apps-v0", template="bills", difficulty=2)

    class Late(Oracle):
        def reset(self, env, obs):
            super().reset(env, obs)
            del self._rest[-len(self._rest) // 2 :]

    families = play(env, Late(), seed=0).families
    ok = env.unwrapped.grade().ok
    paid = [counts for name, counts in ok.items() if name.startswith("label.")]
    assert paid == [False, True] and families["label"] is False
    assert families == {
        family: all(counts for name, counts in ok.items() if name.split(".")[0] == family)
        for family in dict.fromkeys(name.split(".")[0] for name in ok)
    }


def test_an_error_on_the_way_ends_the_rest():
    """What is not begun is not played: waiting for all of it would take minutes."""

    def told(done, of):
        raise InterruptedError

    begun = time.monotonic()
    with pytest.raises(InterruptedError):
        evaluate("headway/Apps-v0", "random", episodes=4000, difficulty=5, jobs=2, told=told)
    assert time.monotonic() - begun < 30


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
@pytest.mark.parametrize("how", ["Ctrl-C", "killed"])
def test_no_process_is_left(how):
    """Neither Ctrl-C, which all of them get, nor the death of the parent leaves a worker."""
    argv = ["eval", "Apps", "--agent", "random", "--difficulty", "5", "--episodes", "5000"]
    run = subprocess.Popen(
        [sys.executable, "-c", HEARING, "-m", "headway.cli", *argv, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert wait_until(lambda: len([p for p in group(run.pid) if deaf(p)]) >= 3), "not at work"
        if how == "Ctrl-C":
            os.killpg(run.pid, signal.SIGINT)
        else:
            run.kill()
        _, errors = run.communicate(timeout=60)
        assert run.returncode == (130 if how == "Ctrl-C" else -signal.SIGKILL)
        assert "Traceback" not in errors
        assert wait_until(lambda: not group(run.pid)), f"left: {group(run.pid)}"
    finally:
        for left in group(run.pid):
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)


HEARING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Starts a process that hears Ctrl-C, though scripts and CI may have started us without."""


def group(leader):
    """Living processes of a session."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        state, _, _, session = stat.rpartition(") ")[2].split()[:4]
        if int(session) == leader and state != "Z":
            found.append(int(name))
    return found


def deaf(process):
    """Whether a process ignores Ctrl-C, as a worker does once it is at work."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    mask = next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1]
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def wait_until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
