"""Alarms: scripted runs that go wrong in known ways, and runs that do not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.agents.credit import advantages, contributions
from headway.agents.monitor import (
    Goodhart,
    Monitor,
    failed_variance,
    goodhart_stop,
    moments,
    occupancy,
    projection,
    shares,
)
from headway.agents.trajectory import Trajectory, Turn

FIGURES = st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0)), min_size=1, max_size=25)


def trajectory(won, paid, *, progress=0.0, length=4, **given):
    """An episode of one turn."""
    turn = Turn("a", "b", float(won), {"odd": float(paid)}, progress)
    return Trajectory(
        task_id="t",
        group=0,
        prompt="go",
        ids=np.arange(length, dtype=np.int32),
        mask=np.ones(length, dtype=np.bool_),
        logp=np.zeros(length, dtype=np.float32),
        turn=np.zeros(length, dtype=np.int32),
        turns=[turn],
        progress=0.0,
        success=bool(won),
        **given,
    )


def observe(monitor, groups, moved=1.0):
    found = advantages(groups, "final", gamma=1.0)
    return monitor.observe(groups, found, contributions(groups, "final", gamma=1.0), moved)


def failing(spread, progress=0.0):
    """A group in which all fail, and are paid differently."""
    return [trajectory(False, x * spread, progress=progress) for x in (-1.0, 1.0)]


def test_a_channel_that_leads_while_all_fail_is_an_alarm():
    """From the first full window on, and not before."""
    monitor = Monitor(window=4)
    for update in range(8):
        row = observe(monitor, [failing(0.1), failing(0.1)])
        assert len(row["alarms"]) == (update >= 3)
        assert row["variance"] == {"odd": pytest.approx(0.01)}
        assert row["share"] == {"base": 0.0, "odd": 1.0} and row["zero"] == 0.0
    assert "'odd' makes 100% of the advantages" in row["alarms"][0]


@pytest.mark.parametrize(
    "script",
    [
        lambda update: [failing(0.5**update)],
        lambda update: [failing(0.1, progress=0.05 * update)],
        lambda update: [failing(0.1), [trajectory(i < update, 0.0) for i in range(8)]],
        lambda update: [[trajectory(True, 0.1), trajectory(False, 0.0)]],
        lambda update: [failing(0.01), [trajectory(True, 0.0), trajectory(False, 0.0)]],
        lambda update: [[trajectory(False, 0.1)]],
    ],
    ids=["decays", "progress", "success", "mixed", "outcome leads", "no group"],
)
def test_what_is_no_dark_room(script):
    """The signal is being mastered, the task is being learnt, or the outcome has the say."""
    monitor = Monitor(window=8)
    for update in range(8):
        row = observe(monitor, script(update), moved=0.5**update)
    assert row["alarms"] == []


def test_updates_that_stay_large_on_small_advantages():
    """What was annealed away comes back through an optimiser that divides by its size."""
    for moved, loud in ((lambda u: 1.0, True), (lambda u: 0.8**u, False)):
        monitor = Monitor(window=8)
        for update in range(8):
            row = observe(monitor, [failing(0.8**update)], moved(update))
        assert any("updates did not" in alarm for alarm in row["alarms"]) == loud


def test_length_that_pays_is_an_alarm():
    rng = np.random.default_rng(0)
    for slope, loud in ((0.1, True), (-0.1, False), (0.0, False)):
        monitor = Monitor(window=10)
        for _ in range(10):
            group = [
                trajectory(
                    False, slope * n + 0.1 * rng.normal(), length=int(n), progress=rng.random()
                )
                for n in rng.integers(1, 30, 8)
            ]
            row = observe(monitor, [group])
        assert any("length: 'odd'" in alarm for alarm in row["alarms"]) == loud
        assert row["length"]["base"] is None and abs(row["length"]["odd"]) <= 1.0 + 1e-12


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 30)), min_size=30, max_size=40))
def test_the_correlation_is_pearsons(rows):
    """Of one group; in several it is that of the differences from the group's means."""
    group = [trajectory(False, paid, length=length) for paid, length in rows]
    shifted = [trajectory(False, paid + 5.0, length=length + 7) for paid, length in rows]
    monitor = Monitor(window=4)
    observe(monitor, [group, shifted])
    paid, length = np.array(rows).T
    if np.std(paid) > 1e-3 and np.std(length) > 0.0:
        wanted = np.corrcoef(paid, length)[0, 1]
        assert monitor.lengths()["odd"] == pytest.approx(wanted, abs=1e-6)


