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
from headway.verifiers import AnswerLikelihood, Information, Potential, Verdict, blank
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

    An action that begins with "submit" is a call of it, which fails before the last turn.

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
        call = {"tool": "submit", "args": {"answer": action}, "error": not over}
        calls = [call] if str(action).startswith("submit") else []
        info = {"headway": blank(0.0), "calls": calls}
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

    def once(context, answers):
        if context.endswith("poison\nAnswer:"):
            raise OSError("busy")
        return [-1.0 / len(context.split())]

    module.once, module.scorer, module.control = once, "cache", None
    module.potential = lambda: AnswerLikelihood(scorer=module.scorer, control=module.control)
    sys.modules["my_scorers"] = module
    yield module
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


CONTROL = st.sampled_from([None, "blank", "subtract"])
TURNS = st.lists(
    st.tuples(st.sampled_from(["", "ada?", "look"]), st.sampled_from(["", "ada", "no one here."])),
    min_size=1,
    max_size=6,
)


@given(turns=TURNS, control=CONTROL, mode=st.sampled_from(["prob", "logp"]))
def test_a_turn_that_changes_nothing_pays_nothing(play, turns, control, mode):
    """Nothing said and nothing replied leaves the context as it was, and with it what is known."""
    said, replies = zip(*turns, strict=True)
    kwargs = {"source": "likelihood", "mode": mode, "control": control}
    env = InfoGain(Talk(["Find it.", *replies, ""]), gamma=1.0, **kwargs)
    for turn, amount in zip(turns, amounts(play(env, said)), strict=False):
        assert amount == 0.0 or turn != ("", "")


@given(count=st.integers(2, 7), data=st.data(), control=st.sampled_from([None, "subtract"]))
def test_the_turn_that_finds_it_is_paid_and_no_other(play, count, data, control):
    """By a scorer that knows the answer only once it was shown, in whatever company."""
    k = data.draw(st.integers(1, count - 1))
    line = st.sampled_from(["nothing", "", "the key is not here", "ada"])
    replies = ["Find the key.", *data.draw(st.lists(line, min_size=count, max_size=count))]
    replies[k] = "the key is ada"
    kwargs = {"c": 0.5, "source": "likelihood", "scorer": "my_scorers:finds", "control": control}
    paid = amounts(play(InfoGain(Talk(replies), gamma=1.0, **kwargs)))
    assert [x > 0.0 for x in paid] == [t == k - 1 for t in range(count)]
    assert paid[k - 1] == pytest.approx(0.5 * (math.exp(-0.1) - math.exp(-5.0)))
    assert sum(map(bool, paid)) == 1


FREE = st.sampled_from(["ada", "Ada, ada!", "who?", "the key is ada", "bert ada 7", ""])
"""What the agent says; it may guess as often as it likes."""

MUTE = st.sampled_from(["", "nobody", "no, nothing: at all.", "try again", "7"])
"""Replies that do not hold the answer."""


@given(
    said=st.lists(FREE, min_size=1, max_size=6),
    data=st.data(),
    mode=st.sampled_from(["prob", "logp"]),
    gamma=GAMMA,
)
def test_words_of_ones_own_are_worth_nothing(play, said, data, mode, gamma):
    """Whatever is said, where no reply holds the answer, or holds it as an echo only."""
    replies = ["Find it."]
    for turn in range(1, len(said) + 1):
        reply = data.draw(MUTE)
        heard = "ada" in " ".join(said[:turn]).lower()
        echo = data.draw(st.sampled_from(["{}", "no '{}'.", "{0} {0} {0}"])).format("ADA")
        replies.append(echo if heard and data.draw(st.booleans()) else reply)
    kwargs = {"source": "likelihood", "mode": mode, "control": "subtract"}
    env = InfoGain(Talk(replies, end="truncated"), gamma=gamma, **kwargs)
    assert amounts(play(env, said)) == [0.0] * len(said)


def test_an_echo_of_a_call_is_a_word_of_ones_own(play):
    """Spelt in escapes, it comes back in letters."""

    class Echo(Talk):
        def step(self, action):
            *rest, info = super().step(action)
            call = {"tool": "open", "args": {"id": ["-\nada"]}, "error": True}
            return "no page 'ada'", *rest[1:], {**info, "calls": [call]}

    env = InfoGain(
        Echo(["Find it.", "", ""], end="truncated"),
        gamma=1.0,
        source="likelihood",
        control="subtract",
    )
    assert amounts(play(env, ['open("\\nada")'] * 2)) == [0.0, 0.0]


@given(
    before=st.lists(MUTE, max_size=3),
    after=st.lists(st.tuples(FREE, MUTE), max_size=4),
    mode=st.sampled_from(["prob", "logp"]),
)
def test_what_is_read_is_paid_and_kept(play, before, after, mode):
    """And to quote it afterwards, as an answer is worked out, takes nothing away."""
    replies = ["Find it.", *before, "It is Ada.", *[reply for _, reply in after], "done"]
    said = ["look"] * (len(before) + 1) + [words for words, _ in after]
    kwargs = {"source": "likelihood", "mode": mode, "control": "subtract"}
    env = InfoGain(Talk(replies), gamma=1.0, c=0.9, **kwargs)
    paid = amounts(play(env, [*said, "submit ada"]))
    assert paid[: len(before)] == [0.0] * len(before)
    assert paid[len(before)] > 0.0
    assert all(x >= 0.0 for x in paid)
    assert 0.0 < sum(paid) <= 0.9


