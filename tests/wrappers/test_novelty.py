"""First times pay, again does not, and what was met is known in the next episode."""

from __future__ import annotations

import json
import math
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.verifiers import Verdict
from headway.wrappers import KEYS, DedupReward, NoveltyReward, ProgressReward
from headway.wrappers import novelty as module

WORDS = st.lists(st.sampled_from(["go", "stop", "look"]), min_size=9, max_size=9)


def channel(turns, name):
    return [record["channels"][name] for *_, record in turns[1:]]


@given(data=st.data(), words=WORDS, key=st.sampled_from(sorted(KEYS)))
def test_gains_pass_the_first_time_and_losses_always(Script, play, scripts, data, words, key):
    script = data.draw(scripts())
    env = DedupReward(ProgressReward(Script(**script), gamma=0.9), key=key)
    for _ in range(2):
        turns = play(env, words)
        raw = [r["channels_raw"]["progress"] for *_, r in turns[1:]]
        marks = {"anchor": script["places"], "observation": range(10)}.get(key, ["reset", *words])
        assert channel(turns, "progress") == [
            0.0 if amount > 0.0 and marks[t + 1] in marks[: t + 1] else amount
            for t, amount in enumerate(raw)
        ]


def test_the_same_call_written_otherwise_is_the_same():
    """Whatever came of it; but not with another argument, or twice in a turn."""

    def key(*calls):
        made = [{"tool": tool, "args": args, "error": error} for tool, args, error in calls]
        return KEYS["calls"]("text", "", {"calls": made}, None)

    one = key(("send", {"to": "a", "text": "b"}, False))
    assert one == key(("send", {"text": "b", "to": "a"}, True))
    others = [
        key(("send", {"to": "a", "text": "c"}, False)),
        key(("call", {"to": "a", "text": "b"}, False)),
        key(*[("send", {"to": "a", "text": "b"}, False)] * 2),
        key(),
    ]
    assert len({one, *others}) == 5


def test_texts_of_things():
    """Long arrays, which print alike, and lone halves of characters are told apart."""
    long = np.zeros(5000)
    other = long.copy()
    other[2500] = 1.0
    things = [long, other, long.astype(int), long.reshape(50, 100), "a", "b", "\ud800", 1, None]
    assert len({module.digest(thing) for thing in things}) == len(things)
    assert module.digest(long) == module.digest(long.copy())


def test_what_came_up_goes_with_the_state(Script):
    env, fresh = (
        DedupReward(ProgressReward(Script([0.0, 0.5, 1.0]), gamma=1.0), key="action")
        for _ in range(2)
    )
    env.reset(), fresh.reset()
    assert env.step("go")[1] == 0.25
    headway.set_state(fresh, json.loads(json.dumps(headway.get_state(env))))
    assert fresh.step("go")[1] == env.step("go")[1] == 0.0


def length(action, observation, info, look):
    """A key of one's own, found as ``"module:function"``; None makes nothing the same."""
    return None if action in (None, "other") else len(action)


