"""Credit for finding out: what telescopes, what is paid when, and the control."""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import types

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.envs.spaces import TextSpace
from headway.verifiers import Information, Verdict, blank
from headway.wrappers import Diff, InfoGain, ProgressReward
from headway.wrappers.information import Gain
from headway.wrappers.stack import LAYERS, build, dense

GAMMA = st.sampled_from([0.5, 0.9, 1.0])
PHI = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0))


def told(known):
    """A verdict that says how much is known of the answer."""
    return Verdict(0.25, False, {}, information=known)


FAILED = Verdict(math.nan, False, {}, status="no_verdict", reason="gone")


class Talk(gym.Env):
    """Replies in the order of a script, and ends as the last of them says.

    Args:
        replies: The task and what each turn replies.
        gold: Right answers; None for an environment that cannot tell.
        end: How the last turn ends the episode.
        known: Share of the answer that is known in each state; None for tasks without candidates.
    """

    action_space = observation_space = TextSpace()

    def __init__(self, replies, gold=("ada",), end="terminated", known=None):
        self.replies, self.end = list(replies), end
        self.known = known or [None] * len(self.replies)
        if gold is not None:
            self.gold = lambda: tuple(gold)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.replies[0], {"headway": blank(0.0), "calls": []}

    def step(self, action):
        self.turn += 1
        over = self.turn == len(self.replies) - 1
        ends = {name: over and self.end == name for name in ("terminated", "truncated")}
        info = {"headway": blank(0.0), "calls": []}
        return self.replies[self.turn], 0.0, ends["terminated"], ends["truncated"], info

    def grade(self):
        return told(self.known[self.turn])

    def get_state(self):
        return {"turn": self.turn}

    def set_state(self, state):
        self.turn = state["turn"]


@pytest.fixture(scope="module", autouse=True)
def scorers():
    """Functions of one's own, under ``"my_scorers:..."``."""
    module = types.ModuleType("my_scorers")
    module.finds = lambda context, answers: [-0.1 if "the key is ada" in context else -5.0]

    def breaks(context, answers):
        if "poison" in context:
            raise OSError("busy")
        return [-1.0 / len(context.split())]

    module.breaks = breaks
    sys.modules["my_scorers"] = module
    yield
    del sys.modules["my_scorers"]


def amounts(turns, name="information"):
    return [record["channels"][name] for *_, record in turns][1:]


def discounted(values, gamma):
    return sum(gamma**t * x for t, x in enumerate(values))


@given(
    known=st.lists(PHI.filter(lambda x: x is not None), min_size=2, max_size=7),
    end=st.sampled_from(["terminated", "truncated"]),
    gamma=GAMMA,
    c=st.floats(0.01, 0.99),
)
def test_exact_gain_telescopes(play, known, end, gamma, c):
    """To what was known when the answer was given; the answer itself is paid nothing."""
    env = InfoGain(Talk([""] * len(known), end=end, known=known), gamma=gamma, c=c)
    turns = play(env)
    paid = amounts(turns)
    last = len(known) - 1 - (end == "terminated")
    if end == "terminated":
        assert paid[-1] == 0.0
        assert turns[-1][3]["phi"]["information"] == known[-2]
    total = discounted(paid, gamma)
    assert total == pytest.approx(c * (gamma**last * known[last] - known[0]), abs=1e-9)
    bound = env.layer.bound(gamma)
    assert bound.low - 1e-9 <= total <= bound.high + 1e-9 <= c + 1e-9
    assert all(bound.least - 1e-9 <= x <= bound.most + 1e-9 for x in paid)
    if known == sorted(known) and gamma == 1.0:
        assert all(x >= 0.0 for x in paid)


@given(
    replies=st.lists(
        st.sampled_from(["", "ada", "ada is there", "nobody"]), min_size=2, max_size=6
    ),
    mode=st.sampled_from(["prob", "logp"]),
    gamma=GAMMA,
)
def test_likelihood_gain_telescopes(play, replies, mode, gamma):
    """And stays below 1 in sum, whatever the scale of the scorer."""
    env = InfoGain(Talk(replies), gamma=gamma, c=0.5, source="likelihood", mode=mode)
    turns = play(env)
    phi = [record["phi"]["likelihood"] for *_, record in turns]
    paid = amounts(turns)
    assert paid[-1] == 0.0
    last = len(replies) - 2
    total = discounted(paid, gamma)
    assert total == pytest.approx(0.5 * (gamma**last * phi[last] - phi[0]), abs=1e-9)
    assert abs(total) < 0.5
    assert all(0.0 <= p <= 1.0 for p in phi)
    assert phi[-1] == phi[-2]  # the answer is not measured


