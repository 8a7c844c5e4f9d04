"""Credit for the calls of a reference: in full once, and for nothing else."""

from __future__ import annotations

import copy
import json
import math

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.verifiers import Verdict
from headway.verifiers.reference import matched, similarities
from headway.wrappers import MatchReward
from headway.wrappers.match import Matching
from headway.wrappers.stack import build

OK = Verdict(0.5, False, {})
FAILED = Verdict(math.nan, False, {}, status="no_verdict", reason="gone")
CALL = st.builds(
    lambda tool, args: {"tool": tool, "args": args, "error": False},
    st.sampled_from(["send", "read"]),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2),
)
CALLS = st.lists(CALL, max_size=4)


def call(tool, error=False, **args):
    return {"tool": tool, "args": args, "error": error}


def plays(reference, turns, gold=(), end="terminated", verdicts=None):
    """What each turn is paid, at scale 1."""
    told = {"reference": reference, "gold": gold}

    def look(name):
        if told.get(name) is None:
            raise AttributeError(name)
        return lambda: told[name]

    channel = Matching("m", scale=1.0)
    channel.hear(None, "task", {"calls": []}, look)
    verdicts = verdicts or [OK] * (len(turns) + 1)
    channel.begin(verdicts[0])
    paid = []
    for t, calls in enumerate(turns, 1):
        channel.hear("go", "reply", {"calls": calls}, look)
        ended = end if t == len(turns) else "no"
        paid.append(channel.step(verdicts[t - 1], verdicts[t], ended))
    return paid


@given(
    reference=st.lists(CALL, min_size=1, max_size=4), turns=st.lists(CALLS, min_size=1, max_size=4)
)
def test_a_turn_pays_what_the_optimum_rises_by(reference, turns):
    """So amounts are never negative, and sum to the optimum of the whole episode."""
    paid = plays(reference, turns)
    assert all(x >= 0.0 for x in paid)
    calls = [one for turn in turns for one in turn]
    want = sum(matched(similarities(calls, reference))) / len(reference)
    assert sum(paid) == pytest.approx(want, abs=1e-8)
    bound = Matching("m", scale=1.0).bound(0.9)
    assert bound.low <= sum(0.9**t * x for t, x in enumerate(paid)) <= bound.high + 1e-9
    assert all(bound.least <= x <= bound.most + 1e-9 for x in paid)


@given(
    reference=st.lists(CALL, min_size=1, max_size=4),
    extra=CALLS,
    data=st.data(),
)
def test_an_exact_copy_in_any_order_is_all_there_is(reference, extra, data):
    order = data.draw(st.permutations(reference))
    paid = plays(reference, [[one] for one in order] + [extra, order])
    assert sum(paid[: len(order)]) == pytest.approx(1.0)
    assert paid[len(order) :] == pytest.approx([0.0, 0.0], abs=1e-9)
    shuffled = data.draw(st.permutations(reference))
    again = plays(shuffled, [extra, order])
    assert sum(again) == pytest.approx(1.0)
    first = plays(reference, [extra])
    assert again[0] == pytest.approx(first[0], abs=1e-8)


def test_the_answer_is_one_part_more():
    reference = [call("read", a=1), call("submit", answer="Ada Miller")]
    handed_in = call("submit", answer="the miller Ada")
    turns = [[call("read", a=1)], [handed_in]]
    assert plays(reference, turns, gold=("ada miller",)) == pytest.approx([0.5, 0.4])
    assert plays(reference, turns, gold=()) == [1.0, 0.0]
    assert plays(reference, [*turns, []], gold=("ada",))[1:] == pytest.approx([0.0, 0.25])
    wrong = [[], [call("submit", answer=7)]]
    assert plays(reference, wrong, gold=("7",)) == [0.0, 0.0]
    refused = [[], [call("submit", error=True, answer="ada")]]
    assert plays(reference, refused, gold=("ada",)) == [0.0, 0.0]


