"""How likely an answer is: a language model that repeats, and the potential around it."""

from __future__ import annotations

import copy
import json
import math
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers import AnswerLikelihood, Verdict
from headway.verifiers.likelihood import (
    FLOOR,
    SCORERS,
    STUB,
    blanked,
    cache_model,
    likelihood,
    tokens,
)

OK = Verdict(0.5, False, {})
FAILED = Verdict(math.nan, False, {}, status="no_verdict", reason="gone")
WORDS = st.sampled_from(["ada", "berta", "7", "the", "mill", ",", "Ünal"])
TEXT = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


def look(**told):
    def find(name):
        if name not in told:
            raise AttributeError(name)
        return lambda: told[name]

    return find


def heard(signal, *turns, task="task", gold=("ada",)):
    """The values at reset and after each ``(action, observation)``."""
    tell = look() if gold is None else look(gold=gold)
    signal.hear(None, task, {}, tell)
    signal.begin(OK)
    found = [signal.value(OK)]
    for action, observation in turns:
        signal.hear(action, observation, {}, tell)
        found.append(signal.value(OK))
    return found


@pytest.fixture
def scorer(monkeypatch):
    """Puts a function under the name ``"my_scorers:mine"``."""

    def put(function):
        module = types.ModuleType("my_scorers")
        module.mine = function
        monkeypatch.setitem(sys.modules, "my_scorers", module)
        return "my_scorers:mine"

    return put


@given(context=TEXT, answers=st.lists(TEXT, min_size=1, max_size=4))
def test_scores_do_not_depend_on_company(context, answers):
    alone = [cache_model(context, [answer])[0] for answer in answers]
    assert cache_model(context, answers) == alone
    assert cache_model(context, answers[::-1]) == alone[::-1]
    assert all(math.isfinite(x) and x < 0.0 for x in alone)


@given(context=st.lists(WORDS, max_size=30))
def test_words_share_at_most_all_probability(context):
    """After any word, and at the start; unseen words have some."""
    text = " ".join(context)
    seen = sorted(set(tokens(text)))
    first = sum(math.exp(x) for x in cache_model(text, seen)) if seen else 0.0
    assert first <= 1.0
    for word in seen:
        alone = cache_model(text, [word])[0]
        after = [2 * x - alone for x in cache_model(text, [f"{word} {o}" for o in seen])]
        assert sum(math.exp(x) for x in after) <= 1.0 + 1e-9
    assert cache_model(text, ["zebra"])[0] > -math.inf


def test_by_hand():
    """0.4 of the share among words, 0.3 of the share after the word before, 0.3 of spelling."""
    context = "ada met berta ada met cleo"
    floor = 0.3 * 257.0**-4
    met = 0.3 * 257.0**-4 + 0.4 * 2 / 6 + 0.3 * 2 / 2
    ada = floor + 0.7 * 2 / 6
    assert cache_model(context, ["ada"])[0] == pytest.approx(math.log(ada))
    assert cache_model(context, ["Ada met"])[0] == pytest.approx(
        (math.log(ada) + math.log(met)) / 2
    )
    assert cache_model("", ["ab"])[0] == pytest.approx(-3 * math.log(257.0))
    assert cache_model("x", ["ab"])[0] == pytest.approx(math.log(0.3) - 3 * math.log(257.0))
    assert cache_model("", ["a" * 200])[0] == -math.inf


@given(context=TEXT, answer=TEXT)
def test_what_is_on_the_table_is_likelier(context, answer):
    assert cache_model(f"{context} {answer}", [answer])[0] > cache_model("", [answer])[0]


def test_an_answer_without_a_token_is_refused():
    with pytest.raises(ValueError, match="at least one word or sign each, got ' '"):
        cache_model("x", ["a", " "])


@given(l=st.one_of(st.floats(-100.0, 0.0), st.just(-math.inf)))
def test_scales(l):  # noqa: E741
    """Both forms lie in [0, 1] and rise with l."""
    for mode in ("prob", "logp"):
        found = likelihood(l, mode)
        assert 0.0 <= found <= 1.0
        assert found <= likelihood(l / 2.0 if math.isfinite(l) else -1.0, mode)
        assert likelihood(0.0, mode) == 1.0
    if l > FLOOR:
        assert likelihood(l, "prob") == math.exp(l)
        assert likelihood(l, "logp") == pytest.approx(1.0 + l / 18.420680743952367)
    assert likelihood(FLOOR - 1.0, "logp") == 0.0


@given(turns=st.lists(st.tuples(TEXT, TEXT), max_size=4), mode=st.sampled_from(["prob", "logp"]))
def test_the_best_alias_counts(turns, mode):
    """Several right answers are worth the likeliest, in any order, blank ones nothing."""
    gold = ["ada", "berta mill", "zebra"]
    alone = [heard(AnswerLikelihood(mode=mode), *turns, gold=[one]) for one in gold]
    together = heard(AnswerLikelihood(mode=mode), *turns, gold=[*gold[::-1], " "])
    assert together == [max(found) for found in zip(*alone, strict=True)]