@pytest.mark.parametrize("control", [None, "subtract"])
@pytest.mark.parametrize("kind", ["information", "progress", "watermark", "potential"])
def test_a_turn_that_hands_in_is_measured_by_no_channel(play, scorers, kind, control):
    """Neither on its last turn nor where it was refused: not its words, nor their echo."""
    scorers.control = control
    stack = {
        "information": f"information(source=likelihood,control={control})",
        "progress": "progress(potential='my_scorers:potential')",
        "watermark": "watermark(potential='my_scorers:potential')",
        "potential": "potential(potential='my_scorers:potential',terminal=keep)",
    }[kind]
    env = Talk(["Find it.", "ada ada", "ada", "no", "ada"])
    env = build(env, stack, gamma=1.0, on_truncation="keep", allow_dominance=True)
    paid = amounts(play(env, ["submit ada ada", "look", "submit", "submit ada ada ada"]), kind)
    assert paid[1] > 0.0
    assert [paid[0], *paid[2:]] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["progress", "watermark", "potential", "late"])
def test_every_channel_tells_of_a_scorer_that_fails(play, scorers, kind):
    """Whatever reads it; the turn of the failure, and that alone."""
    scorers.control = None
    scorers.scorer = "my_scorers:once"
    env = Talk(["Find it.", "a", "poison", "b", "c"], end="truncated")
    stack = f"{kind}(potential='my_scorers:potential')"
    env = build(env, stack, gamma=1.0, on_truncation="keep", allow_dominance=True)
    turns = play(env)
    assert [record.get("unmeasured") for *_, record in turns] == [
        {kind: "OSError: busy"} if t == 2 else None for t in range(5)
    ]
    assert turns[2][3]["channels"][kind] == 0.0


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
    env = InfoGain(Talk(replies[:4]), gamma=1.0, source="likelihood", scorer="my_scorers:breaks")
    assert "unmeasured" not in play(env)[-1][3]  # the turn that answers is not measured


class Broken(Potential):
    """Never measures anything."""

    name, failed = "broken", "no ruler"

    def value(self, verdict):
        return 0.5


def test_a_failure_at_reset_is_told_of(play, scorers):
    scorers.broken = Broken
    env = build(Talk(["a", "b"]), "progress(potential='my_scorers:broken')", gamma=1.0)
    told_of = [record["unmeasured"] for *_, record in play(env)]
    assert told_of == [{"progress": "no ruler"}] * 2


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
    assert not env.layer.keeps_optimum(0.9)
    assert headway.fork(env).get_state() == env.get_state()
    assert LAYERS["information"] is InfoGain
    assert isinstance(env.env, ProgressReward)


def test_where_a_question_is_asked():
    """The oracle's looking is paid in full, the likelihood rises where the answer was read."""
    env = gym.make("headway/HopSearch-v0")
    env = build(
        env,
        "information(c=0.3),information(source=likelihood,mode=logp,c=0.2,name=read),"
        "information(source=likelihood,mode=logp,control=blank,c=0.2,name=said),"
        "information(source=likelihood,mode=logp,control=subtract,c=0.2,name=net)",
        gamma=1.0,
    )
    env.reset(seed=3)
    totals = dict.fromkeys(("information", "read", "said", "net"), 0.0)
    for action in env.unwrapped.solution():
        *_, info = env.step(action)
        for name, amount in info["headway"]["channels"].items():
            totals[name] += amount
    assert totals["information"] == pytest.approx(0.3)
    assert 0.02 < totals["read"] < 0.2
    assert totals["said"] <= 0.0
    assert totals["net"] >= totals["read"]  # honest work keeps its pay
    assert amount == 0.0  # the turn that answers


def test_reciting_is_no_looking():
    """All dates there could be, said without a look: the oracle's pay without the control."""
    env = gym.make("headway/HopSearch-v0")
    for name, control in (("plain", None), ("net", "subtract")):
        kwargs = {"source": "likelihood", "mode": "logp", "control": control, "name": name}
        env = InfoGain(env, gamma=1.0, **kwargs)
    env.reset(seed=3)
    (gold,) = env.unwrapped.gold()
    day, month, year = gold.split()
    recital = " ".join(f"{d} {month} {year}" for d in range(int(day) + 9))
    totals = dict.fromkeys(("plain", "net"), 0.0)
    for action in (recital, f'{{"tool": "open", "args": {{"id": "{gold}"}}}}', headway.CUT):
        obs, *_, info = env.step(action)
        for name, amount in info["headway"]["channels"].items():
            totals[name] += amount
        assert (gold in obs) == ("open" in str(action))  # the tool repeats what it was told
    assert totals["plain"] > 0.2
    assert totals["net"] == 0.0


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
