"""Placebos: the same amounts, or the same sum, without what they are paid for."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.wrappers import (
    Bound,
    GatedReward,
    Placebo,
    PlaceboReward,
    PotentialShaping,
    ProgressReward,
    ScheduledReward,
    WatermarkReward,
)
from headway.wrappers.transforms import WINDOW

KINDS = st.sampled_from([("random", None), ("flip", 0.5), ("shuffle_turns", None)])


def channel(turns, name="progress", kind="channels"):
    return [record[kind][name] for *_, record in turns[1:]]


def two(env):
    """Two channels."""
    return PotentialShaping(ProgressReward(env, gamma=0.9), gamma=0.9, on_truncation="keep")


@given(data=st.data(), seed=st.integers(0, 99))
def test_no_flip_is_no_change(Script, play, scripts, data, seed):
    """Bit for bit, whatever it drew."""
    script = data.draw(scripts())
    env = PlaceboReward(two(Script(**script)), kind="flip", p=0.0, seed=seed)
    turns, free = play(env), play(two(Script(**script)))
    assert [repr(turn) for turn in turns] == [repr(turn) for turn in free]
    assert env.layer.keeps_optimum(0.9)
    assert not PlaceboReward(Script(), kind="flip", p=0.1).layer.keeps_optimum(0.9)


@given(data=st.data(), seed=st.integers(0, 99), p=st.sampled_from([0.3, 1.0]))
def test_a_flip_turns_signs(Script, play, scripts, data, seed, p):
    turns = play(PlaceboReward(two(Script(**data.draw(scripts()))), kind="flip", p=p, seed=seed))
    for name in ("progress", "potential"):
        for amount, raw in zip(
            channel(turns, name), channel(turns, name, "channels_raw"), strict=True
        ):
            assert amount == -raw or (p < 1.0 and amount == raw)
            assert repr(amount) != "-0.0"


def test_as_many_flips_as_asked_for(Script, play):
    """Of 4000 turns, within four standard deviations."""
    phis = [0.5 * (t % 2) for t in range(4001)]
    env = PlaceboReward(ProgressReward(Script(phis), gamma=1.0), kind="flip", p=0.3)
    turns = play(env)
    pairs = zip(channel(turns), channel(turns, kind="channels_raw"), strict=True)
    assert sum(paid != raw for paid, raw in pairs) == pytest.approx(1200, abs=4 * 29)


@given(phis=st.lists(st.floats(0, 1), min_size=3, max_size=9), last=st.floats(0, 1))
def test_random_pay_does_not_know_what_was_done(Script, play, phis, last):
    """Do something else on the last turn, and it pays the same: an amount of earlier turns."""
    turns, other = (
        play(PlaceboReward(ProgressReward(Script(p), gamma=1.0), kind="random"))
        for p in (phis, [*phis[:-1], last])
    )
    paid, raw = channel(turns), channel(turns, kind="channels_raw")
    assert paid == channel(other)
    assert paid[0] == 0.0
    for t in range(1, len(paid)):
        assert paid[t] in raw[:t]


def test_random_pay_is_as_often_as_much(Script, play):
    """The marginal, over many episodes, of each channel by itself."""
    env = WatermarkReward(Script([0.0, 0.25, 0.25, 1.0]), c=0.8)
    env = PlaceboReward(ProgressReward(env, gamma=1.0), kind="random")
    got, wanted = {"watermark": [], "progress": []}, {"watermark": [], "progress": []}
    for _ in range(1000):
        turns = play(env)
        for name in got:
            got[name] += channel(turns, name)
            wanted[name] += channel(turns, name, "channels_raw")
    for name in got:
        counts, true = Counter(got[name]), Counter(wanted[name])
        for amount in true:
            assert counts[amount] == pytest.approx(true[amount], abs=150)
        assert set(counts) == set(true)
        assert len(env.layer.seen[name]) == WINDOW


@given(data=st.data(), seed=st.integers(0, 99))
def test_shuffled_turns_keep_the_sum(Script, play, scripts, data, seed):
    """Paid at the end; the credit is the turns' own amounts, in some order."""
    env = PlaceboReward(two(Script(**data.draw(scripts()))), kind="shuffle_turns", seed=seed)
    for _ in range(2):
        turns = play(env)
        *_, (_, _, _, record) = turns
        assert all("credit" not in earlier for *_, earlier in turns[:-1])
        assert sorted(record["credit"]) == ["potential", "progress"]
        for name, credit in record["credit"].items():
            raw = channel(turns, name, "channels_raw")
            assert channel(turns, name) == [0.0] * (len(raw) - 1) + [pytest.approx(sum(raw))]
            assert sorted(credit) == sorted(raw)


