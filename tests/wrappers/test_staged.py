"""Stages below success, economy above it, paid once."""

from __future__ import annotations

import json
import math

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.verifiers import Check, Verdict, penalty
from headway.wrappers import StagedReward
from headway.wrappers.stack import build
from headway.wrappers.staged import Performance

IDS = ("a", "b", "c", "d")
CHECKS = tuple(
    Check(name, "rows", {}, needs=IDS[number - 1 : number] if number else ())
    for number, name in enumerate(IDS)
)
FAILED = Verdict(math.nan, False, {}, status="no_verdict", reason="gone")


def graded(stage, violations=0, success=None):
    ok = {name: number < stage for number, name in enumerate(IDS)}
    success = stage == 4 and not violations if success is None else success
    return Verdict(0.5, success, ok, ("damage",) * violations, nodes=CHECKS)


def plays(stages, *, calls=None, reference=("x",) * 3, end="terminated", **kwargs):
    """What each turn is paid, at scale 1; a stage may be a verdict."""

    def look(name):
        if reference is None or name != "reference":
            raise AttributeError(name)
        return lambda: [{"tool": tool, "args": {}} for tool in reference]

    verdicts = [one if isinstance(one, Verdict) else graded(one) for one in stages]
    settings = {"unit": "turns", "ref": None, "base": None} | kwargs
    channel = Performance("s", scale=1.0, **settings)
    channel.hear(None, "task", {"calls": []}, look)
    channel.begin(verdicts[0])
    paid = []
    for t in range(1, len(verdicts)):
        made = [{}] * (calls[t - 1] if calls else 1)
        channel.hear("go", "reply", {"calls": made}, look)
        ended = end if t == len(verdicts) - 1 else "no"
        paid.append(channel.step(verdicts[t - 1], verdicts[t], ended))
    return paid


@given(
    stages=st.lists(st.integers(0, 4), min_size=2, max_size=9),
    end=st.sampled_from(["terminated", "truncated"]),
)
def test_paid_once_at_the_end(stages, end):
    """A failure for where it ended, a success for its turns: 1 at 4 of them, 0.5 at 8."""
    paid = plays(stages, end=end)
    assert paid[:-1] == [0.0] * (len(paid) - 1)
    turns, last = len(paid), stages[-1]
    want = 0.5 + 0.5 * max(0.0, min(1.0, (8 - turns) / 4)) if last == 4 else 0.5 * last / 4
    assert paid[-1] == pytest.approx(want)
    assert (paid[-1] >= 0.5) == (last == 4)


def test_every_episode_begins_anew():
    channel = Performance("s", scale=1.0, unit="turns", ref=1.0, base=3.0)
    for _ in range(2):
        channel.hear(None, "task", {}, lambda name: lambda: [])
        channel.begin(graded(0))
        for ended, want in (("no", 0.0), ("terminated", 0.75)):
            channel.hear("go", "reply", {}, None)
            assert channel.step(graded(0), graded(4), ended) == want


@given(one=st.integers(1, 12), two=st.integers(1, 12), stage=st.integers(0, 3))
def test_success_outranks_failure_and_speed_pays(one, two, stage):
    fast, slow = sorted((one, two))
    quick, late = (plays([0] * n + [4])[-1] for n in (fast, slow))
    assert 1.0 >= quick >= late >= 0.5 > plays([0] * fast + [stage])[-1]
    assert plays([0] * fast + [stage])[-1] <= plays([0] * slow + [stage + 1])[-1]


@pytest.mark.parametrize(
    ("kwargs", "want"),
    [
        ({}, 0.5 + 0.5 * 5 / 6),  # 7 to the reference of 3 calls and handing in: 8 - 3 over 4, cut
        ({"ref": 1.0, "base": 7.0}, 0.5 + 0.5 * 4 / 6),
        ({"ref": 2.0}, 0.5 + 0.5 * 1 / 2),
        ({"ref": 3.0, "base": 3.0}, 0.5),
        ({"reference": None}, 0.5),
        ({"reference": ("submit",)}, 0.5),
        ({"reference": ("x", "submit")}, 0.5 + 0.5 * 1 / 2),
        ({"unit": "calls", "calls": [2, 2, 2]}, 0.5 + 0.5 * 2 / 4),
        ({"unit": "calls", "calls": [9, 0, 0]}, 0.5),
    ],
)
def test_costs(kwargs, want):
    """Three turns to success."""
    want = 1.0 if not kwargs else want
    assert plays([0, 1, 2, 4], **kwargs)[-1] == pytest.approx(want)


def test_damage_no_checks_and_no_verdict():
    assert plays([0, graded(4, violations=1)])[-1] == 0.5 * penalty(1)
    assert plays([Verdict(0.0, False, {})] * 2)[-1] == 0.0
    assert plays([Verdict(0.0, False, {}), Verdict(1.0, True, {})])[-1] == 1.0
    assert plays([0, 2, FAILED])[-1] == 0.25  # where it was last seen; never a success
    assert plays([0, 4, FAILED])[-1] == 0.5


def test_another_one_can_take_over():
    """In mid-episode, from plain data."""
    old, new = (Performance("s", scale=1.0, unit="turns", ref=None, base=None) for _ in range(2))
    old.hear(None, "task", {}, lambda name: lambda: [{"tool": "x", "args": {}}])
    old.begin(graded(0))
    old.hear("go", "reply", {}, None)
    old.step(graded(0), graded(1), "no")
    new.load_state_dict(json.loads(json.dumps(old.state_dict())))
    for one in (old, new):
        for _ in range(2):
            one.hear("go", "reply", {}, None)
        assert one.step(graded(1), graded(4), "terminated") == 0.75
        assert one.step(graded(4), FAILED, "terminated") == 0.5


def test_in_an_environment_of_headway():
    env = build(gym.make("headway/Apps-v0"), "staged(c=0.4)", gamma=0.9)
    env.reset(seed=3)
    solution = env.unwrapped.solution()
    paid = []
    for number, action in enumerate(solution):
        if number == 2:
            env = headway.fork(env)
            env.set_state(json.loads(json.dumps(env.get_state())))
        _, _, _, _, info = env.step(action)
        paid.append(info["headway"]["channels"]["staged"])
    assert paid == [0.0] * (len(solution) - 1) + [0.4]
    assert info["headway"]["phi"]["stages"] == 1.0
    assert env.layer.bound(0.9) == (0.0, 0.4, 0.0, 0.4)
    env.reset(seed=3)
    *_, info = env.step(headway.CUT)
    assert info["headway"]["channels"]["staged"] == 0.0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"c": 1.0}, "c must be"),
        ({"unit": "turn"}, "did you mean 'turns'"),
        ({"ref": -1.0}, "ref must be"),
        ({"base": math.inf}, "base must be"),
    ],
)
def test_arguments(Script, kwargs, message):
    with pytest.raises(ValueError, match=message):
        StagedReward(Script(), **kwargs)


def test_all_arguments_are_rebuilt(script_id):
    kwargs = {"c": 0.25, "unit": "calls", "ref": 2.0, "base": 9.0, "name": "x"}
    env = StagedReward(gym.make(script_id), **kwargs)
    assert env.spec.additional_wrappers[-1].kwargs == kwargs
    layer = gym.make(env.spec).layer
    assert (layer.scale, layer.unit, layer.ref, layer.base) == (0.25, "calls", 2.0, 9.0)
    assert not layer.keeps_optimum(0.9)
