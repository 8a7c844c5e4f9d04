"""Differences of a potential: what they sum to, what they are bounded by, what cannot be farmed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wrappers import Diff, PotentialShaping, ProgressReward

GAMMAS = st.one_of(st.just(1.0), st.floats(0.05, 1.0))
RULES = st.sampled_from(["zero", "keep"])
ENDS = st.sampled_from(["terminated", "truncated", "both"])
PHI = st.floats(0.0, 1.0)


def expected(phis, ended, *, gamma, scale, terminal, on_truncation):
    """What each turn pays, from the definition, with the last measurement carried."""
    known, out = [], []
    strict = terminal == on_truncation == "zero"
    for phi in phis:
        known.append(phi if phi is not None else known[-1] if known else None)
    for t, (was, now) in enumerate(itertools.pairwise(known)):
        last = t == len(known) - 2
        rule = {"terminated": terminal, "truncated": on_truncation}[ended]
        counts_as = 0.0 if last and rule == "zero" else now
        if was is None and now is not None and strict:
            was = 0.0
        out.append(0.0 if was is None else scale * (gamma * counts_as - was))
    return out


@given(data=st.data(), gamma=GAMMAS, scale=st.floats(0.01, 0.99), terminal=RULES, cut=RULES)
def test_sums_telescope(Script, play, scripts, data, gamma, scale, terminal, cut):
    """From the first measurement s on: gamma**T times the end's potential, less gamma**s phi_s.

    Or, with both ends at 0, less phi_0, which is 0 where it was not measured.
    """
    script = data.draw(scripts())
    env = PotentialShaping(
        Script(**script), gamma=gamma, on_truncation=cut, terminal=terminal, beta=scale
    )
    turns = play(env)[1:]
    ended = "truncated" if script["end"] == "truncated" else "terminated"
    paid = [record["channels"]["potential"] for *_, record in turns]
    rules = {"gamma": gamma, "scale": scale, "terminal": terminal, "on_truncation": cut}
    assert paid == pytest.approx(expected(script["phis"], ended, **rules), abs=1e-12)

    phis, total = script["phis"], sum(gamma**t * x for t, x in enumerate(paid))
    measured = [t for t, phi in enumerate(phis) if phi is not None and t < len(paid)]
    if not measured:
        assert total == 0.0
        return
    first, last = measured[0], [phi for phi in phis if phi is not None][-1]
    if {"terminated": terminal, "truncated": cut}[ended] == "zero":
        last = 0.0
    start = (phis[0] or 0.0) if terminal == cut == "zero" else gamma**first * phis[first]
    want = scale * (gamma ** len(paid) * last - start)
    assert total == pytest.approx(want, abs=1e-9)


@given(data=st.data(), gamma=GAMMAS, c=st.floats(0.01, 0.99))
def test_progress_is_kept_at_every_end(Script, play, scripts, data, gamma, c):
    script = data.draw(scripts(broken=False))
    turns = play(ProgressReward(Script(**script), gamma=gamma, c=c))[1:]
    total = sum(gamma**t * r["channels"]["progress"] for t, (*_, r) in enumerate(turns))
    phis = script["phis"]
    assert total == pytest.approx(c * (gamma ** len(turns) * phis[-1] - phis[0]), abs=1e-9)


@given(data=st.data(), gamma=GAMMAS)
def test_strict_shaping_sums_to_minus_the_start_whatever_is_done(
    Script, play, scripts, data, gamma
):
    """Whatever fails to be measured as well: without a first potential the sum is 0."""
    script = data.draw(scripts())
    turns = play(PotentialShaping(Script(**script), gamma=gamma, on_truncation="zero"))[1:]
    total = sum(gamma**t * r["channels"]["potential"] for t, (*_, r) in enumerate(turns))
    assert total == pytest.approx(-(script["phis"][0] or 0.0), abs=1e-9)


@given(phi=PHI, turns=st.integers(1, 9), beta=st.floats(0.01, 5.0), end=ENDS)
def test_a_potential_that_stands_still_pays_at_the_end_alone(Script, play, phi, turns, beta, end):
    """Undiscounted: nothing on the way, and there ``-beta * phi``."""
    env = Script([phi] * (turns + 1), end)
    env = PotentialShaping(env, gamma=1.0, on_truncation="zero", beta=beta)
    *way, last = [record["channels"]["potential"] for *_, record in play(env)[1:]]
    assert way == [0.0] * (turns - 1)
    assert last == pytest.approx(-beta * phi, abs=1e-12)


def test_known_values(Script, play):
    """By hand: 0.2, 0.6, 0.9, gamma 0.9."""
    script = {"phis": [0.2, 0.6, 0.9], "end": "terminated"}
    shaping = play(PotentialShaping(Script(**script), gamma=0.9, on_truncation="keep"))
    assert [r for r, *_ in shaping] == pytest.approx([0.0, 0.9 * 0.6 - 0.2, -0.6])
    progress = play(ProgressReward(Script(**script), gamma=0.9))
    assert [r for r, *_ in progress] == pytest.approx([0.0, 0.5 * 0.34, 0.5 * (0.81 - 0.6)])
    keep = {**script, "end": "truncated"}
    shaping = play(PotentialShaping(Script(**keep), gamma=0.9, on_truncation="keep"))
    assert [r for r, *_ in shaping] == pytest.approx([0.0, 0.34, 0.81 - 0.6])


def test_success_on_the_last_turn_is_no_cut(Script, play):
    """Terminated and truncated at once, as Gymnasium's TimeLimit gives it, is terminated."""
    env = PotentialShaping(
        Script([0.0, 0.5, 1.0], "both", success=True), gamma=0.9, on_truncation="keep"
    )
    *_, (reward, terminated, truncated, _) = play(env)
    assert (reward, terminated, truncated) == (pytest.approx(-0.5), True, True)


