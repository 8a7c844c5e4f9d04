"""Episodes kept token by token: what was sampled is what is learnt from, whoever played beside."""

from __future__ import annotations

import math
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headway
from headway.agents import rollout as module
from headway.agents.engine import Engine, Stream
from headway.agents.rollout import collect
from headway.agents.tiny import bpe, tiny
from headway.bench.depot import WORDS, Depot
from headway.envs.box import SandboxDied
from headway.verifiers import Verdict, blank
from headway.wrappers.stack import build

GAMMA = 0.9


def opinionated(vocabulary, **shape):
    """An untrained policy that is not indifferent between tokens."""
    policy = tiny(vocabulary, seed=0, layers=1, width=32, ffn=32, **shape)
    stream = torch.Generator().manual_seed(2)
    for weight in policy.model.parameters():
        weight.data.normal_(0.0, 0.3, generator=stream)
    return policy


POLICY = opinionated(WORDS)
TEMPLATE = POLICY.template
ENGINE = Engine(POLICY, lanes=8)


def depot(horizon=4):
    return build(Depot(horizon), "progress", gamma=GAMMA, on_truncation="keep")


class Log:
    """What happened to all copies of an environment."""

    def __init__(self):
        self.actions, self.open, self.resets = [], 0, 0

    def __deepcopy__(self, memo):
        self.open += 1
        return self


class Talk(gym.Env):
    """Says the same every turn, and does what it is told to: ends, dies, fails to be graded."""

    action_space = observation_space = gym.spaces.Text(10)

    def __init__(self, log=None, *, turns=3, reply="ok", dies=(), graded=True, ends="truncated"):
        self.log = log or Log()
        self.log.open += 1
        self.turns, self.reply, self.dies = turns, reply, dies
        self.graded, self.ends = graded, ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.log.resets += 1
        self.turn, self.seed, self.asked = 0, seed, options
        if ("reset", seed) in self.dies:
            raise SandboxDied("no machine", by="infra")
        return "order cup", {"task_id": f"Talk/{seed}", "headway": blank(0.0)}

    def step(self, action):
        self.turn += 1
        self.log.actions.append(action)
        if (self.turn, self.seed) in self.dies:
            raise SandboxDied("no machine", by="infra")
        over = self.turn == self.turns or action is headway.CUT
        record = blank(0.25)
        if self.graded and over:
            record["verdict"] = self.grade()
            record["status"] = record["verdict"].status
        calls = [{"tool": "a", "args": {}, "error": False}] * 2 + [{"tool": None, "error": True}]
        info = {"task_id": f"Talk/{self.seed}", "headway": record, "calls": calls}
        return (
            *(self.reply, 0.25),
            *(over and self.ends == "terminated", over and self.ends == "truncated", info),
        )

    def grade(self):
        share = self.turn / self.turns
        return Verdict(share, share == 1.0, {"half": share >= 0.5, "whole": share == 1.0})

    def close(self):
        self.log.open -= 1


def relearnt(policy, one, temperature=1.0):
    """Log-probabilities of a trajectory's sampled tokens, as training computes them."""
    ids = torch.from_numpy(one.ids.astype(np.int64))[None]
    mask = torch.from_numpy(one.mask)[None]
    with torch.no_grad():
        return policy.logp(ids, mask[:, 1:], temperature=temperature)[0].numpy()