def test_few_trajectories_have_no_correlation():
    monitor = Monitor(window=4)
    for count in (29, 1):
        row = observe(monitor, [[trajectory(False, n, length=n + 1) for n in range(count)]])
        assert row["length"] == {"base": None, "odd": None}
    assert Monitor().lengths() == {}


def test_figures_by_hand():
    groups = [
        [trajectory(False, 0.0), trajectory(False, 1.0), trajectory(False, 9.0, ended="died")],
        [trajectory(False, 0.0), trajectory(False, 0.2)],
        [trajectory(True, 0.0), trajectory(False, 5.0)],
        [trajectory(False, 3.0)],
    ]
    assert failed_variance(groups) == {"odd": pytest.approx((0.25 + 0.01) / 2)}
    assert failed_variance(groups[2:]) == {}
    parts = {"base": [[np.array([1.0, -1.0])]], "odd": [[np.array([3.0, -3.0])]]}
    assert shares(parts) == {"base": 0.25, "odd": 0.75}
    assert shares({"base": [[np.zeros(2)]]}) == {"base": 0.0}
    found = moments([[trajectory(False, 0.0, length=2), trajectory(True, 1.0, length=4)], []])
    assert found == {"base": (0.5, 2.0, 1.0, 2), "odd": (0.5, 2.0, 1.0, 2)}


def test_nothing_scored_is_not_an_update():
    monitor = Monitor(window=4)
    row = observe(monitor, [[trajectory(False, 1.0, ended="died")]])
    assert row == {"zero": 1.0, "variance": {}, "share": {}, "length": {}, "alarms": []}
    assert not monitor.seen
    with pytest.raises(ValueError, match=r"moved must be a number in \[0, inf\)"):
        observe(monitor, [failing(1.0)], moved=math.nan)
    for window in (3, 5, 2):
        with pytest.raises(ValueError, match="window"):
            Monitor(window)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9), st.integers(0, 8))
def test_a_resumed_monitor_says_the_same(spreads, cut):
    """Through JSON, at any update."""
    whole, first = Monitor(window=4), Monitor(window=4)
    said = [observe(whole, [failing(x)]) for x in spreads]
    for x in spreads[:cut]:
        observe(first, [failing(x)])
    second = Monitor(window=4)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.seen == first.seen
    assert [observe(second, [failing(x)]) for x in spreads[cut:]] == said[cut:]
    with pytest.raises(ValueError, match="window must be 6, got 4"):
        Monitor(window=6).load_state_dict(first.state_dict())


# Goodhart


def test_a_proxy_that_rises_while_its_sense_falls():
    """At the third evaluation in a row that is more than 0.02 below the best."""
    held = [0.1, 0.3, 0.5, 0.49, 0.47, 0.46, 0.45, 0.9]
    watch = Goodhart()
    said = [watch.observe(0.1 * at, value) for at, value in enumerate(held)]
    assert said == [False] * 6 + [True] * 2
    assert watch.best == 2 and watch.stopped
    again = Goodhart()
    again.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    assert again.observe(9.0, 9.0) and again.best == 2


def test_a_fall_that_is_short_or_small_or_shared():
    for proxy, held in (
        ([0, 1, 2, 3, 4, 5], [0.5, 0.4, 0.4, 0.49, 0.4, 0.4]),
        ([0, 1, 2, 3, 4, 5], [0.5, 0.485, 0.485, 0.485, 0.485, 0.485]),
        ([5, 4, 4, 4, 4, 4], [0.5, 0.4, 0.4, 0.4, 0.4, 0.4]),
    ):
        watch = Goodhart()
        assert not any(watch.observe(*pair) for pair in zip(proxy, held, strict=True))
    watch = Goodhart(delta=0.0, patience=1)
    assert [watch.observe(p, h) for p, h in ((0.0, 1.0), (0.1, 1.0), (0.1, 0.999))][-1]