@given(data=st.data(), gamma=GAMMAS)
def test_without_a_verdict_the_last_potential_stands(Script, play, data, gamma):
    """One lost measurement changes nothing but when the change is paid."""
    lost = play(ProgressReward(Script([0.25, None, 0.75]), gamma=gamma, c=0.5))[1:]
    assert lost[0][0] == pytest.approx(0.5 * (gamma * 0.25 - 0.25))
    assert lost[0][3]["phi"] == {"checks": 0.25}
    assert lost[1][0] == pytest.approx(0.5 * (gamma * 0.75 - 0.25))
    assert lost[1][3]["phi"] == {"checks": 0.75}
    end = play(PotentialShaping(Script([0.0, 0.5, None]), gamma=gamma, on_truncation="zero"))
    assert end[-1][0] == pytest.approx(-0.5)
    assert end[-1][3]["status"] == "no_verdict"


def test_nothing_is_paid_before_the_first_measurement(Script, play):
    turns = play(ProgressReward(Script([None, None, 0.5, 0.75]), gamma=1.0, c=0.5))
    assert [r for r, *_ in turns] == [0.0, 0.0, 0.0, 0.125]
    assert [r["phi"] for *_, r in turns] == [{}, {}, {"checks": 0.5}, {"checks": 0.75}]
    assert [r["status"] for *_, r in turns] == ["no_verdict", "no_verdict", "ok", "ok"]
    strict = play(PotentialShaping(Script([None, None, 0.5]), gamma=1.0, on_truncation="zero"))
    assert [r for r, *_ in strict] == [0.0, 0.0, 0.0]
    strict = play(PotentialShaping(Script([None, 0.5, None]), gamma=0.5, on_truncation="zero"))
    assert [r for r, *_ in strict] == [0.0, 0.25, -0.5]


@given(phis=st.lists(st.floats(0, 1), min_size=1, max_size=8), gamma=GAMMAS, rule=RULES)
def test_loops_pay_nothing(verdict, phis, gamma, rule):
    """Back where one was: exactly nothing at gamma 1, at most nothing below."""
    diff = Diff("d", gamma=gamma, scale=1.0, terminal=rule, on_truncation=rule)
    loop = [*phis, phis[0]]
    diff.begin(verdict(loop[0]))
    steps = [diff.step(verdict(a), verdict(b), "no") for a, b in itertools.pairwise(loop)]
    total = sum(gamma**t * x for t, x in enumerate(steps))
    assert total <= 1e-12
    if gamma == 1.0:
        assert total == pytest.approx(0.0, abs=1e-12)