def test_books_against_a_script():
    """Ids, mask and turns are those of the script, to the token."""
    made = collect(
        ENGINE,
        [7, 8],
        lambda: depot(8),
        key=("script",),
        group=2,
        teacher=lambda env, obs, turn: env.get_wrapper_attr("solution")()[turn],
    )
    assert len(made.trajectories) == 4
    sampled = 0
    for place, one in enumerate(made.trajectories):
        env = depot(8)
        obs, info = env.reset(seed=7 + place // 2)
        assert (one.task_id, one.group, one.prompt) == (info["task_id"], place // 2, obs)
        ids, mask, turns = TEMPLATE.head(obs), [], []
        mask, turns = [False] * len(ids), [-1] * len(ids)
        for number, action in enumerate(env.get_wrapper_attr("solution")()):
            assert one.turns[number].start == env.get_wrapper_attr("anchor")()
            written = TEMPLATE.turn(action)
            sampled += len(written)
            obs, _, terminated, _, info = env.step(action)
            reply = [] if terminated else TEMPLATE.reply(obs, stopped=True)
            ids += written + reply
            mask += [True] * len(written) + [False] * len(reply)
            turns += [number] * len(written) + [-1] * len(reply)
            turn, record = one.turns[number], info["headway"]
            assert (turn.action, turn.observation, turn.cut) == (action, obs, False)
            assert turn.base == record["base"] and turn.channels == record["channels"]
            assert turn.progress == record["verdict"].progress
            assert turn.ok == {name for name, holds in record["verdict"].ok.items() if holds}
            assert (turn.calls, turn.refused, turn.status) == (1, 0, "ok")
        assert one.ids.tolist() == ids and one.mask.tolist() == mask
        assert one.turn.tolist() == turns
        assert (one.ended, one.success, one.progress) == ("terminated", True, 0.0)
        assert one.scored and one.curve[-1] == 1.0
        assert (one.logp[~one.mask] == 0.0).all() and (one.logp[one.mask] < 0.0).all()
        assert one.ids.dtype == one.turn.dtype == np.int32 and one.logp.dtype == np.float32
    assert made.tokens["policy"] == sampled == sum(t.mask.sum() for t in made.trajectories)
    assert made.tokens["scorer"] == made.tokens["continuations"] == 0


def test_the_same_numbers_as_training():
    """The largest gap of log-probabilities is below 1e-5, at any temperature."""
    for temperature in (1.0, 0.7):
        made = collect(ENGINE, range(4), depot, key=(1,), group=2, temperature=temperature)
        for one in made.trajectories:
            assert np.abs(relearnt(POLICY, one, temperature) - one.logp[1:]).max() < 1e-5


def alike(one, other, close=1e-6):
    """The same trajectory, up to rounding."""
    assert one.ids.tolist() == other.ids.tolist()
    assert np.abs(one.logp - other.logp).max() <= close
    assert one.turn.tolist() == other.turn.tolist() and one.mask.tolist() == other.mask.tolist()
    assert [(t.action, t.observation) for t in one.turns] == [
        (t.action, t.observation) for t in other.turns
    ]


ALONE = collect(Engine(POLICY, lanes=1, share=False), range(4), depot, key=("order",), group=3)


@settings(max_examples=12)
@given(
    lanes=st.integers(1, 12),
    share=st.booleans(),
    stride=st.integers(1, 4),
    worth=st.sampled_from([0.1, 1.0, 5.0, 100.0]),
)
def test_nothing_depends_on_lanes_or_order(lanes, share, stride, worth):
    """Padding, neighbours, refills and shared prompts move log-probabilities by 1e-6 at most."""
    engine = Engine(POLICY, lanes=lanes, share=share, stride=stride)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WORTH", worth)
        made = collect(engine, range(4), depot, key=("order",), group=3)
    for one, other in zip(made.trajectories, ALONE.trajectories, strict=True):
        alike(one, other)
    assert made.tokens == {**ALONE.tokens, "prefill": made.tokens["prefill"]}
    assert made.tokens["prefill"] + made.shared == ALONE.tokens["prefill"]


def test_keys_name_what_is_drawn():
    """Siblings differ, and so do updates; the same key gives the same."""
    one, again, other = (
        collect(ENGINE, [3, 3], depot, key=key, group=2).trajectories for key in [(1,), (1,), (2,)]
    )
    texts = [tuple(t.ids.tolist()) for t in (*one, *other)]
    assert len(set(texts)) == 8
    assert texts[:4] == [tuple(t.ids.tolist()) for t in again]
    greedy = collect(ENGINE, [3], depot, key=(1,), group=3, greedy=True).trajectories
    assert len({tuple(t.ids.tolist()) for t in greedy}) == 1
    assert collect(POLICY, [3, 3], depot, key=(1,), group=2).trajectories[0].ids.tolist() == list(
        texts[0]
    )


def test_five_hundred_altered_segmentations_survive():
    """Turns whose text would be cut into other tokens are kept as they were sampled."""
    policy = opinionated(bpe(["order the cup of the north"] * 9, vocabulary=290), context=200)
    log = Log()
    made = collect(policy, range(40), lambda: Talk(log, turns=4), key=(0,), group=4, turn_tokens=9)
    altered = 0
    for one in made.trajectories:
        assert np.abs(relearnt(policy, one) - one.logp[1:]).max() < 1e-5
        place = len(policy.template.head(one.prompt))
        for number, turn in enumerate(one.turns):
            ids = one.ids[one.turn == number].tolist()
            assert one.ids[place : place + len(ids)].tolist() == ids
            assert turn.action == policy.template.text(ids)
            stopped = ids[-1] in policy.template.stops
            altered += policy.template.encode(turn.action) != ids[: len(ids) - stopped]
            place += len(ids) + len(policy.template.reply("ok", stopped))
    assert altered >= 500


def test_turns_that_are_cut_by_their_limit():
    """They go to the environment as they are, flagged, and the template ends them."""
    log = Log()
    made = collect(ENGINE, [0], lambda: Talk(log), key=(0,), group=8, turn_tokens=2)
    cut = 0
    for one in made.trajectories:
        assert len(one.turns) == 3 and one.ended == "truncated"
        for number, turn in enumerate(one.turns):
            ids = one.ids[one.turn == number].tolist()
            assert turn.cut == (ids[-1] not in TEMPLATE.stops)
            assert turn.action in log.actions and turn.action == TEMPLATE.text(ids)
            if turn.cut and number < 2:
                cut += 1
                assert len(ids) == 2
                end = np.flatnonzero(one.turn == number)[-1] + 1
                reply = TEMPLATE.reply("ok", stopped=False)
                assert one.ids[end : end + len(reply)].tolist() == reply
                assert not one.mask[end : end + len(reply)].any()
    assert cut > 3
    assert headway.CUT not in log.actions


def test_no_more_is_drawn_than_fits(monkeypatch):
    """However long a turn may be, nothing is made for tokens that no context has room for."""
    asked = []
    real = Stream.draw

    def draw(stream, count):
        asked.append(count)
        return real(stream, count)

    monkeypatch.setattr(Stream, "draw", draw)
    engine = Engine(POLICY, lanes=2, context=32)
    made = collect(engine, [0], lambda: Talk(turns=2), key=(0,), group=2, turn_tokens=10**9)
    assert len(made.trajectories) == 2 and max(asked) <= 32


def test_a_full_context_ends_the_episode():
    """With CUT: for the turn that did not fit, or after a reply that left no room."""
    log, seen = Log(), Counter()
    engine = Engine(POLICY, lanes=4, context=16)
    made = collect(
        engine, [0], lambda: Talk(log, turns=99, reply="ok at s3"), key=(0,), group=30
    ).trajectories
    for one in made:
        last = one.turns[-1]
        assert last.cut and last.action == "" and one.ended == "truncated"
        assert not any(turn.cut for turn in one.turns[:-1])
        assert len(one.ids) <= 16
        sampled = int((one.turn == len(one.turns) - 1).sum())
        seen[sampled > 0] += 1
        if sampled:  # it filled the context to the last token
            assert len(one.ids) == 16 and one.ids[-1] not in TEMPLATE.stops
        else:
            assert len(one.ids) + len(TEMPLATE.reply("ok at s3", True)) >= 16
        assert np.abs(relearnt(POLICY, one) - one.logp[1:]).max() < 1e-5
    assert seen[True] and seen[False]
    assert log.actions.count(headway.CUT) == 30


@pytest.mark.parametrize(("most", "turns"), [(7, 2), (8, 3), (9, 3)])
def test_spent_tokens_end_the_episode(most, turns):
    """Within a turn that turn is cut; where they end with a turn, there is one without tokens."""
    log = Log()
    made = collect(
        ENGINE,
        [0],
        lambda: Talk(log, turns=99),
        key=(0,),
        group=3,
        episode_tokens=most,
        teacher=lambda env, obs, turn: "find cup yes",
    ).trajectories
    for one in made:
        assert one.sampled == most and one.ended == "truncated"
        assert [turn.cut for turn in one.turns] == [False] * (turns - 1) + [True]
        assert one.turns[-1].action == ""
        sizes = [int((one.turn == number).sum()) for number in range(turns)]
        assert sizes == [*[4] * (turns - 1), most - 4 * (turns - 1)]
    assert log.actions.count(headway.CUT) == 3


def test_what_died_is_apart_and_the_rest_goes_on():
    """At reset, in a step, in a copy; nothing is scored, nothing leaks."""
    log = Log()
    dies = {("reset", 1), (2, 2)}
    made = collect(ENGINE, [0, 1, 2, 3], lambda: Talk(log, dies=dies), key=(0,), group=3)
    assert [one.group for one in made.trajectories] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    for one in made.trajectories:
        assert (one.ended == "died") == (one.group in (1, 2))
        assert one.scored == (one.group in (0, 3))
        if one.group == 1:
            assert len(one.ids) == 0 and not one.turns and one.task_id == ""
        elif one.group == 2:
            assert len(one.turns) == 2 and one.turn.max() == 1 and not one.success
            assert one.turns[-1].status == "no_verdict"
            assert one.turns[-1].unmeasured == "died: no machine"
        else:
            assert len(one.turns) == 3 and one.success
    assert log.open == 0 and log.resets == 4


def test_a_copy_that_dies(monkeypatch):
    calls = []

    def fork(env):
        calls.append(env)
        if len(calls) == 2:
            raise SandboxDied("no machine", by="infra")
        return headway.fork(env)

    monkeypatch.setattr(module, "fork", fork)
    made = collect(ENGINE, [0], Talk, key=(0,), group=4).trajectories
    assert [one.ended for one in made] == ["truncated", "died", "truncated", "truncated"]
    assert made[1].task_id == "Talk/0" and len(made[1].ids) == 0


def test_environments_are_closed_whatever_happens(monkeypatch):
    log = Log()
    collect(ENGINE, range(3), lambda: Talk(log), key=(0,), group=3, continuations=1)
    assert log.open == 0 and log.resets == 3

    def fails(*args, **kwargs):
        raise RuntimeError("stopped")

    step, left = Engine.step, []

    def later(self, **given):
        return step(self, **given) if left and left.pop() else fails()

    monkeypatch.setattr(Engine, "step", later)
    for steps in (0, 5, 19):
        left[:] = [True] * steps
        with pytest.raises(RuntimeError, match="stopped"):
            collect(
                Engine(POLICY, lanes=2),
                range(2),
                lambda: Talk(log),
                key=(0,),
                group=2,
                turn_tokens=3,
                continuations=1,
            )
        assert log.open == 0


def test_what_a_bare_environment_tells():
    """It grades at its end only: progress is carried, states are told apart by their checks."""
    made = collect(ENGINE, [0], Talk, key=(0,), group=2)
    for one in made.trajectories:
        assert [turn.status for turn in one.turns] == ["ungraded", "ungraded", "ok"]
        assert one.curve.tolist() == [0.0, 0.0, 0.0, 1.0]
        assert one.turns[-1].ok == {"half", "whole"}
        assert [turn.start for turn in one.turns] == [frozenset()] * 3
        assert [(turn.calls, turn.refused) for turn in one.turns] == [(3, 1)] * 3
        assert one.success and one.scored
    made = collect(ENGINE, [0], lambda: Talk(graded=False, ends="terminated"), key=(0,))
    assert made.trajectories[0].success and made.trajectories[0].turns[-1].status == "ok"
    made = collect(
        ENGINE, [0], lambda: gym.wrappers.TimeLimit(Talk(turns=4), 2), key=(0,)
    ).trajectories
    assert made[0].curve.tolist() == [0.0, 0.0, 0.5] and not made[0].success


def test_an_ungraded_turn_keeps_progress():
    class Once(Talk):
        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            if self.turn == 1:
                info["headway"]["verdict"], info["headway"]["status"] = self.grade(), "ok"
            return obs, reward, terminated, truncated, info

    one = collect(ENGINE, [0], Once, key=(0,)).trajectories[0]
    assert one.curve.tolist() == [0.0, 1 / 3, 1 / 3, 1.0]
    assert [turn.status for turn in one.turns] == ["ok", "ungraded", "ok"]


def test_tasks_by_seed_or_by_name():
    seen = []

    class Seeing(Talk):
        def reset(self, *, seed=None, options=None):
            seen.append((seed, options))
            return super().reset(seed=seed, options=options)

    collect(ENGINE, [5, {"seed": 6, "options": {"a": 1}}, {}], Seeing, key=(0,))
    assert seen == [(5, None), (6, {"a": 1}), (None, None)]


def test_progress_is_told():
    heard = []
    collect(ENGINE, [0, 1], Talk, key=(0,), group=2, observe=lambda *told: heard.append(told))
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_time_is_split_by_what_it_was_spent_on():
    ticks = iter(range(10**6))
    made = collect(
        ENGINE, [0], Talk, key=(0,), group=2, continuations=1, clock=lambda: float(next(ticks))
    )
    assert set(made.seconds) == {"policy", "scorer", "continuations", "checks"}
    assert (
        made.seconds["scorer"]
        == 0
        < min(made.seconds[kind] for kind in ("policy", "continuations", "checks"))
    )
    assert sum(made.seconds.values()) == next(ticks) - 2


def test_continuations_say_what_states_are_worth():
    """Played by an expert every state of the depot is worth 1; by a policy, what it makes of it."""

    def expert(env, obs, turn):
        return env.get_wrapper_attr("expert")()

    made = collect(
        ENGINE, [0, 1], lambda: depot(8), key=(0,), group=2, continuations=2, teacher=expert
    )
    assert [value.tolist() for value in made.values] == [[1.0] * 7] * 4
    rest = sum(
        sum(len(TEMPLATE.turn(turn.action)) for turn in one.turns[place:])
        for one in made.trajectories
        for place in range(1, 6)
    )
    assert made.tokens["continuations"] == 2 * rest

    def half(env, obs, turn):  # gives up in one of two, on the third turn
        place = (0 if "cup" in obs or turn != 2 else 1) + half.calls
        half.calls = half.calls + (turn == 2)
        return "quit north yes" if turn == 2 and place % 2 else expert(env, obs, turn)

    half.calls = 0
    made = collect(ENGINE, [0], lambda: depot(8), key=(0,), group=2, continuations=4, teacher=half)
    ended = sorted(len(one.turns) for one in made.trajectories)
    assert ended == [3, 6]
    for one, value in zip(made.trajectories, made.values, strict=True):
        assert len(value) == len(one.turns) + 1
        assert value[0] == 1.0 - one.success and value[-1] == one.success
        assert value[1] == value[2] == 0.5
        assert (value[3:] == one.success).all()


def test_continuations_change_nothing_and_die_alone():
    plain = collect(ENGINE, [0, 1], depot, key=(0,), group=2)
    more = collect(ENGINE, [0, 1], depot, key=(0,), group=2, continuations=3)
    for one, other in zip(plain.trajectories, more.trajectories, strict=True):
        alike(one, other, close=0.0)
    assert plain.values == [] and plain.tokens["policy"] == more.tokens["policy"]
    for one, value in zip(more.trajectories, more.values, strict=True):
        assert value.shape == (len(one.turns) + 1,)
        assert ((value >= 0.0) & (value <= 1.0)).all()
    died = collect(ENGINE, [0, 2], lambda: Talk(dies={(3, 2)}), key=(0,), group=2, continuations=1)
    for one, value in zip(died.trajectories, died.values, strict=True):
        assert np.isnan(value).all() if one.group else (value == 1.0).all()
        assert len(value) == 4


def test_what_no_grader_saw_has_no_value():
    """A grader that fails at the end makes a value that is not known, and no failure."""

    class Ungraded(Talk):
        def grade(self):
            return Verdict(math.nan, False, {}, status="no_verdict", reason="it crashed")

    made = collect(ENGINE, [0], lambda: Ungraded(), key=(0,), group=2, continuations=1)
    assert not any(one.scored for one in made.trajectories)
    assert all(np.isnan(value).all() for value in made.values)


def test_continuations_of_what_is_cut():
    """Where there is no room for another turn, the state is worth what the cut made of it."""
    engine = Engine(POLICY, lanes=4, context=16)
    made = collect(
        engine, [0], lambda: Talk(turns=99, reply="ok at s3"), key=(0,), group=20, continuations=2
    )
    ends = set()
    for one, value in zip(made.trajectories, made.values, strict=True):
        ends.add(bool((one.turn == len(one.turns) - 1).any()))
        assert len(value) == len(one.turns) + 1 and not value.any()
    assert ends == {True, False}


class Foreign(gym.Env):
    action_space = observation_space = gym.spaces.Text(10)

    def reset(self, *, seed=None, options=None):
        return "order", {}


class Ungraded(Foreign):
    def reset(self, *, seed=None, options=None):
        return "order", {"headway": blank(0.0)}


@pytest.mark.parametrize(
    ("make", "given", "error", "message"),
    [
        (Foreign, {}, TypeError, r"must report info\['headway'\], got \[\]"),
        (Ungraded, {}, TypeError, "must offer grade"),
        (Talk, {"group": 0}, ValueError, "group must be an int of at least 1, got 0"),
        (Talk, {"turn_tokens": 0}, ValueError, "turn_tokens must be an int of at least 1"),
        (Talk, {"episode_tokens": 0}, ValueError, "episode_tokens must be an int of at least 1"),
        (Talk, {"temperature": 1e-300}, ValueError, r"temperature must be a number in \[0.001"),
        (Talk, {"continuations": -1}, ValueError, "continuations must be an int of at least 0"),
    ],
)
def test_what_cannot_be_played(make, given, error, message):
    with pytest.raises(error, match=message):
        collect(ENGINE, [0], make, key=(0,), **given)


def test_a_first_observation_that_fills_the_context():
    log = Log()
    engine = Engine(POLICY, lanes=1, context=3)
    with pytest.raises(ValueError, match=r"more than the 3 tokens of the first .* 'Talk/0', got 3"):
        collect(engine, [0], lambda: Talk(log), key=(0,))
    assert log.open == 0
