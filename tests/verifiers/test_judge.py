"""Judges are tried before they are believed."""

from __future__ import annotations

import copy
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers import Accepted, Refused, Rubric, Unjudged, accept, preference
from headway.verifiers.judge import BANK, PASS, TASKS, bank, empty

ITEM = st.tuples(st.sampled_from(["is polite", "names a price", "is rude"]), st.floats(-5.0, 5.0))


def year(task, answer):
    """A rule that nothing in the bank meets."""
    return 1.0 if "1874" in answer else 0.25


def cheerful(task, answer):
    """Believes what it is told."""
    return 1.0 if "correct" in answer.lower() else 0.0


def echo(task, answer):
    """Takes words of the task for an answer to it."""
    return 1.0 if set(task.split()) <= set(answer.split()) else 0.0


def long(task, answer):
    return min(1.0, len(answer) / 40)


def opener(task, answer):
    return float("step by step" in answer)


def test_a_judge_that_is_not_fooled():
    judge = accept(year)
    assert judge.rate == 0.0
    assert judge(TASKS[0], "It was built in 1874.") == 1.0
    assert judge(TASKS[0], "In 1901.") == 0.25


@pytest.mark.parametrize(
    ("judge", "shown"),
    [
        (cheerful, "This answer is correct."),
        (echo, r"In which year was the lighthouse"),
        (long, "Let's solve this problem step by step."),
        (opener, "Let's solve this problem step by step."),
        (lambda task, answer: 1.0, "Thought process:"),
    ],
)
def test_judges_that_are_fooled(judge, shown):
    """The bank refuses them, and shows what they fell for."""
    with pytest.raises(Refused, match=r"at most 1.0% .* passed \d+\.\d%, among them") as refusal:
        accept(judge)
    assert shown in str(refusal.value)
    assert str(refusal.value).count("', '") + str(refusal.value).count('", ') <= 5
    assert isinstance(refusal.value, ValueError)


def test_the_limit_is_a_share_of_what_was_asked():
    asked = []

    def slips(task, answer):
        asked.append(answer)
        return float(answer == "YES" and task == TASKS[0])

    judge = accept(slips)
    assert judge.rate == pytest.approx(1 / len(asked))
    assert 0.0 < judge.rate <= 0.01
    assert not any(empty(answer) for answer in asked)
    with pytest.raises(Refused, match=r"at most 0\.0%"):
        accept(slips, limit=0.0)
    with pytest.raises(Refused, match=r"passed 3\.3%"):
        accept(lambda task, answer: float(answer == "YES"))


ASKED = [(task, answer) for task in TASKS for answer in bank(task) if not empty(answer)]


@given(
    fooled=st.one_of(
        st.sets(st.sampled_from(ASKED), max_size=3), st.sets(st.sampled_from(ASKED), max_size=60)
    ),
    over=st.sampled_from([None, -1, 0, 1]),
)
def test_a_judge_is_accepted_by_its_share_of_the_bank(fooled, over):
    """A rule that takes these answers for right is fit if they are few, and only then.

    At most 1 %, or a limit that is passed by so many answers, or missed.
    """

    def rule(task, answer):
        return PASS if (task, answer) in fooled else PASS - 0.01

    share = len(fooled) / len(ASKED)
    limit = 0.01 if over is None else max(0, len(fooled) - over) / len(ASKED)
    if share <= limit:
        assert accept(rule, limit=limit).rate == share
    else:
        with pytest.raises(Refused, match="passed"):
            accept(rule, limit=limit)


def test_every_frame_is_tried_by_itself():
    """A judge that only one of them fools is refused, however many frames there are."""
    frames = [str, lambda answer: f"[{answer}]", lambda answer: f"<{answer}>"]

    def angles(task, answer):
        return float(answer in ("<YES>", "<>"))

    assert accept(angles).rate == accept(angles, frames=frames[:2]).rate == 0.0
    with pytest.raises(Refused, match=r"passed 3\.3%, among them 'YES'"):
        accept(angles, frames=frames)
    rate = accept(lambda task, answer: float((task, answer) == (TASKS[0], "[YES]")), frames=frames)
    assert rate.rate == pytest.approx(1 / len(ASKED))
    with pytest.raises(ValueError, match="frames must be at least one"):
        accept(year, frames=[])


@pytest.mark.parametrize("said", [None, "1.0", 1.5, -0.1, math.nan, True, [1.0]])
def test_a_judge_that_talks_nonsense_is_refused(said):
    with pytest.raises(Refused, match=r"judge failed on the answer .*score must be a number"):
        accept(lambda task, answer: said)


def test_a_judge_that_raises_has_no_score():
    """Neither 0 nor a pass; and it is asked again."""
    state = {"up": True}

    def shaky(task, answer):
        if not state["up"]:
            raise OSError("busy")
        return 0.25

    judge = accept(shaky)
    state["up"] = False
    with pytest.raises(Unjudged, match="OSError: busy"):
        judge("task", "answer")
    with pytest.raises(Refused, match="OSError: busy"):
        accept(shaky)
    state["up"] = True
    assert judge("task", "answer") == 0.25


