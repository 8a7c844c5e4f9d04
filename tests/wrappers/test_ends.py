"""A price that only successes pay, and a bonus that only later progress earns."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.wrappers import LateReward, TurnCost, TurnCostReward
from headway.wrappers.ends import LONG

GAMMAS = st.one_of(st.just(1.0), st.floats(0.05, 1.0))
PHI = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
PRICES = {"cost": st.floats(0.001, 0.9), "cap": st.floats(0.001, 0.999)}


def channel(turns, name):
    return [record["channels"][name] for *_, record in turns[1:]]


def returned(turns, gamma):
    return sum(gamma**t * reward for t, (reward, *_) in enumerate(turns[1:]))


def ended(Script, turns, success, **rest):
    """An episode of so many turns that pays 1.0 for success."""
    bases = [0.0] * (turns - 1) + [float(success)]
    return Script([0.0] * (turns + 1), success=success, bases=bases, attempted=True, **rest)


@given(data=st.data(), turns=st.integers(1, 40), success=st.booleans(), **PRICES)
def test_only_successes_pay_for_their_turns(Script, play, data, turns, success, cost, cap):
    """Once, at the end, and never the whole of what they earned."""
    end = data.draw(st.sampled_from(["terminated", "truncated", "both"]))
    env = TurnCostReward(ended(Script, turns, success, end=end), cost=cost, cap=cap)
    for _ in range(2):
        *before, last = channel(play(env), "turncost")
        assert before == [0.0] * (turns - 1)
        assert last == (-min(cost * turns, cap) if success else 0.0)
        assert last > -1.0


@given(turns=st.integers(1, 40), other=st.integers(1, 40), gamma=GAMMAS, **PRICES)
def test_success_stays_better_than_failure(Script, play, turns, other, gamma, cost, cap):
    """In discounted return, however long the success and however short the failure."""
    good, bad = (
        returned(play(TurnCostReward(ended(Script, n, s), cost=cost, cap=cap)), gamma)
        for n, s in ((turns, True), (other, False))
    )
    assert good >= gamma ** (turns - 1) * (1.0 - cap) * (1 - 1e-12) > 0.0 == bad


@given(turns=st.integers(1, 40), gamma=GAMMAS, **PRICES)
def test_of_two_successes_the_shorter_is_better(Script, play, turns, gamma, cost, cap):
    short, long = (
        returned(play(TurnCostReward(ended(Script, n, True), cost=cost, cap=cap)), gamma)
        for n in (turns, turns + 1)
    )
    assert long <= short
    if cost * (turns + 1) <= cap:
        assert long < short


def test_an_end_without_a_verdict_is_free(Script, play):
    turns = play(TurnCostReward(Script([0.0, 0.5, None], success=True)))
    assert channel(turns, "turncost") == [0.0, 0.0]


def test_the_price_is_due_at_the_end(verdict):
    """Not on a successful state that is not handed in yet."""
    cost = TurnCost("turncost", cost=0.25, cap=0.9)
    cost.begin(verdict(0.0))
    states = (verdict(0.0), verdict(1.0, success=True))
    assert [cost.step(*states, end) for end in ("no", "no", "terminated")] == [0.0, 0.0, -0.75]


@given(phis=st.lists(PHI, min_size=2, max_size=16), attempted=st.booleans())
def test_the_bonus_is_for_progress_in_the_second_half(Script, play, phis, attempted):
    """All or nothing, at the end: something beyond all before, on a turn of the second half."""
    env = LateReward(Script(phis, attempted=attempted), bonus=0.25)
    for _ in range(2):
        *before, last = channel(play(env), "late")
        turns = len(phis) - 1
        late = []
        for t in range(turns):
            known = [phi for phi in phis[: t + 1] if phi is not None]
            rose = phis[t + 1] is not None and known and phis[t + 1] > max(known)
            late.append(rose and 2 * t >= turns)
        earned = turns >= LONG and any(late) and attempted and phis[-1] is not None
        assert before == [0.0] * (turns - 1)
        assert last == (0.25 if earned else 0.0)


@pytest.mark.parametrize(
    ("phis", "earned"),
    [
        ([0.0] * 5 + [1.0] * 4, True),  # on turn 4 of 8
        ([0.0] * 4 + [1.0] * 5, False),  # on turn 3 of 8
        ([0.0] * 7 + [1.0], False),  # 7 turns
        ([0.0, 0.5, *[0.5] * 5, 0.0, 0.5], False),  # undone, and done again late
        ([0.0, 0.5, *[0.5] * 5, 0.0, 0.6], True),
    ],
)
def test_the_bonus_by_hand(Script, play, phis, earned):
    assert channel(play(LateReward(Script(phis, attempted=True))), "late")[-1] == 0.25 * earned
    assert channel(play(LateReward(Script(phis))), "late")[-1] == 0.0
    free = LateReward(Script(phis, attempted=True, violations=[1] * len(phis)), gate="clean")
    assert channel(play(free), "late")[-1] == 0.0


def test_the_bonus_needs_a_verdict_and_its_own_episode(Script, play):
    """Without a verdict the gate is closed, even one that asks for nothing to be broken."""
    env = LateReward(Script([0.0] * LONG + [1.0]), gate="clean")
    assert channel(play(env), "late")[-1] == 0.25
    env.unwrapped.__init__([1.0] * (LONG + 1))
    assert channel(play(env), "late")[-1] == 0.0
    env.unwrapped.__init__([0.0] * LONG + [1.0, None])
    assert channel(play(env), "late")[-1] == 0.0


def test_what_rose_goes_with_the_state(Script):
    env, fresh = (LateReward(Script([0.0] * 6 + [1.0] * 4, attempted=True)) for _ in range(2))
    env.reset(), fresh.reset()
    for _ in range(7):
        env.step("go")
    headway.set_state(fresh, json.loads(json.dumps(headway.get_state(env))))
    for one in (env, fresh):
        assert [one.step("go")[1] for _ in range(2)] == [0.0, 0.25]


@given(gamma=GAMMAS)
def test_the_bonus_is_bounded_by_its_first_turn(Script, play, gamma):
    env = LateReward(Script([0.0] * LONG + [1.0], attempted=True), bonus=0.5)
    assert returned(play(env), gamma) == pytest.approx(env.layer.bound(gamma).high)


@pytest.mark.parametrize(
    ("wrapper", "kwargs", "message"),
    [
        (TurnCostReward, {"cost": 0}, r"cost must be a number in \(0, 1\), got 0"),
        (TurnCostReward, {"cap": 1.0}, r"cap must be a number in \(0, 1\), got 1.0"),
        (LateReward, {"bonus": 1}, r"bonus must be a number in \(0, 1\), got 1"),
        (LateReward, {"gate": "succes"}, "gate must be one of .* did you mean 'success'"),
        (LateReward, {"potential": "x"}, "potential must be one of"),
    ],
)
def test_bad_arguments(Script, wrapper, kwargs, message):
    with pytest.raises(ValueError, match=message):
        wrapper(Script(), **kwargs)
