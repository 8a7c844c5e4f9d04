"""The best so far, losses only, differences: sums that no number of turns can raise."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.wrappers import ClippedReward, DeltaReward, NoveltyReward, ProgressReward
from headway.wrappers import WatermarkReward as Best
from headway.wrappers.transforms import WINDOW

GAMMAS = st.one_of(st.just(1.0), st.floats(0.05, 1.0))
PHIS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.999, 1.0]), min_size=2, max_size=8)


def channel(turns, name):
    """What a channel paid on each turn, the reset left out."""
    return [record["channels"][name] for *_, record in turns[1:]]


def discounted(amounts, gamma):
    return sum(gamma**t * x for t, x in enumerate(amounts))


@given(data=st.data(), c=st.floats(0.01, 0.99))
def test_a_watermark_pays_what_was_never_reached_before(Script, play, scripts, data, c):
    script = data.draw(scripts())
    env = Best(Script(**script), c=c)
    paid = channel(play(env), "watermark")
    assert channel(play(env), "watermark") == paid
    best, expected = None, []
    for phi in script["phis"]:
        rise = 0.0 if phi is None or best is None else max(0.0, phi - best)
        expected.append(c * rise)
        best = phi if best is None else best if phi is None else max(best, phi)
    assert paid == expected[1 : len(paid) + 1]
    known = [phi for phi in script["phis"][: len(paid) + 1] if phi is not None]
    assert min(paid) >= 0.0
    assert sum(paid) == pytest.approx(c * (max(known) - known[0]) if known else 0.0, abs=1e-9)


@given(phis=PHIS, gamma=GAMMAS, at=st.integers(0, 6), by=st.integers(1, 4))
def test_putting_a_rise_off_gains_nothing(Script, play, phis, gamma, at, by):
    """Discounted, a rise is worth what its turn is: at most ``c``, on the first turn of all."""
    at = min(at, len(phis) - 1)
    late = [*phis[: at + 1], *[phis[at]] * by, *phis[at + 1 :]]
    soon, later = (
        discounted(channel(play(Best(Script(p), c=0.5)), "watermark"), gamma) for p in (phis, late)
    )
    assert later <= soon + 1e-12 <= 0.5 + 1e-9
    if gamma < 0.99 and max(phis[at:]) > max(phis[: at + 1]) and soon > 1e-6:
        assert later < soon
    at_once = channel(play(Best(Script([0.0, 1.0, 0.0]), c=0.5)), "watermark")
    assert discounted(at_once, gamma) == 0.5 == Best(Script(), c=0.5).layer.bound(gamma).high


@given(phis=PHIS, data=st.data())
def test_the_order_below_the_maximum_does_not_matter(Script, play, phis, data):
    """Any order has the same sum; one with the same running maximum the same amounts."""
    first, *rest = phis
    other = [first, *data.draw(st.permutations(rest))]
    mine, theirs = (channel(play(Best(Script(p))), "watermark") for p in (phis, other))
    assert sum(mine) == pytest.approx(sum(theirs), abs=1e-12)
    running = [list(itertools.accumulate(p, max)) for p in (phis, other)]
    if running[0] == running[1]:
        assert mine == theirs


@given(times=st.integers(1, 30), level=st.floats(0.1, 1.0))
def test_going_up_and_down_pays_once(Script, play, times, level):
    phis = [0.0, level, *[0.0, level] * times]
    paid = channel(play(Best(Script(phis), c=0.5)), "watermark")
    assert paid == [0.5 * level, *[0.0] * (2 * times)]


def test_a_watermark_of_another_potential(Script, play):
    """By its name, which is also its key; where the task has none of it nothing is paid."""
    turns = play(Best(Script([0.0, 0.5, 1.0]), potential="information"))
    assert [r["phi"] for *_, r in turns] == [{"information": x} for x in (0.0, 0.5, 1.0)]
    assert channel(turns, "watermark") == [0.25, 0.25]
    turns = play(Best(Script([0.0, 0.5, 1.0]), potential="milestones"))
    assert [r["phi"] for *_, r in turns] == [{}, {}, {}]
    assert channel(turns, "watermark") == [0.0, 0.0]


def test_clipping_by_hand(Script, play):
    """Amounts 0.25, -0.125, 0.375 against 0.3, weight 2."""
    env = ProgressReward(Script([0.0, 0.5, 0.25, 1.0], bases=[0.0, 0.0, 1.0]), gamma=1.0)
    turns = play(ClippedReward(env, eta=0.3, alpha=2.0))
    assert channel(turns, "progress") == pytest.approx([-0.1, -0.85, 0.0])
    assert [r["channels_raw"]["progress"] for *_, r in turns[1:]] == [0.25, -0.125, 0.375]


@given(data=st.data(), eta=st.one_of(st.none(), st.floats(-1, 1)), episodes=st.integers(1, 3))
def test_clipped_channels_never_pay(Script, play, scripts, data, eta, episodes):
    """So no episode returns more than its outcome, and one more turn never raises the return."""
    script = data.draw(scripts())
    env = ClippedReward(ProgressReward(Script(**script), gamma=0.9), eta=eta, q=0.5)
    for _ in range(episodes):
        turns = play(env)
        paid = channel(turns, "progress")
        assert max(paid) <= 0.0
        assert sum(r for r, *_ in turns) <= sum(script["bases"][: len(paid)]) + 1e-9
        if eta is not None:
            raw = [r["channels_raw"]["progress"] for *_, r in turns[1:]]
            assert paid == [0.1 * min(x - eta, 0.0) for x in raw]


def test_the_quantile_is_of_earlier_episodes(Script, play):
    """Fixed within an episode; the first one has no bad turns yet."""
    env = ClippedReward(ProgressReward(Script([0.0, 0.2, 0.6, 0.5]), gamma=1.0), alpha=1.0, q=0.5)
    assert channel(play(env), "progress") == [0.0, 0.0, 0.0]
    median = pytest.approx([0.0, 0.0, -0.15])  # of 0.1, 0.2, -0.05
    assert channel(play(env), "progress") == median
    fresh = ClippedReward(ProgressReward(Script([0.0, 0.2, 0.6, 0.5]), gamma=1.0), alpha=1.0, q=0.5)
    fresh.reset()
    headway.set_state(fresh, json.loads(json.dumps(headway.get_state(env))))
    assert channel(play(fresh), "progress") == median
    env.unwrapped.__init__([0.0, 0.4, 0.2, 0.2, 0.0])
    assert channel(play(env), "progress") == pytest.approx([0.0, -0.2, -0.1, -0.2])  # against 0.1
    # The median of twice 0.1, 0.2, -0.05 and once 0.2, -0.1, 0, -0.1 is 0.
    assert channel(play(env), "progress") == pytest.approx([0.0, -0.1, 0.0, -0.1])
    least, most = (
        ClippedReward(ProgressReward(Script([0.0, 0.2, 0.6, 0.5]), gamma=1.0), alpha=1.0, q=q)
        for q in (0.0, 1.0)
    )
    play(least), play(most)
    assert channel(play(least), "progress") == [0.0, 0.0, 0.0]
    assert channel(play(most), "progress") == pytest.approx([-0.1, 0.0, -0.25])


def test_old_amounts_are_forgotten(Script, play):
    env = ClippedReward(ProgressReward(Script([0.0, *[1.0] * (WINDOW + 5)]), gamma=1.0))
    play(env)
    assert env.layer.seen == {"progress": [0.0] * WINDOW}


@given(data=st.data(), gamma=GAMMAS, alpha=st.floats(0.1, 2))
def test_delta_telescopes(Script, play, scripts, data, gamma, alpha):
    """To the first score; and after turn t, to the score of turn t, counted from the next turn."""
    script = data.draw(scripts())
    env = DeltaReward(ProgressReward(Script(**script), gamma=0.9), gamma=gamma, alpha=alpha)
    for _ in range(2):
        turns = play(env)
        paid, raw = channel(turns, "progress"), [r["channels_raw"]["progress"] for *_, r in turns]
        scores = raw[1:]
        assert paid[0] == 0.0
        if len(scores) == 1:
            continue
        assert discounted(paid, gamma) == pytest.approx(alpha * gamma * scores[0], abs=1e-9)
        for t in range(len(scores) - 1):
            later = discounted(paid[t + 1 :], gamma)
            assert later == pytest.approx(alpha * scores[t], abs=1e-9)


def test_delta_by_hand(Script, play):
    """Scores 0.25, -0.125, 0.375, 0: the published form, one turn late."""
    env = ProgressReward(Script([0.0, 0.5, 0.25, 1.0, 1.0]), gamma=1.0)
    paid = channel(play(DeltaReward(env, gamma=1.0, alpha=2.0)), "progress")
    assert paid == pytest.approx([0.0, 2 * (0.25 + 0.125), 2 * (-0.125 - 0.375), 2 * 0.375])
    two = DeltaReward(ProgressReward(Script([0.0, 0.5, 1.0]), gamma=1.0), gamma=0.9, alpha=2.0)
    assert channel(play(two), "progress") == [0.0, 0.5]
    one = DeltaReward(ProgressReward(Script([0.0, 1.0]), gamma=1.0), gamma=0.9)
    assert channel(play(one), "progress") == [0.0]


@given(gamma=GAMMAS, turns=st.integers(1, 60), both=st.booleans())
def test_pay_for_every_turn_is_bounded_however_many_there_are(Script, play, gamma, turns, both):
    """Around a channel that pays for each of them: 0.01 for a new state, every turn."""
    env = NoveltyReward(Script([0.0] * (turns + 1)), cap=0.9)
    assert sum(channel(play(env), "novelty")) == pytest.approx(0.01 * turns)
    if both:
        env = ClippedReward(env, eta=0.005, alpha=1.0)
    env = DeltaReward(env, gamma=gamma, alpha=1.0)
    assert discounted(channel(play(env), "novelty"), gamma) <= 0.01 + 1e-9


@pytest.mark.parametrize(
    ("wrapper", "kwargs", "message"),
    [
        (Best, {"c": 1.0}, r"c must be a number in \(0, 1\), got 1.0"),
        (Best, {"potential": "check"}, "potential must be one of .* did you mean 'checks'"),
        (ClippedReward, {"alpha": 0}, r"alpha must be a number in \(0, inf\), got 0"),
        (ClippedReward, {"eta": "0"}, r"eta must be a number in \(-inf, inf\), got '0'"),
        (ClippedReward, {"q": 1.1}, r"q must be a number in \[0, 1\], got 1.1"),
        (DeltaReward, {"gamma": 0.0}, r"gamma must be a number in \(0, 1\], got 0.0"),
        (DeltaReward, {"gamma": 1, "alpha": -1}, r"alpha must be a number in \(0, inf\), got -1"),
    ],
)
def test_bad_arguments(Script, wrapper, kwargs, message):
    with pytest.raises(ValueError, match=message):
        wrapper(Script(), **kwargs)
    with pytest.raises(TypeError, match="gamma"):
        DeltaReward(Script())
