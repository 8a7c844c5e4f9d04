"""Matching calls to a reference: optimal, one to one, and paid once."""

from __future__ import annotations

import builtins
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.verifiers import Match, Verdict
from headway.verifiers.reference import (
    answer_score,
    assignment,
    handed_in,
    matched,
    similarities,
    similarity,
    submits,
    transported,
)

OK = Verdict(0.5, False, {})
VALUE = st.sampled_from([1, 1.0, True, "x", [1, 2], {"k": 1}, None])
CALL = st.builds(
    lambda tool, args: {"tool": tool, "args": args, "error": False},
    st.sampled_from(["send", "read"]),
    st.dictionaries(st.sampled_from("abc"), VALUE, max_size=3),
)
CALLS = st.lists(CALL, max_size=4)
SIMS = (
    st.integers(1, 4)
    .flatmap(
        lambda columns: st.lists(
            st.lists(
                st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1.0)),
                min_size=columns,
                max_size=columns,
            ),
            min_size=1,
            max_size=4,
        )
    )
    .map(np.array)
)


def call(tool, **args):
    return {"tool": tool, "args": args, "error": False}


def greedy(sims):
    """The public code of the paper: the best pair first."""
    left, total = sims.copy(), 0.0
    while left.size and left.max() > 0.0:
        i, j = np.unravel_index(left.argmax(), left.shape)
        total += left[i, j]
        left = np.delete(np.delete(left, i, 0), j, 1)
    return total


def best(sims):
    """Every one-to-one pairing, tried."""
    n, m = sims.shape
    wide = sims if n <= m else sims.T
    rows = range(min(n, m))
    columns = itertools.permutations(range(max(n, m)), min(n, m))
    return max(sum(wide[i, j] for i, j in zip(rows, c, strict=True)) for c in columns)


def test_similarity_by_hand():
    wanted = call("send", to="ada", text="hi")
    assert similarity(call("send", to="ada", text="hi"), wanted) == 1.0
    assert similarity(call("send", text="hi", to="ada"), wanted) == 1.0
    assert similarity(call("send", to="ada"), wanted) == (1 + 1 / 2 + 1) / 4
    assert similarity(call("send", to="ada", text="hi", cc="b"), wanted) == (1 + 2 / 3 + 2) / 4
    assert similarity(call("send"), wanted) == 1 / 4
    assert similarity(call("read", to="ada", text="hi"), wanted) == 0.0
    assert similarity(call(None), call(None)) == 0.0
    assert similarity(call("submit"), call("submit")) == 1.0


@pytest.mark.parametrize(
    ("given_", "wanted", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        ("1", 1, False),
        ([1, 2.0], [1.0, 2], True),
        ([2, 1], [1, 2], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}, True),
        (math.inf, math.inf, True),
        (None, None, True),
    ],
)
def test_values_are_equal_as_json(given_, wanted, same):
    assert (similarity(call("f", x=given_), call("f", x=wanted)) == 1.0) is same


@given(one=CALL, two=CALL)
def test_similarity_is_a_share(one, two):
    assert 0.0 <= similarity(one, two) <= 1.0
    assert similarity(one, one) == 1.0
    assert (similarity(one, two) == 0.0) == (one["tool"] != two["tool"])


@given(sims=SIMS)
def test_the_optimum(sims):
    """One to one, the best there is, so never below the greedy one; zeros are no pairs."""
    pairs = assignment(sims)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    assert pairs == sorted(pairs)
    total = sum(sims[pair] for pair in pairs)
    assert total == pytest.approx(best(sims), abs=1e-8)
    assert total >= greedy(sims) - 1e-8
    assert all(sims[pair] > 0.0 for pair in pairs)
    rewards = matched(sims)
    assert len(rewards) == len(sims)
    assert sum(rewards) == pytest.approx(total)
    assert all(r == 0.0 for i, r in enumerate(rewards) if i not in dict(pairs))


def test_where_greedy_is_not_enough():
    sims = np.array([[0.9, 0.8], [0.85, 0.0]])
    assert greedy(sims) == 0.9
    assert matched(sims) == [0.8, 0.85]


@settings(max_examples=40)
@given(sims=SIMS, data=st.data())
def test_the_order_of_the_reference_changes_no_total(sims, data):
    order = data.draw(st.permutations(range(sims.shape[1])))
    assert sum(matched(sims[:, order])) == pytest.approx(sum(matched(sims)), abs=1e-8)
    assert transported(sims[:, order]) == pytest.approx(transported(sims), abs=1e-8)


def test_ties_go_to_what_comes_first():
    assert assignment(np.ones((3, 2))) == [(0, 0), (1, 1)]
    assert assignment(np.ones((2, 3))) == [(0, 0), (1, 1)]
    assert assignment(np.array([[0.5, 0.75], [0.25, 0.5]])) == [(0, 0), (1, 1)]
    assert assignment(np.array([[1.0], [1.0], [1.0]])) == [(0, 0)]
    assert assignment(np.zeros((2, 2))) == []
    assert assignment(np.zeros((0, 2))) == []
    assert matched(np.zeros((2, 0))) == [0.0, 0.0]


@given(calls=CALLS)
def test_an_exact_copy_gives_one_a_call(calls):
    assert matched(similarities(calls, calls)) == [1.0] * len(calls)
    assert matched(similarities(calls[::-1], calls)) == [1.0] * len(calls)


@settings(max_examples=40)
@given(sims=SIMS)
def test_transport(sims):
    """All get at most 1 together, no more than the best there is, and more with less blur."""
    n, m = sims.shape
    rewards = transported(sims)
    assert len(rewards) == n
    assert all(0.0 <= r <= 1.0 / n + 1e-9 for r in rewards)
    if n == m:
        assert sum(rewards) <= best(sims) / n + 1e-9
    assert sum(transported(sims, reg=0.05)) >= sum(rewards) - 1e-6
    blurred = transported(sims, reg=1e6)
    assert blurred == pytest.approx((sims / (n * m)).sum(axis=1), abs=1e-5)