def test_what_the_scorer_is_given(scorer):
    asked = []

    def record(context, answers):
        asked.append((context, list(answers)))
        return [-1.0, -2.0]

    heard(
        AnswerLikelihood(scorer=scorer(record)),
        ("look", "a room"),
        ("", ""),
        (object(), 7),
        task="find it",
        gold=("x", "y"),
    )
    assert [context for context, _ in asked] == [
        f"find it\n{STUB}",
        f"find it\nlook\na room\n{STUB}",
        f"find it\nlook\na room\n{STUB}",  # nothing was added
        f"find it\nlook\na room\n7\n{STUB}",
    ]
    assert all(answers == ["x", "y"] for _, answers in asked)


def test_the_control_hides_replies_and_nothing_else(scorer):
    asked = []

    def record(context, answers):
        asked.append(context)
        return [-1.0]

    turns = [("who is ada?", "Ada is\nthe miller."), ("so ada", "ok")]
    heard(AnswerLikelihood(scorer=scorer(record), control="blank"), *turns, task="Ask.")
    assert asked[-1] == f"Ask.\nwho is ada?\n___ __\n___ _______\nso ada\n__\n{STUB}"
    free = heard(AnswerLikelihood(), ("read", "ada ada ada"))
    blind = heard(AnswerLikelihood(control="blank"), ("read", "ada ada ada"))
    assert free[1] > free[0] == blind[0] >= blind[1]
    aloud = heard(AnswerLikelihood(control="blank"), ("ada?", "no"))
    assert aloud[1] > aloud[0]


@given(said=st.lists(TEXT, max_size=3), reply=TEXT)
def test_filler_spares_what_was_said(said, reply):
    """Each token as it was or hidden, none joined to another."""
    words = {word for text in said for word in tokens(text)}
    left = tokens(blanked(reply, words))
    assert [w for w in left if set(w) != {"_"}] == [w for w in tokens(reply) if w in words]
    assert len(left) <= len(tokens(reply))


@given(turns=st.lists(st.tuples(TEXT, TEXT), max_size=4), mode=st.sampled_from(["prob", "logp"]))
def test_the_control_that_subtracts(turns, mode):
    """Starts at 0, never falls, and is never more than what there is without it."""
    net = heard(AnswerLikelihood(mode=mode, control="subtract"), *turns)
    free = heard(AnswerLikelihood(mode=mode), *turns)
    assert net[0] == 0.0
    assert net == sorted(net)
    assert all(x <= max(free[: t + 1]) for t, x in enumerate(net))


@given(text=st.text())
def test_filler_has_the_shape_of_the_text(text):
    filler = blanked(text)
    assert len(filler) == len(text)
    assert set(filler) <= {"_"} | {letter for letter in text if letter.isspace()}


@pytest.mark.parametrize("gold", [None, (), ("",), (" ", "\n")])
def test_no_right_answer_has_no_value(gold):
    assert heard(AnswerLikelihood(), ("a", "b"), gold=gold) == [None, None]


def test_a_scorer_that_fails(scorer):
    """In mid-episode the last value stands, and it is said; before any value it raises."""
    fail = []

    def shaky(context, answers):
        if fail:
            raise OSError("busy")
        return [-0.1 * len(context)]

    signal = AnswerLikelihood(scorer=scorer(shaky))
    (first,) = heard(signal)
    fail.append(1)
    signal.hear("a", "b", {}, look())
    assert (signal.value(OK), signal.failed) == (first, "OSError: busy")
    fail.clear()
    signal.hear("", "", {}, look())
    assert signal.value(OK) < first
    assert signal.failed == ""
    fail.append(1)
    with pytest.raises(OSError, match="busy"):
        heard(signal)


@pytest.mark.parametrize(
    "answer", [[], [-1.0, -1.0], [math.nan], [0.5], None, ["much"], -1.0, [None]]
)
def test_a_scorer_that_talks_nonsense(scorer, answer):
    signal = AnswerLikelihood(scorer=scorer(lambda context, answers: answer))
    with pytest.raises(ValueError, match="scorer 'my_scorers:mine' must return a number"):
        heard(signal)


def test_rounding_above_zero_is_zero(scorer):
    assert heard(AnswerLikelihood(scorer=scorer(lambda c, a: [1e-9]))) == [1.0]


@pytest.mark.parametrize("control", [None, "blank", "subtract"])
def test_memory_is_data_and_siblings_share_nothing(control):
    signal = AnswerLikelihood(control=control)
    heard(signal, ("is it ada?", "read"))
    state = json.dumps(signal.state_dict())
    twin, third = copy.deepcopy(signal), AnswerLikelihood(control=control)
    third.load_state_dict(json.loads(state))
    for one in (twin, third):
        one.hear("read", "ada ada", {}, look())
    assert twin.state_dict() == third.state_dict() != signal.state_dict()
    assert twin.value(OK) == third.value(OK)
    assert json.dumps(signal.state_dict()) == state
    assert len(signal.transcript) == 3
    heard(third)
    assert (third.transcript, third.words) == (["task"], {})


def test_arguments_and_no_verdict():
    for wrong, message in [
        ({"scorer": "cash"}, r"scorer must be .*did you mean 'cache'"),
        ({"mode": "log"}, "mode must be one of"),
        ({"control": "blanks"}, "did you mean 'blank'"),
    ]:
        with pytest.raises(ValueError, match=message):
            AnswerLikelihood(**wrong)
    assert list(SCORERS) == ["cache"]
    with pytest.raises(ValueError, match="gone"):
        AnswerLikelihood().value(FAILED)