@given(FIGURES, st.floats(0.1, 3.0), st.floats(-1.0, 1.0), st.integers(1, 4))
def test_it_never_speaks_where_the_proxy_is_the_measure(figures, slope, shift, patience):
    watch = Goodhart(delta=0.01, patience=patience)
    assert not any(watch.observe(slope * held + shift, held) for _, held in figures)


@given(FIGURES, st.integers(1, 4))
def test_the_best_is_never_after_the_alarm(figures, patience):
    watch = Goodhart(patience=patience)
    said = [watch.observe(*pair) for pair in figures]
    until = said.index(True) if True in said else len(figures)
    assert watch.best == int(np.argmax([held for _, held in figures][:until]))
    assert all(said[until:]) and not any(said[:until])


def test_goodhart_refuses_what_is_no_figure():
    watch = Goodhart()
    assert watch.best is None
    with pytest.raises(ValueError, match="held_out must be a number"):
        watch.observe(0.0, math.nan)
    for wrong in ({"delta": -0.1}, {"patience": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Goodhart(**wrong)


def problem(seed, states=3, actions=2, gamma=0.9):
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(states), (states, actions))
    start = rng.dirichlet(np.ones(states))

    def policy():
        return rng.dirichlet(np.ones(actions), states)

    return chances, start, policy, rng, gamma


@given(st.integers(0, 10**6))
def test_occupancies_are_returns(seed):
    """Against value iteration; and all differences of them are in the projection."""
    chances, start, policy, rng, gamma = problem(seed)
    reward, one, other = rng.normal(size=(3, 2)), policy(), policy()
    value = np.zeros(3)
    for _ in range(400):
        value = (one * (reward + gamma * chances @ value)).sum(1)
    visits = occupancy(one, chances, start, gamma)
    assert visits.sum() == pytest.approx(10.0)
    assert (visits * reward).sum() == pytest.approx(start @ value)
    span = projection(chances, gamma)
    step = (occupancy(other, chances, start, gamma) - visits).reshape(-1)
    np.testing.assert_allclose(span @ span, span, atol=1e-9)
    np.testing.assert_allclose(span @ step, step, atol=1e-8)
    assert np.trace(span) == pytest.approx(3.0)


@given(st.integers(0, 10**6), st.floats(0.05, 1.4))
def test_a_step_that_is_let_pass_helps_whatever_is_near_the_proxy(seed, theta):
    chances, start, policy, rng, gamma = problem(seed)
    proxy = rng.normal(size=(3, 2))
    span = projection(chances, gamma)
    seen = span @ proxy.reshape(-1)
    aside = span @ rng.normal(size=6)
    aside -= seen * (aside @ seen) / (seen @ seen)
    near = seen / np.linalg.norm(seen) + math.tan(theta) * aside / np.linalg.norm(aside)
    for _ in range(10):
        now, after = (occupancy(policy(), chances, start, gamma) for _ in range(2))
        if not goodhart_stop(now, after, proxy, theta, chances, gamma):
            assert (after - now).reshape(-1) @ near >= -1e-9
        climbs = ((after - now) * proxy).sum()
        if abs(climbs) > 1e-9:
            assert goodhart_stop(now, after, proxy, 0.0, chances, gamma) == (climbs < 0.0)
    assert goodhart_stop(now, now, proxy, theta, chances, gamma)


def test_a_step_straight_up_is_let_pass():
    """Two states apart, two actions: the steepest step is only stopped at a right angle."""
    chances = np.zeros((1, 2, 1))
    chances[:] = 1.0
    start, proxy = np.ones(1), np.array([[1.0, 0.0]])
    now, after = (occupancy(np.array([[p, 1.0 - p]]), chances, start, 0.5) for p in (0.4, 0.6))
    for theta in (0.0, 0.7, 1.5):
        assert not goodhart_stop(now, after, proxy, theta, chances, 0.5)
        assert goodhart_stop(after, now, proxy, theta, chances, 0.5)
    with pytest.raises(ValueError, match="theta"):
        goodhart_stop(now, after, proxy, 2.0, chances, 0.5)
    for call in (
        lambda: occupancy(np.ones((1, 2)) / 2, chances, start, 1.0),
        lambda: projection(chances, 1.0),
    ):
        with pytest.raises(ValueError, match=r"gamma must be a number in \(0, 1\)"):
            call()