def test_every_order_comes_up(Script, play):
    """Each of the 6 of three turns about as often, and no channel's order tells another's."""
    env = PlaceboReward(two(Script([0.0, 0.2, 0.3, 1.0])), kind="shuffle_turns")
    orders, pairs = Counter(), Counter()
    for _ in range(600):
        *_, (_, _, _, record) = play(env)
        credit = record["credit"]
        orders[tuple(credit["progress"])] += 1
        pairs[credit["progress"][0], credit["potential"][0]] += 1
    assert len(orders) == 6 and len(pairs) == 9
    assert min(orders.values()) > 60


@given(data=st.data(), kind=KINDS, seed=st.integers(0, 99))
def test_one_seed_one_stream(Script, play, scripts, data, kind, seed):
    script, (kind, p) = data.draw(scripts()), kind
    one, same = (PlaceboReward(two(Script(**script)), kind=kind, p=p, seed=seed) for _ in range(2))
    for _ in range(3):
        assert play(one) == play(same)


def test_another_seed_another_stream(Script, play):
    phis = [0.5 * (t % 2) for t in range(60)]
    paid = [
        channel(play(PlaceboReward(ProgressReward(Script(phis), gamma=1.0), **kwargs)))
        for kind in ({"kind": "flip", "p": 0.5}, {"kind": "random"})
        for kwargs in ({**kind, "seed": 0}, {**kind, "seed": 1})
    ]
    assert paid[0] != paid[1]
    assert paid[2] != paid[3]


def test_the_stream_goes_with_the_state(Script, play):
    """Past what is drawn ahead, in a stack that had another seed."""
    phis = [0.5 * (t % 2) for t in range(300)]
    env, other = (
        PlaceboReward(ProgressReward(Script(phis), gamma=1.0), kind="flip", p=0.5, seed=seed)
        for seed in (0, 1)
    )
    play(env), other.reset()
    headway.set_state(other, json.loads(json.dumps(headway.get_state(env))))
    assert channel(play(other)) == channel(play(env))


def test_the_amounts_so_far_go_with_the_state(Script):
    env, fresh = (
        PlaceboReward(ProgressReward(Script([0.0, 0.5, 1.0]), gamma=1.0), kind="shuffle_turns")
        for _ in range(2)
    )
    env.reset(), fresh.reset()
    env.step("go")
    headway.set_state(fresh, json.loads(json.dumps(headway.get_state(env))))
    assert fresh.step("go")[1] == env.step("go")[1] == 0.5


def test_a_sum_at_the_end_is_not_bounded_by_the_discounted_one():
    """Of -1 and then 1 the discounted sum is -0.1, and the sum at the end 0."""
    low, high, *_ = Placebo("shuffle_turns", None, 0).bound(Bound(-0.1, -0.1, -1.0, 1.0), 0.9)
    assert high == -low == pytest.approx(10 * 0.9**9)


@given(data=st.data())
def test_credit_is_of_what_is_paid(Script, play, scripts, data):
    """Channels go on around a placebo that shuffles, and have no part in it."""
    env = GatedReward(ProgressReward(Script(**data.draw(scripts())), gamma=1.0), gate="success")
    turns = play(WatermarkReward(PlaceboReward(env, kind="shuffle_turns")))
    *_, (_, _, _, record) = turns
    assert list(record["credit"]) == ["progress"]
    assert sum(record["credit"]["progress"]) == pytest.approx(sum(channel(turns)), abs=1e-9)


@pytest.mark.parametrize(
    ("around", "kwargs"),
    [
        (GatedReward, {"gate": "success"}),
        (ScheduledReward, {"steps": 3}),
        (PlaceboReward, {"kind": "flip", "p": 0.5}),
        (PlaceboReward, {"kind": "shuffle_turns", "seed": 1}),
    ],
)
def test_no_filter_around_a_shuffle(Script, around, kwargs):
    """What it paid would be changed, and the credit would not; a second one would write over it."""
    env = PlaceboReward(ProgressReward(Script(), gamma=1.0), kind="shuffle_turns")
    for inside in (env, WatermarkReward(env)):
        with pytest.raises(ValueError, match=r"no filter around it, got .* there; put it outermos"):
            around(inside, **kwargs)
    around(PlaceboReward(ProgressReward(Script(), gamma=1.0), kind="random"), **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"kind": "shufle_turns"}, "kind must be one of .* did you mean 'shuffle_turns'"),
        ({"kind": "flip"}, "p belongs to kind 'flip' and to no other, got None for 'flip'"),
        ({"kind": "random", "p": 0.5}, "p belongs to kind 'flip' .*, got 0.5 for 'random'"),
        ({"kind": "flip", "p": 1.5}, r"p must be a number in \[0, 1\], got 1.5"),
        ({"kind": "random", "seed": -1}, "seed must be an int of at least 0, got -1"),
    ],
)
def test_bad_arguments(Script, kwargs, message):
    with pytest.raises(ValueError, match=message):
        PlaceboReward(Script(), **kwargs)