def test_a_key_of_ones_own(Script, play, monkeypatch):
    mine = types.ModuleType("my_keys")
    mine.length, mine.number = length, 3
    monkeypatch.setitem(sys.modules, "my_keys", mine)
    env = ProgressReward(Script([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), gamma=1.0)
    env = DedupReward(env, key="my_keys:length")
    paid = channel(play(env, ["go", "no", "word", "other", "other"]), "progress")
    assert paid == pytest.approx([0.1, 0.0, 0.1, 0.1, 0.1])
    for key in ("my_keys:lenght", "my_keys:number", "no_such_module:f"):
        with pytest.raises(ValueError, match=f"key must name something .*, got '{key}'"):
            DedupReward(Script(), key=key)


class Silent(gym.Env):
    """Tells nothing about its turns but the verdict."""

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def grade(self):
        return Verdict(0.0, False, {})


def test_what_does_not_tell_is_refused_at_reset():
    with pytest.raises(TypeError, match=r"env must tell info\['calls'\] .* use key='action'"):
        DedupReward(Silent(), key="calls").reset()
    for env in (DedupReward(Silent(), key="anchor"), NoveltyReward(Silent())):
        with pytest.raises(TypeError, match=r"env must offer anchor\(\) -> str, equal in equal"):
            env.reset()
    DedupReward(Silent(), key="action").reset()


@given(episodes=st.lists(st.lists(st.sampled_from("abcd"), min_size=2, max_size=8), max_size=6))
def test_novelty_is_global_times_episodic(Script, play, episodes):
    """``b / sqrt(N)`` for the N-th episode that meets a state, once in each."""
    env = NoveltyReward(Script(), b=0.1, cap=0.9)
    met = {}
    for places in episodes:
        env.unwrapped.__init__([0.0] * len(places), places=places)
        paid = channel(play(env), "novelty")
        for place in set(places):
            met[place] = met.get(place, 0) + 1
        for t, amount in enumerate(paid):
            again = places[t + 1] in places[: t + 1]
            assert amount == pytest.approx(0.0 if again else 0.1 / math.sqrt(met[places[t + 1]]))


def test_pay_of_a_place_falls_like_a_root(Script, play):
    env = NoveltyReward(Script([0.0, 0.0], places="ab"), b=1.0, cap=0.9)
    paid = [channel(play(env), "novelty")[0] for _ in range(100)]
    assert paid[0] == 0.9
    assert paid[1:] == pytest.approx([n**-0.5 for n in range(2, 101)])


def test_counts_go_with_the_state(Script, play):
    env, fresh = (NoveltyReward(Script([0.0, 0.0], places="ab"), b=0.1) for _ in range(2))
    play(env)
    fresh.reset()
    headway.set_state(fresh, json.loads(json.dumps(headway.get_state(env))))
    assert channel(play(fresh), "novelty") == [pytest.approx(0.1 / math.sqrt(2))]


def test_what_was_paid_goes_with_the_state(Script):
    env, fresh = (NoveltyReward(Script([0.0] * 5), b=0.05, cap=0.12) for _ in range(2))
    env.reset(), fresh.reset()
    env.step("go"), env.step("go")
    headway.set_state(fresh, json.loads(json.dumps(headway.get_state(env))))
    assert fresh.step("go")[1] == env.step("go")[1] == pytest.approx(0.02)


def test_no_end_of_new_states_is_paid_no_more_than_the_cap(Script, play):
    paid = channel(play(NoveltyReward(Script([0.0] * 101), b=0.05, cap=0.12)), "novelty")
    assert paid == pytest.approx([0.05, 0.05, 0.02, *[0.0] * 97])


def test_the_state_met_longest_ago_is_forgotten(Script, play, monkeypatch):
    monkeypatch.setattr(module, "ROOM", 3)
    env = NoveltyReward(Script(), b=0.1)
    for places in (["s", "a"], ["s", "b"], ["s", "c"]):
        env.unwrapped.__init__([0.0, 0.0], places=places)
        play(env)
    assert sorted(env.layer.counts.values()) == [1, 1, 3]
    env.unwrapped.__init__([0.0, 0.0, 0.0], places=["s", "b", "a"])
    assert channel(play(env), "novelty") == pytest.approx([0.1 / math.sqrt(2), 0.1])


@pytest.mark.parametrize(
    ("wrapper", "kwargs", "message"),
    [
        (DedupReward, {"key": "call"}, "key must be one of .* did you mean 'calls'"),
        (NoveltyReward, {"b": 0}, r"b must be a number in \(0, inf\), got 0"),
        (NoveltyReward, {"cap": 1}, r"cap must be a number in \(0, 1\), got 1"),
        (NoveltyReward, {"name": ""}, "name must be a text"),
    ],
)
def test_bad_arguments(Script, wrapper, kwargs, message):
    with pytest.raises(ValueError, match=message):
        wrapper(Script(), **kwargs)