@given(gamma=GAMMAS, times=st.integers(2, 50), level=st.floats(0.1, 0.9))
def test_farms_pay_no_more_than_once(Script, play, gamma, times, level):
    """Do and undo a subgoal, or stand still near the goal, as often as one likes."""

    def total(phis):
        turns = play(ProgressReward(Script(phis, "truncated"), gamma=gamma))
        return sum(gamma**t * reward for t, (reward, *_) in enumerate(turns[1:]))

    once = total([0.0, level])
    assert total([0.0, level, *[0.0, level] * times]) <= once + 1e-12
    assert total([0.0, *[level] * times]) <= once + 1e-12
    assert total([level] * times) <= 1e-12


@given(
    own=GAMMAS,
    learner=GAMMAS,
    scale=st.floats(0.1, 2),
    phis=st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=12),
    terminal=RULES,
    cut=RULES,
    ended=st.sampled_from(["terminated", "truncated"]),
)
def test_bounds_hold(verdict, own, learner, scale, phis, terminal, cut, ended):
    """Under any learner's discount, not only the channel's own."""
    diff = Diff("d", gamma=own, scale=scale, terminal=terminal, on_truncation=cut)
    steps = amounts(diff, phis, ended, verdict)
    low, high, least, most = diff.bound(learner)
    assert low - 1e-9 <= discounted(steps, learner) <= high + 1e-9
    assert least - 1e-9 <= min(steps) <= max(steps) <= most + 1e-9


@pytest.mark.parametrize("rule", ["zero", "keep"])
@pytest.mark.parametrize(("own", "learner"), [(1.0, 1.0), (0.9, 0.9), (0.9, 0.6), (0.6, 0.9)])
def test_bounds_are_reached(verdict, own, learner, rule):
    """Some episode comes as near as one likes: no looser bound would say more."""
    diff = Diff("d", gamma=own, scale=2.0, terminal=rule, on_truncation=rule)
    low, high, least, most = diff.bound(learner)
    episodes = [[1.0, 0.0], [0.0, 1.0], [1.0, *[1.0] * 300, 0.0], [0.0, *[1.0] * 300, 0.0]]
    paid = [amounts(diff, phis, "terminated", verdict) for phis in episodes]
    sums = [discounted(steps, learner) for steps in paid]
    assert (min(sums), max(sums)) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
    steps = [*itertools.chain(*paid)]
    assert (min(steps), max(steps)) == (pytest.approx(least), pytest.approx(most))


def test_standing_still_is_priceless_to_an_undiscounted_learner(verdict):
    diff = Diff("d", gamma=0.9, scale=1.0, terminal="zero", on_truncation="zero")
    assert diff.bound(1.0) == (-math.inf, 0.0, -1.0, 0.9)
    with pytest.raises(ValueError, match=r"gamma must be a number in \(0, 1\], got 1.5"):
        diff.bound(1.5)


def amounts(diff, phis, ended, verdict):
    """What each turn of an episode with these potentials pays."""
    diff.begin(verdict(phis[0]))
    ends = ["no"] * (len(phis) - 2) + [ended]
    pairs = zip(phis, phis[1:], ends, strict=False)
    return [diff.step(verdict(a), verdict(b), e) for a, b, e in pairs]


def discounted(steps, gamma):
    return sum(gamma**t * x for t, x in enumerate(steps))


@pytest.mark.parametrize("rule", ["zero", "keep"])
def test_best_policies(verdict, rule):
    """80 random finite-horizon MDPs: "zero" keeps every set of best actions, "keep" few."""
    changed = sum(changes_optimum(seed, rule, verdict) for seed in range(80))
    diff = Diff("d", gamma=1.0, scale=1.0, terminal=rule, on_truncation=rule)
    assert diff.keeps_optimum(1.0) == (rule == "zero")
    assert changed == 0 if rule == "zero" else changed > 60