def test_a_turn_that_changes_nothing_pays_nothing(play):
    env = InfoGain(Talk(["Find it.", "ada", "", "", "x"]), gamma=1.0, source="likelihood")
    paid = amounts(play(env, ["look", "", "", "submit"]))
    assert paid[0] > 0.0
    assert paid[1:] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_turn_that_finds_it_is_paid_and_no_other(play, k):
    """By a scorer that knows the answer only once it was shown."""
    replies = ["Find the key."] + ["nothing"] * 5
    replies[k] = "the key is ada"
    env = InfoGain(Talk(replies), gamma=1.0, c=0.5, source="likelihood", scorer="my_scorers:finds")
    paid = amounts(play(env))
    assert [x > 0.0 for x in paid] == [t == k - 1 for t in range(5)]
    assert paid[k - 1] == pytest.approx(0.5 * (math.exp(-0.1) - math.exp(-5.0)))
    assert sum(map(bool, paid)) == 1


def test_the_control_pays_for_the_agents_words_only(play):
    """What it still pays is no gain from looking."""
    replies = ["Find it.", "ada lives here", "ada", "done"]
    looked = ["look", "look", "submit"]
    plain, control = (
        InfoGain(Talk(replies), gamma=1.0, source="likelihood", control=c) for c in (None, "blank")
    )
    assert sum(amounts(play(plain, looked))) > 0.01
    assert sum(amounts(play(control, looked))) <= 0.0
    aloud = ["is it ada?", "ada?", "submit"]
    assert sum(amounts(play(control, aloud))) > 0.01
    both = play(InfoGain(plain, gamma=1.0, source="likelihood", control="blank", name="control"))
    assert set(both[-1][3]["phi"]) == {"likelihood", "likelihood:blank"}


@pytest.mark.parametrize(
    ("kwargs", "env"),
    [
        ({}, Talk(["a", "b", "c"])),
        ({"source": "likelihood"}, Talk(["a", "b", "c"], gold=())),
        ({"source": "likelihood"}, Talk(["a", "b", "c"], gold=None)),
    ],
)
def test_tasks_without_an_answer(play, kwargs, env):
    """Nothing is paid and no potential is shown."""
    turns = play(InfoGain(env, gamma=1.0, **kwargs))
    assert amounts(turns) == [0.0, 0.0]
    assert all(record["phi"] == {} for *_, record in turns)


def test_a_scorer_that_fails_is_no_measurement(play):
    """The last value stands, which telescopes all the same; the record says so."""
    replies = ["Find it now.", "some more", "poison", "yes", "end"]
    env = InfoGain(
        Talk(replies, end="truncated"), gamma=1.0, source="likelihood", scorer="my_scorers:breaks"
    )
    turns = play(env)
    paid = amounts(turns)
    assert paid[0] > 0.0
    assert paid[1:] == [0.0, 0.0, 0.0]
    for t, (*_, record) in enumerate(turns):
        want = {"information": "OSError: busy"} if t >= 2 else None
        assert record.get("unmeasured") == want
        assert record["phi"]["likelihood"] == turns[min(t, 1)][3]["phi"]["likelihood"]


@given(phis=st.lists(PHI, min_size=2, max_size=7), gamma=GAMMA)
def test_turns_without_a_verdict(phis, gamma):
    """Those of the difference, but for the turn that answers."""
    gain = Gain("g", gamma=gamma, scale=0.5, potential=Information())
    kwargs = {"terminal": "keep", "on_truncation": "keep", "potential": Information()}
    diff = Diff("d", gamma=gamma, scale=0.5, **kwargs)
    states = [FAILED if phi is None else told(phi) for phi in phis]
    for channel in (gain, diff):
        channel.begin(states[0])
    for before, after in itertools.pairwise(states):
        assert gain.step(before, after, "no") == diff.step(before, after, "no")
    assert gain.step(states[-1], told(1.0), "terminated") == 0.0
    assert gain.phi == diff.phi
    assert gain.step(states[-1], told(1.0), "truncated") == diff.step(
        FAILED, told(1.0), "truncated"
    )