def test_without_a_verdict():
    """Calls are heard all the same, and paid when there is a measurement again."""
    reference, turns = [call("read")], [[call("read")], []]
    assert plays(reference, turns, verdicts=[OK, FAILED, OK]) == [0.0, 1.0]
    assert plays(reference, turns, verdicts=[FAILED, OK, OK]) == [0.0, 0.0]
    answered = [[call("read")], [call("submit", answer="ada")]]
    paid = plays(reference, answered, gold=("ada",), verdicts=[OK, OK, FAILED])
    assert paid == [0.5, 0.0]


def test_another_one_can_take_over():
    """In mid-episode, from plain data; siblings share nothing that changes."""
    reference = [call("read", a=1), call("send")]
    told = {"reference": reference, "gold": ["ada"]}
    old, new = Matching("m", scale=1.0), Matching("m", scale=1.0)
    old.hear(None, "task", {"calls": []}, lambda name: lambda: told[name])
    old.begin(OK)
    submitted = [call("read", a=1), call("submit", answer="ada")]
    old.hear("go", "reply", {"calls": submitted}, None)
    assert old.step(OK, OK, "no") == pytest.approx(1 / 3)
    new.load_state_dict(json.loads(json.dumps(old.state_dict())))
    twin = copy.deepcopy(old)
    for one in (old, new):
        one.hear("go", "reply", {"calls": [call("send")]}, None)
        assert one.step(OK, OK, "terminated") == pytest.approx(2 / 3)
    twin.hear("go", "reply", {"calls": []}, None)
    assert twin.step(OK, OK, "terminated") == pytest.approx(1 / 3)


def test_every_episode_begins_anew():
    told = {"reference": [call("read")], "gold": ["ada"]}
    channel = Matching("m", scale=1.0)
    for _ in range(2):
        channel.hear(None, "task", {"calls": []}, lambda name: lambda: told[name])
        channel.begin(OK)
        assert channel.step(OK, OK, "terminated") == 0.0
        done = [call("read"), call("submit", answer="ada")]
        channel.hear("go", "reply", {"calls": done}, None)
        assert channel.step(OK, OK, "terminated") == 1.0


def test_without_a_reference():
    answered = [[call("read")], [call("submit", answer="ada")]]
    for reference in (None, [], [call("submit", answer="ada")]):
        assert plays(reference, answered, gold=("ada",)) == [0.0, 0.0]


def test_in_an_environment_of_headway():
    """The oracle earns all of it; a fork and a restored state go on alike."""
    env = build(gym.make("headway/Apps-v0"), "match(c=0.5)", gamma=0.9)
    env.reset(seed=3)
    total, solution = 0.0, env.unwrapped.solution()
    for number, action in enumerate(solution):
        if number == 2:
            twin = headway.fork(env)
            twin.step(action)
            state = json.loads(json.dumps(env.get_state()))
            env.set_state(state)
        _, _, _, _, info = env.step(action)
        total += info["headway"]["channels"]["match"]
    assert total == pytest.approx(0.5)
    assert info["headway"]["phi"]["match"] == 1.0
    assert not env.layer.keeps_optimum(0.9)
    other = copy.deepcopy(twin)
    assert other.step(solution[0])[1] == twin.step(solution[0])[1] == 0.0


class Plain(gym.Env):
    """Knows nothing of headway but ``grade()``."""

    observation_space = action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1.0, True, False, {}

    def grade(self):
        return OK


def test_foreign_environments(play):
    """Nothing is known of calls: nothing is paid, and no potential shown."""
    turns = play(MatchReward(Plain()), [1])
    assert [record["channels"] for *_, record in turns] == [{"match": 0.0}] * 2
    assert all("match" not in record["phi"] for *_, record in turns)


def test_arguments(Script, script_id):
    for c in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"c must be a number in \(0, 1\)"):
            MatchReward(Script(), c=c)
    env = MatchReward(gym.make(script_id), c=0.25, name="x")
    rebuilt = gym.make(env.spec)
    assert (rebuilt.layer.scale, rebuilt.layer.name) == (0.25, "x")