def changes_optimum(seed, rule, verdict, states=5, actions=3, horizon=12):
    """Whether shaping changes a set of best actions; the last state ends the episode."""
    rng = np.random.default_rng(seed)
    gamma = (0.9, 1.0)[seed % 2]
    moves = rng.dirichlet(np.full(states, 0.3), (states, actions))
    reward = rng.random((states, actions))
    phis = rng.random(states)
    diff = Diff("d", gamma=gamma, scale=1.0, terminal=rule, on_truncation=rule)

    def shaped(state, to, ended):
        diff.begin(verdict(phis[state]))
        return diff.step(verdict(phis[state]), verdict(phis[to]), ended)

    def best(with_shaping):
        value, sets = np.zeros(states), []
        for left in range(horizon):
            cut = "truncated" if left == 0 else "no"
            extra = np.zeros((states, states))
            if with_shaping:
                for state in range(states):
                    for to in range(states):
                        ended = "terminated" if to == states - 1 else cut
                        extra[state, to] = shaped(state, to, ended)
            later = np.where(np.arange(states) == states - 1, 0.0, value)
            q = reward + np.einsum("sat,st->sa", moves, extra + gamma * later)
            value = q.max(1)
            sets.append(q >= value[:, None] - 1e-9)
        return np.array(sets)[:, :-1]

    return bool((best(True) != best(False)).any())


def test_flags_and_state(verdict):
    """What a channel says of itself, and what it remembers."""
    for terminal in ("zero", "keep"):
        for cut in ("zero", "keep"):
            diff = Diff("d", gamma=0.9, scale=1.0, terminal=terminal, on_truncation=cut)
            assert diff.keeps_optimum(0.9) == (terminal == cut == "zero")
            assert not diff.keeps_optimum(1.0)
    diff.begin(verdict(0.25))
    twin = Diff("d", gamma=0.9, scale=1.0, terminal=terminal, on_truncation=cut)
    twin.load_state_dict(diff.state_dict())
    step = (verdict(0.25), verdict(0.75), "no")
    assert twin.step(*step) == diff.step(*step) == pytest.approx(0.9 * 0.75 - 0.25)
    with pytest.raises(ValueError, match=r"state must have keys \['phi'\], got \['k'\]"):
        twin.load_state_dict({"k": 1})


GOOD = {"gamma": 0.9, "on_truncation": "zero"}


@pytest.mark.parametrize(
    ("wrapper", "kwargs", "message"),
    [
        (ProgressReward, {"gamma": 1.01}, r"gamma must be a number in \(0, 1\], got 1.01"),
        (ProgressReward, {"gamma": 0}, r"gamma must be a number in \(0, 1\], got 0"),
        (ProgressReward, {"gamma": math.nan}, "gamma must be a number"),
        (ProgressReward, {"gamma": True}, "gamma must be a number"),
        (ProgressReward, {"gamma": "1"}, "got '1'"),
        (ProgressReward, {"gamma": 1, "c": 1}, r"c must be a number in \(0, 1\), got 1"),
        (ProgressReward, {"gamma": 1, "c": 0.0}, r"c must be a number in \(0, 1\), got 0.0"),
        (ProgressReward, {"gamma": 1, "name": ""}, "name must be a text"),
        (PotentialShaping, {**GOOD, "beta": math.inf}, r"beta must be a number in \(0, 1e6\]"),
        (PotentialShaping, {**GOOD, "beta": 0}, r"beta must be a number in \(0, 1e6\], got 0"),
        (PotentialShaping, {**GOOD, "gamma": -1}, r"gamma must be a number in \(0, 1\], got -1"),
        (PotentialShaping, {**GOOD, "on_truncation": "zerro"}, "did you mean 'zero'"),
        (PotentialShaping, {**GOOD, "terminal": "kep"}, "terminal must be one of .* 'keep'"),
        (PotentialShaping, {**GOOD, "on_truncation": None}, "on_truncation must be one of"),
    ],
)
def test_bad_arguments(Script, wrapper, kwargs, message):
    with pytest.raises(ValueError, match=message):
        wrapper(Script(), **kwargs)


def test_what_would_go_unnoticed_has_no_default(Script):
    with pytest.raises(TypeError, match="gamma"):
        ProgressReward(Script())
    with pytest.raises(TypeError, match="on_truncation"):
        PotentialShaping(Script(), gamma=1.0)