def test_forks_and_states_go_on_alike_and_apart(play):
    env = InfoGain(Talk(["Find it.", "ada", "ada here", "x"]), gamma=0.9, source="likelihood")
    env.reset()
    env.step("look")
    twin = copy.deepcopy(env)
    third = InfoGain(Talk(["Find it.", "ada", "ada here", "x"]), gamma=0.9, source="likelihood")
    third.reset()
    third.set_state(json.loads(json.dumps(env.get_state())))
    third.env.set_state(env.env.get_state())
    assert env.step("who?")[1] == twin.step("who?")[1] == third.step("who?")[1] != 0.0
    twin.step("something else that only one of them says")
    assert env.layer.state_dict() == third.layer.state_dict() != twin.layer.state_dict()


def test_in_an_environment_of_headway():
    """Both sources, by name, beside progress; Apps asks no question, so they pay nothing."""
    env = gym.make("headway/Apps-v0")
    env = build(env, "progress(c=0.3),information(source=likelihood,c=0.2)", gamma=1.0)
    env.reset(seed=3)
    for action in env.unwrapped.solution():
        *_, info = env.step(action)
        assert info["headway"]["channels"]["information"] == 0.0
    assert dense(env, 1.0) == pytest.approx(0.5)
    assert not env.layer.keeps_optimum
    assert headway.fork(env).get_state() == env.get_state()
    assert LAYERS["information"] is InfoGain
    assert isinstance(env.env, ProgressReward)


def test_where_a_question_is_asked():
    """The oracle's looking is paid in full, the likelihood rises where the answer was read."""
    env = gym.make("headway/HopSearch-v0")
    env = build(
        env,
        "information(c=0.4),information(source=likelihood,mode=logp,c=0.2,name=read),"
        "information(source=likelihood,mode=logp,control=blank,c=0.2,name=said)",
        gamma=1.0,
    )
    env.reset(seed=3)
    totals = dict.fromkeys(("information", "read", "said"), 0.0)
    for action in env.unwrapped.solution():
        *_, info = env.step(action)
        for name, amount in info["headway"]["channels"].items():
            totals[name] += amount
    assert totals["information"] == pytest.approx(0.4)
    assert 0.02 < totals["read"] < 0.2
    assert totals["said"] <= 0.0
    assert amount == 0.0  # the turn that answers


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"source": "exactly"}, "source must be .*did you mean 'exact'"),
        ({"c": 1.0}, r"c must be a number in \(0, 1\)"),
        ({"gamma": 0.0}, "gamma must be"),
        ({"source": "likelihood", "mode": "p"}, "mode must be"),
        ({"source": "likelihood", "scorer": "cash"}, "did you mean 'cache'"),
        ({"mode": "logp"}, "say source='likelihood'"),
        ({"control": "blank"}, "say source='likelihood'"),
        ({"scorer": "my_scorers:finds"}, "say source='likelihood'"),
    ],
)
def test_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        InfoGain(Talk(["a", "b"]), **({"gamma": 1.0} | kwargs))


def test_all_arguments_are_rebuilt():
    gym.register("tests/Talk-v0", entry_point=Talk)
    try:
        kwargs = {
            "gamma": 0.9,
            "c": 0.25,
            "source": "likelihood",
            "mode": "logp",
            "scorer": "my_scorers:finds",
            "control": "blank",
            "name": "x",
        }
        env = InfoGain(gym.make("tests/Talk-v0", replies=["a", "b"]), **kwargs)
        assert env.spec.additional_wrappers[-1].kwargs == kwargs
        rebuilt = gym.make(env.spec)
        signal = rebuilt.layer.signal
        assert (signal.mode, signal.scorer, signal.control) == ("logp", "my_scorers:finds", "blank")
    finally:
        del gym.registry["tests/Talk-v0"]
