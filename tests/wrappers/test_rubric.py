"""A judge's score at the end, from judges that passed the bank."""

from __future__ import annotations

import copy
import json
import sys
import types

import gymnasium as gym
import pytest

import headway
from headway.agents import Oracle
from headway.verifiers import Refused, Rubric, Verdict
from headway.wrappers import RubricReward
from headway.wrappers.rubric import Judgement
from headway.wrappers.stack import build

OK = Verdict(0.5, False, {})
RUBRIC = [["names the year", 3.0], ["is brief", 1.0], ["is rude", -1.0]]


def year(task, answer):
    """The share of what was asked that is there."""
    if "is rude" in task:
        return float("fool" in answer)
    if "is brief" in task:
        return float("1874" in answer and len(answer) < 20)
    return float("1874" in answer)


@pytest.fixture(autouse=True)
def judges(monkeypatch):
    """Functions under ``"my_judges:..."``; ``asked`` is what they were asked."""
    module = types.ModuleType("my_judges")
    module.asked, module.number = [], 3

    def fair(task, answer):
        module.asked.append((task, answer))
        if "poison" in answer:
            raise OSError("busy")
        return year(task, answer)

    module.fair = fair
    module.fooled = lambda task, answer: 0.9 if "correct" in answer else 0.1
    module.broken = lambda task, answer: "good"
    monkeypatch.setitem(sys.modules, "my_judges", module)
    return module


def plays(channel, turns, end="terminated"):
    """What each turn ``(action, answer handed in or None)`` is paid."""
    channel.hear(None, "When was it built?", {"calls": []}, None)
    channel.begin(OK)
    paid = []
    for t, (action, answer) in enumerate(turns, 1):
        calls = []
        if answer is not None:
            calls = [{"tool": "submit", "args": {"answer": answer}, "error": False}]
        channel.hear(action, f"reply {t}", {"calls": calls}, None)
        paid.append(channel.step(OK, OK, end if t == len(turns) else "no"))
    return paid


def judgement(judges, reads="answer", rubric=None):
    channel = Judgement("r", scale=0.5, judge=judges.fair, rubric=rubric, reads=reads)
    judges.asked.clear()
    return channel


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_paid_once_at_the_end(judges, end):
    channel = judgement(judges)
    assert plays(channel, [("a", None), ("b", "In 1874.")], end) == [0.0, 0.5]
    assert judges.asked == [("When was it built?", "In 1874.")]
    assert plays(channel, [("b", "In 1901.")], end) == [0.0]
    assert plays(channel, [("b", "In 1874.")], end) == [0.5]
    assert plays(channel, [("b", None)], end) == [0.0]
    assert len(judges.asked) == 3  # nothing is known from before; the last is empty


def test_what_was_judged_before_has_no_say(judges):
    """A judge that is never sure gives each episode, and each channel, its own word."""
    rolls = iter(range(9))
    judges.dice = lambda task, answer: next(rolls) / 10 if "1874" in answer else 0.0
    one, two = (
        Judgement("r", scale=1.0, judge=judges.dice, rubric=None, reads="answer") for _ in range(2)
    )
    paid = [plays(channel, [("a", "1874")])[0] for channel in (one, two, one, one)]
    assert paid == pytest.approx([0.0, 0.1, 0.2, 0.3])
    twin = copy.deepcopy(one)
    assert twin.step(OK, OK, "terminated") == one.step(OK, OK, "terminated") == paid[-1]


def test_a_judge_is_tried_once_a_process(judges, Script):
    """In each frame; only that it was accepted is kept."""
    asked = []
    for reads in ("answer", "transcript"):
        for _ in range(2):
            RubricReward(Script(), judge="my_judges:fair", reads=reads)
            asked.append(len(judges.asked))
    assert 0 < asked[0] == asked[1] < asked[2] == asked[3]


def test_what_is_read(judges):
    channel = judgement(judges, "transcript")
    assert plays(channel, [("look", None), ("", "x"), (object(), None)]) == [0.0, 0.0, 0.0]
    assert judges.asked[-1][1] == "> look\nreply 1\n> \nreply 2\n> \nreply 3"
    assert plays(channel, [("1874", None)]) == [0.5]


def test_an_action_cannot_pass_for_a_reply(judges):
    channel = judgement(judges, "transcript")
    plays(channel, [("Done.\nAll saved.\r\n\u2028ok", None), ("\n", None)])
    said = judges.asked[-1][1].split("\n")
    assert [line for line in said if not line.startswith("> ")] == ["reply 1", "reply 2"]


@pytest.mark.parametrize("reads", ["answer", "transcript"])
@pytest.mark.parametrize("rubric", [None, True])
def test_nothing_said_is_worth_nothing_without_a_call(judges, reads, rubric):
    rubric = Rubric((("is kind", 1.0),)) if rubric else None
    channel = judgement(judges, reads, rubric)
    assert plays(channel, [("", None), ("...", "?!")]) == [0.0, 0.0]
    assert judges.asked == []


def test_item_by_item(judges):
    """Weighted, pitfalls subtracted, each with its own question."""
    rubric = Rubric(tuple((text, weight) for text, weight in RUBRIC))
    channel = judgement(judges, rubric=rubric)
    assert plays(channel, [("a", "In 1874, fool.")]) == [pytest.approx(0.5 * 3 / 5)]
    assert plays(channel, [("a", "1874")]) == [pytest.approx(0.5 * 4 / 5)]
    assert plays(channel, [("a", "fool")]) == [0.0]
    assert judges.asked[0] == ("When was it built?\n\nCriterion: names the year", "In 1874, fool.")


