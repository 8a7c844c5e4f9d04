"""Rewards of whole episodes: staged ones, and a judge's scores beside verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers import prompt_weight, renorm, staged, stratify

COST = st.integers(0, 400).map(lambda n: n / 4)
SCORE = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-10.0, 10.0))


@given(stages=st.integers(1, 6), data=st.data(), base=COST, ref=COST)
def test_staged(stages, data, base, ref):
    """Any pass is at least any failure; more stages and less cost are never worse."""
    one, two = sorted(data.draw(st.floats(0.0, stages)) for _ in range(2))
    fast, slow = sorted(data.draw(COST) for _ in range(2))

    def pay(stage, passed, cost):
        return staged(stage, stages, passed, cost=cost, base=base, ref=ref)

    assert 0.0 <= pay(one, False, fast) <= pay(two, False, slow) <= 0.5
    assert 0.5 <= pay(one, True, slow) <= pay(two, True, fast) <= 1.0
    assert pay(one, False, fast) == 0.5 * one / stages
    assert pay(one, True, base + 1.0) == 0.5
    if base <= ref:
        assert pay(one, True, fast) == 0.5
    else:
        assert pay(one, True, ref) == 1.0
        assert pay(one, True, (base + ref) / 2.0) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("stage", {"stage": 3}),
        ("stage", {"stage": math.nan}),
        ("stages", {"stages": 0, "stage": 0}),
        ("cost", {"cost": -1.0}),
        ("base", {"base": math.inf}),
        ("ref", {"ref": math.nan}),
    ],
)
def test_staged_refuses(name, kwargs):
    given_ = {"stage": 1, "stages": 2, "passed": False, "cost": 1.0, "base": 2.0, "ref": 1.0}
    with pytest.raises(ValueError, match=f"{name} must be"):
        staged(**(given_ | kwargs))


@st.composite
def groups(draw):
    scores = draw(st.lists(SCORE, min_size=1, max_size=8))
    passed = draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    return scores, passed


@given(group=groups(), fail=st.floats(0.0, 0.49), success=st.floats(0.0, 0.49))
def test_strata(group, fail, success):
    """Every pass above every failure; the judge's order inside a band; the band is kept."""
    scores, passed = group
    rewards = stratify(scores, passed, fail=fail, success=success)
    bands = {True: (1.0 - success, 1.0 + success), False: (-fail, fail)}
    for r, good in zip(rewards, passed, strict=True):
        low, high = bands[good]
        assert low - 1e-12 <= r <= high + 1e-12
    for s, r, good in zip(scores, rewards, passed, strict=True):
        for other, x, fine in zip(scores, rewards, passed, strict=True):
            if good and not fine:
                assert r > x
            if good is fine and s <= other:
                assert r <= x


@given(scores=st.lists(SCORE, min_size=1, max_size=8), fail=st.floats(0.0, 0.49))
def test_a_group_of_failures_stays_in_its_band(scores, fail):
    """However far apart the judge puts them: no more than ``2 * fail``, and around 0."""
    rewards = stratify(scores, [False] * len(scores), fail=fail)
    assert max(rewards) - min(rewards) <= 2.0 * fail + 1e-12
    assert max(map(abs, rewards)) <= fail + 1e-12


def test_strata_by_hand():
    scores, passed = [1.0, 3.0, 2.0, 9.0, 7.0], [False, False, False, True, True]
    assert stratify(scores, passed) == pytest.approx([-0.05, 0.05, 0.0, 1.05, 0.95])
    assert stratify([4.0], [True]) == [1.0]
    assert stratify([4.0, 4.0], [False, False]) == [0.0, 0.0]
    assert stratify([], []) == []
    with pytest.raises(ValueError, match=r"fail \+ success must be below 1"):
        stratify([], [], fail=0.5, success=0.5)
    with pytest.raises(ValueError, match="scores must be"):
        stratify([math.nan], [True])
    with pytest.raises(ValueError, match="zip"):
        stratify([1.0], [True, False])


@given(scores=st.lists(SCORE, min_size=1, max_size=8), mean=st.floats(0.0, 10.0))
def test_prompt_weight(scores, mean):
    """In its range, whatever the order, and greater where scores are further apart."""
    weight = prompt_weight(scores, mean)
    assert 0.4 <= weight <= 3.0
    assert prompt_weight(scores[::-1], mean) == pytest.approx(weight)
    wider = [2.0 * s for s in scores]
    assert prompt_weight(wider, mean) >= weight - 1e-12
    assert prompt_weight(scores, float(np.std(scores))) == pytest.approx(1.7)
    assert prompt_weight(scores, 10.0, steep=1e9) in (0.4, pytest.approx(1.7))


def test_prompt_weight_by_hand():
    want = 0.4 + 2.6 / (1.0 + math.exp(-6.0 * (0.5 - 0.25)))
    assert prompt_weight([0.0, 1.0], 0.25) == pytest.approx(want)
    for kwargs in ({"low": -1.0}, {"low": 2.0, "high": 1.0}, {"steep": 0.0}, {"mean": -1.0}):
        with pytest.raises(ValueError, match="must be a number in"):
            prompt_weight(**({"scores": [1.0], "mean": 0.0} | kwargs))
    with pytest.raises(ValueError, match="at least one"):
        prompt_weight([], 0.0)


@given(process=st.lists(st.floats(0.0, 1.0), max_size=6), outcome=st.sampled_from([0.0, 1.0]))
def test_renorm(process, outcome):
    """The sign is the outcome's, the order and the distances are the judge's."""
    found = renorm(process, outcome)
    assert all(-1.0 <= x <= 1.0 for x in found)
    assert all(x >= 0.0 if outcome else x <= 0.0 for x in found)
    assert [x + 1.0 - outcome for x in found] == pytest.approx(process)
    for process_, outcome_ in (([1.5], 1.0), ([0.5], 2.0), ([math.nan], 0.0)):
        with pytest.raises(ValueError, match="must be a number in"):
            renorm(process_, outcome_)