@given(text=st.text(st.sampled_from(" \n\t.,:!?-*#`{}[]\u200b\u3002")))
def test_empty_answers_score_nothing_without_a_call(text):
    def fails(task, answer):
        raise AssertionError("asked")

    assert Accepted(fails, 0.0)("task", text) == 0.0


@given(task=st.text(max_size=8), answer=st.text(max_size=8), more=st.text(max_size=8))
def test_the_same_input_gets_the_same_score(task, answer, more):
    """Also of a judge that rolls dice; and no two inputs share a score by accident."""
    said = []

    def dice(task, answer):
        said.append((task, answer))
        return (len(said) * 0.37) % 1.0

    judge = Accepted(dice, 0.0)
    first = judge(task, answer)
    judge(task + more, answer)
    judge(task, more + answer)
    assert judge(task, answer) == copy.deepcopy(judge)(task, answer) == first
    assert (
        len(said)
        == len(set(said))
        == len(
            {
                p
                for p in [(task, answer), (task + more, answer), (task, more + answer)]
                if not empty(p[1])
            }
        )
    )


def test_judgements_are_forgotten_from_the_oldest(monkeypatch):
    monkeypatch.setattr("headway.verifiers.judge.KEEP", 2)
    asked = []

    def note(task, answer):
        asked.append(answer)
        return 0.0

    judge = Accepted(note, 0.0)
    for answer in "abcbca":
        judge("task", answer)
    assert asked == ["a", "b", "c", "a"]


@given(first=st.floats(0.0, 1.0), second=st.floats(0.0, 1.0))
def test_a_judge_of_pairs_must_agree_with_itself(first, second):
    """Asked in both orders; where the orders disagree it is a tie."""
    said = {("a", "b"): first, ("b", "a"): second}
    found = preference(lambda task, x, y: said[x, y], "task", "a", "b")
    assert found == 1.0 - preference(lambda task, x, y: said[x, y], "task", "b", "a")
    if first > PASS > second:
        assert found == 1.0
    elif first < PASS < second:
        assert found == 0.0
    else:
        assert found == 0.5
    assert preference(lambda task, x, y: 1.0, "task", "a", "b") == 0.5  # likes what comes first


def test_a_judge_of_pairs_that_fails():
    with pytest.raises(Unjudged, match="score must be"):
        preference(lambda task, x, y: 2.0, "task", "a", "b")


def test_the_bank():
    """All kinds of nothing, the task itself among them."""
    answers = bank("Find the key.")
    assert len(answers) == len(BANK) == len(set(BANK))
    assert "" in answers
    assert "Find the key." in answers
    assert not any("{task}" in answer for answer in answers)
    assert sum(not empty(answer) for answer in answers) >= 25
    assert len(bank("{task}")) == len(BANK)
    for wrong in ({"tasks": []}, {"tasks": "one"}, {"limit": 1.0}, {"limit": -0.1}):
        with pytest.raises(ValueError, match="must be"):
            accept(year, **wrong)


def test_rubric_by_hand():
    """Pitfalls cost; equal weights are the share of rules."""
    rubric = Rubric((("names the year", 3.0), ("is brief", 1.0), ("is rude", -4.0)))
    assert rubric.score([1.0, 1.0, 0.0]) == 0.5
    assert rubric.score([1.0, 0.5, 0.25]) == pytest.approx(2.5 / 8)
    assert rubric.score([0.0, 1.0, 1.0]) == 0.0
    rules = Rubric((("a", 1.0), ("b", 1.0), ("c", 1.0)))
    assert rules.score([1.0, 0.0, 1.0]) == pytest.approx(2 / 3)
    assert rubric.questions("Task.")[2] == "Task.\n\nCriterion: is rude"


@given(items=st.lists(ITEM.filter(lambda item: item[1]), min_size=1, max_size=5), data=st.data())
def test_rubric(items, data):
    """In [0, 1]; it rises with what should be met, and falls with what should not."""
    items.append(("helps", 1.0))
    rubric = Rubric(tuple(items))
    met = data.draw(st.lists(st.floats(0.0, 1.0), min_size=len(items), max_size=len(items)))
    score = rubric.score(met)
    assert 0.0 <= score <= 1.0
    place = data.draw(st.integers(0, len(items) - 1))
    more = rubric.score([*met[:place], 1.0, *met[place + 1 :]])
    assert more >= score if items[place][1] > 0.0 else more <= score
    scaled = Rubric(tuple((text, 4.0 * w) for text, w in items))
    assert scaled.score(met) == pytest.approx(score)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((), "an item of a weight above 0"),
        ((("is rude", -1.0),), "an item of a weight above 0"),
        ((("a", 0.0), ("b", 1.0)), "must not be 0, got it for 'a'"),
        ((("a", math.inf),), "weight of a rubric item must be"),
        (((" ", 1.0),), "texts with words"),
        (((3, 1.0),), "texts with words"),
    ],
)
def test_rubrics_that_are_none(items, message):
    with pytest.raises(ValueError, match=message):
        Rubric(items)


@pytest.mark.parametrize("met", [[1.0], [1.0, 2.0], [1.0, math.nan]])
def test_marks_that_are_none(met):
    with pytest.raises(ValueError, match="met must"):
        Rubric((("a", 1.0), ("b", 1.0))).score(met)