def test_transport_by_hand():
    """Two by two: T = [[a, 1/2 - a], [1/2 - a, a]], a / (1/2 - a) being exp of the gain / 2 reg."""
    ratio = math.exp((1.0 + 1.0 - 0.5 - 0.5) / 0.2)
    a = 0.5 * ratio / (1.0 + ratio)
    want = a * 1.0 + (0.5 - a) * 0.5
    assert transported(np.array([[1.0, 0.5], [0.5, 1.0]])) == pytest.approx([want, want])
    assert transported(np.zeros((0, 2))) == []
    assert transported(np.zeros((2, 0))) == [0.0, 0.0]
    with pytest.raises(ValueError, match="reg must be"):
        transported(np.ones((1, 1)), reg=0.0)


@pytest.mark.parametrize(
    ("said", "right", "score"),
    [
        ("Ada Miller", ["ada miller"], 1.0),
        ("the miller Ada", ["ada miller"], 0.8),
        ("ada ada", ["ada"], 2 / 3),
        ("berta", ["ada"], 0.0),
        ("berta", ["ada", "Berta."], 1.0),
        ("", ["ada"], 0.0),
        ("ada", [], 0.0),
        ("", [""], 0.0),
    ],
)
def test_answer_score(said, right, score):
    assert answer_score(said, right) == pytest.approx(score)


def look(reference):
    def find(name):
        if name != "reference" or reference is None:
            raise AttributeError(name)
        return lambda: reference

    return find


def values(reference, turns):
    signal = Match()
    signal.hear(None, "task", {"calls": []}, look(reference))
    signal.begin(OK)
    found = [signal.value(OK)]
    for calls in turns:
        signal.hear("go", "reply", {"calls": calls}, look(reference))
        found.append(signal.value(OK))
    return found


@given(reference=st.lists(CALL, min_size=1, max_size=4), turns=st.lists(CALLS, max_size=4))
def test_the_potential_is_the_optimum_over_all_calls_so_far(reference, turns):
    found = values(reference, turns)
    assert found[0] == 0.0
    assert all(0.0 <= a <= b <= 1.0 for a, b in itertools.pairwise(found))
    for t in range(1, len(found)):
        calls = list(itertools.chain(*turns[:t]))
        want = sum(matched(similarities(calls, reference))) / len(reference)
        assert found[t] == pytest.approx(want, abs=1e-8)


@given(reference=st.lists(CALL, min_size=1, max_size=4), turns=st.lists(CALLS, max_size=3))
def test_the_order_of_the_reference_changes_no_value(reference, turns):
    assert values(reference[::-1], turns) == pytest.approx(values(reference, turns), abs=1e-8)


@given(tools=st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), data=st.data())
def test_calls_beyond_those_that_are_wanted_add_nothing(tools, data):
    """Each tool counts as often as it is wanted, made in any order, in surplus, and again."""
    made = data.draw(st.lists(st.sampled_from("abcde"), max_size=8))
    found = values([call(tool) for tool in tools], [[call(tool)] for tool in made])
    for turn, value in enumerate(found):
        shared = sum(min(tools.count(t), made[:turn].count(t)) for t in set(tools))
        assert value == pytest.approx(shared / len(tools))


@given(reference=st.lists(CALL, min_size=1, max_size=4), extra=CALLS, data=st.data())
def test_surplus_adds_nothing(reference, extra, data):
    """Once all is matched; and a call made again adds nothing if it was wanted once."""
    order = data.draw(st.permutations(reference))
    found = values(reference, [order, extra, extra])
    assert found[1:] == pytest.approx([1.0] * 3)
    once = values([call("send", a=1), call("read", a=1)], [[call("send", a=1)]] * 3)
    assert once == pytest.approx([0.0, 0.5, 0.5, 0.5])


@given(turn=st.lists(st.tuples(st.sampled_from(["submit", "send"]), VALUE, st.booleans())))
def test_what_a_turn_hands_in(turn):
    """The text of its last submission that was taken; that it tried is another question."""
    info = {"calls": [{"tool": t, "args": {"answer": a}, "error": e} for t, a, e in turn]}
    taken = [answer for tool, answer, error in turn if tool == "submit" and not error]
    assert handed_in(info) == (taken[-1] if taken and isinstance(taken[-1], str) else None)
    assert submits(info) == any(tool == "submit" for tool, *_ in turn)
    assert (handed_in({}), submits({})) == (None, False)


def test_failed_calls_and_submitting_do_not_count():
    failed = {"tool": "send", "args": {"a": 1}, "error": True}
    unread = {"tool": None, "args": {}, "error": True}
    reference = [call("send", a=1), call("submit", answer="x")]
    found = values(reference, [[failed, unread], [call("submit", answer="x")], [call("send", a=1)]])
    assert found == [0.0, 0.0, 0.0, 1.0]
    assert values(None, [[call("send")]]) == [None, None]
    assert values([call("submit")], [[call("submit")]]) == [None, None]


def test_foreign_turns_have_no_calls():
    signal = Match()
    signal.hear(None, 0, {}, look([call("send")]))
    signal.hear(1, 0, {}, look(None))
    assert signal.value(OK) == 0.0
    with pytest.raises(ValueError, match="gone"):
        signal.value(Verdict(math.nan, False, {}, status="no_verdict", reason="gone"))


def test_without_scipy(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "headway\[rewards\]"'):
        Match()