def test_a_judge_that_fails_has_measured_nothing(judges, Script, play):
    """Nothing is paid, and the record says why; an episode that is judged says nothing."""
    env = RubricReward(Script(), judge="my_judges:fair", c=0.5)
    turns = play(env, ["1874", "poison"])
    assert [record["channels"]["rubric"] for *_, record in turns] == [0.0, 0.0, 0.0]
    assert turns[-1][3]["unmeasured"] == {"rubric": "judge failed: OSError: busy"}
    assert "unmeasured" not in turns[1][3]
    turns = play(env, ["1874"])
    assert turns[-1][3]["channels"] == {"rubric": 0.5}
    assert all("unmeasured" not in record for *_, record in turns)


def test_judges_that_are_fooled_are_refused(Script):
    with pytest.raises(Refused, match=r"among them 'This answer is correct.'"):
        RubricReward(Script(), judge="my_judges:fooled")
    with pytest.raises(Refused, match="score must be a number"):
        RubricReward(Script(), judge="my_judges:broken")
    with pytest.raises(Refused, match="passed"):
        build(Script(), "rubric(judge='my_judges:fooled')", gamma=1.0)


@pytest.mark.parametrize(
    "fooled",
    [
        lambda answer: answer.startswith(">") and "correct" in answer,  # in the frame
        lambda answer: answer.count("\n> ") >= 2,  # by length: there is work around it
        lambda answer: "search" in answer and "\n> YES\n" in answer,  # among honest actions
        lambda answer: "\n> .\n" in answer or "\n> ...\n" in answer,  # nothing, among them
    ],
)
def test_judges_that_are_fooled_by_the_frame(judges, Script, fooled):
    """They are shown what they will be shown: never fooled by an answer alone, they would pass."""
    judges.framed = lambda task, answer: float(fooled(answer))
    assert RubricReward(Script(), judge="my_judges:framed", reads="answer").layer.judge.rate == 0.0
    with pytest.raises(Refused, match="passed"):
        RubricReward(Script(), judge="my_judges:framed")


def test_a_rubric_is_tried_on_what_it_pays_for(judges, Script):
    """Each item that pays, and no pitfall: to find one everywhere wins nothing."""
    judges.prude = lambda task, answer: float("is rude" in task or "1874" in answer)
    env = RubricReward(Script(), judge="my_judges:prude", rubric=RUBRIC)
    assert env.layer.judge.rate == 0.0
    judges.soft = lambda task, answer: float("is brief" in task)
    with pytest.raises(Refused, match=r"passed 50\.0%"):
        RubricReward(Script(), judge="my_judges:soft", rubric=RUBRIC)


def test_forks_and_states(judges, Script):
    env = RubricReward(Script(), judge="my_judges:fair")
    env.reset()
    env.step("1874")
    twin, third = copy.deepcopy(env), RubricReward(Script(), judge="my_judges:fair")
    third.reset()
    third.set_state(json.loads(json.dumps(env.get_state())))
    third.env.set_state(env.env.get_state())
    assert env.step("so")[1] == third.step("so")[1] == pytest.approx(0.3)
    assert twin.layer.turns != env.layer.turns
    assert twin.step("so")[1] == pytest.approx(0.3)


def test_in_an_environment_of_headway():
    env = build(gym.make("headway/Apps-v0"), "rubric(judge='my_judges:fair',c=0.2)", gamma=0.9)
    obs, _ = env.reset(seed=3)
    agent, over = Oracle(), False
    agent.reset(env, obs)
    while not over:
        obs, _, terminated, truncated, info = env.step(agent.act(obs))
        over = terminated or truncated
    assert info["headway"]["channels"]["rubric"] == 0.0
    env.reset(seed=3)
    env.step("It was 1874.")
    *_, info = env.step(headway.CUT)
    assert info["headway"]["channels"]["rubric"] == 0.2
    assert env.layer.bound(0.9) == (0.0, 0.2, 0.0, 0.2)
    assert not env.layer.keeps_optimum(0.9)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"judge": "fair"}, "judge must be 'module:attribute', got 'fair'"),
        ({"judge": "my_judges:fare"}, "judge must name something"),
        ({"judge": "my_judges:number"}, "can be called"),
        ({"c": 1.0}, "c must be"),
        ({"reads": "answers"}, "did you mean 'answer'"),
        ({"rubric": ["is brief"]}, "pairs of a text and a weight"),
        ({"rubric": [["is brief", 1.0, 2.0]]}, "pairs of a text and a weight"),
        ({"rubric": []}, "weight above 0"),
        ({"rubric": [["is rude", -1.0]]}, "weight above 0"),
    ],
)
def test_arguments(Script, kwargs, message):
    with pytest.raises(ValueError, match=message):
        RubricReward(Script(), **({"judge": "my_judges:fair"} | kwargs))


def test_all_arguments_are_rebuilt(script_id):
    kwargs = {
        "judge": "my_judges:fair",
        "rubric": RUBRIC,
        "c": 0.25,
        "reads": "answer",
        "name": "x",
    }
    env = RubricReward(gym.make(script_id), **kwargs)
    assert env.spec.additional_wrappers[-1].kwargs == kwargs
    layer = gym.make(env.spec).layer
    assert (layer.scale, layer.reads, layer.name) == (0.25, "answer", "x")
    assert [list(item) for item in layer.rubric.items] == RUBRIC
