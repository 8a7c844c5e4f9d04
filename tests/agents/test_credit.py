"""Credit: the formula beside a slow one, each method by its own laws, rules that hold in all."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents.credit import (
    ESTIMATORS,
    KEYS,
    Estimator,
    Term,
    advantages,
    contributions,
    measured,
    signal,
    tokens,
)
from headway.agents.placebo import PLACEBOS, placebo
from headway.agents.routing import discounted, gate_group, saturation, trust
from headway.agents.trajectory import Trajectory, Turn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "credit.md"

CHANNELS = ("progress", "information", "match", "turncost", "rubric", "value")
"""What some row of the registry asks for."""

LINEAR = [
    row.name
    for row in ESTIMATORS.values()
    if not row.batch_std
    and all(t.scale == "none" and t.ret in ("episode", "togo", "step") for t in row.terms)
]
"""Estimators to which a sum of rewards is a sum of advantages."""


def trajectory(base, channels=None, *, curve=None, task="t", dead=(), **given):
    """An episode with so many turns as amounts in ``base``; two tokens a turn, one between."""
    count = len(base)
    curve = [0.0, *np.cumsum(base)] if curve is None else curve
    turns = [
        Turn(
            action=f"do {t}",
            observation=f"done {t}",
            base=float(base[t]),
            channels={name: float(x[t]) for name, x in (channels or {}).items()},
            progress=float(curve[t + 1]),
            ok=frozenset(range(round(np.nan_to_num(curve[t + 1]) * 6))),
            start=curve[t],
            calls=1,
        )
        for t in range(count)
    ]
    turn = np.repeat(np.arange(count), 3)
    turn[2::3] = -1
    turn[np.isin(turn, dead)] = -1
    given = {"success": sum(base) > 0.0, "progress": curve[0], **given}
    return Trajectory(
        task_id=task,
        group=0,
        prompt="go",
        ids=np.arange(3 * count, dtype=np.int32),
        mask=turn >= 0,
        logp=np.where(turn >= 0, -1.0, 0.0).astype(np.float32),
        turn=turn.astype(np.int32),
        turns=turns,
        **given,
    )


@st.composite
def episodes(draw, task="t"):
    """Of one to four turns, at levels of progress that are often met, sometimes not scored."""
    count = draw(st.integers(1, 4))
    amounts = st.lists(st.integers(-8, 8).map(lambda x: x / 8), min_size=count, max_size=count)
    won = draw(st.booleans())
    ended = "died" if draw(st.integers(0, 9)) == 9 else "terminated"
    return trajectory(
        [0.0] * (count - 1) + [float(won)],
        {name: draw(amounts) for name in CHANNELS},
        curve=[0.0, *(draw(st.integers(0, 2)) / 6 for _ in range(count))],
        dead=(count - 1,) if draw(st.integers(0, 9)) == 9 else (),
        task=task,
        ended=ended,
    )


GROUPS = st.lists(st.lists(episodes(), min_size=1, max_size=4), min_size=1, max_size=2)
FEW = settings(max_examples=50)
DENSE = {"allow_std_on_dense": True}


def close(found, wanted):
    """Whether nested advantages agree."""
    assert len(found) == len(wanted)
    for some, others in zip(found, wanted, strict=True):
        assert len(some) == len(others)
        for one, other in zip(some, others, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


# The formula


def slow(groups, term, gamma):
    """One term by its definition: loops, one number at a time."""
    out = [[np.zeros(len(t.turns)) for t in group] for group in groups]
    rows = []
    for g, group in enumerate(groups):
        for i, one in enumerate(group):
            if measured(one) is None:
                continue
            paid = sum(one.rewards()[name] for name in term.channels)
            for t in range(len(one.turns)):
                live = bool((one.turn == t).any())
                rows.append((g, i, t, KEYS[term.key](one)[t], live, paid))
    members = {(g, i) for g, i, *_ in rows}
    values = {}
    for g, i, t, _, _, paid in rows:
        if term.order == "norm_then_ret" or term.ret == "step":
            values[g, i, t] = paid[t]
        elif term.ret == "episode":
            values[g, i, t] = paid.sum()
        else:
            values[g, i, t] = sum(gamma ** (k - t) * paid[k] for k in range(t, len(paid)))

    def pick(g, key, without=None):
        found = defaultdict(list)
        for h, j, u, other, live, _ in rows:
            if live and h == g and j != without and (key is None or other == key[0]):
                found[j].append(values[h, j, u])
        if term.members == "trajectories":
            return [np.mean(x) for x in found.values()]
        return [v for x in found.values() for v in x]

    off = {}
    for g, i, t, key, _, _ in rows:
        base = 0.0
        if term.centre == "mean":
            base = np.mean(pick(g, (key,)) or [0.0])
        elif term.centre == "loo":
            pooled = np.mean(pick(g, None, i) or [values[g, i, t]])
            others = pick(g, (key,), i)
            count = len({j for h, j, _, k, live, _ in rows if live and (h, k) == (g, key)} - {i})
            base = pooled
            if others:
                base = (count * np.mean(others) + term.prior * pooled) / (count + term.prior)
        off[g, i, t] = values[g, i, t] - base
        if abs(off[g, i, t]) < 1e-12:
            off[g, i, t] = 0.0
        if term.scale == "group_std":
            off[g, i, t] /= np.std(pick(g, (key,)) or [0.0]) + 1e-6
    if term.order == "norm_then_ret":
        live = {(g, i, t): float(alive) for g, i, t, _, alive, _ in rows}
        centred, off = {at: v * live[at] for at, v in off.items()}, {}
        for g, i, t, _, _, paid in rows:
            ahead = range(t, len(paid)) if term.ret == "togo" else range(len(paid))
            if term.ret == "step":
                ahead = [t]
            weight = gamma if term.ret == "togo" else 1.0
            off[g, i, t] = sum(weight ** (k - t) * centred[g, i, k] for k in ahead)
    for g, i, t, _, alive, _ in rows:
        if alive and sum(h == g for h, _ in members) > 1:
            out[g][i][t] = term.weight * off[g, i, t]
    return out


TERMS = st.builds(
    Term,
    channels=st.sampled_from([("base",), ("base", "progress"), ("progress", "match")]),
    ret=st.sampled_from(["episode", "togo", "step"]),
    key=st.sampled_from(list(KEYS)[:5]),
    centre=st.sampled_from(["loo", "mean", "none"]),
    scale=st.sampled_from(["none", "group_std"]),
    order=st.sampled_from(["ret_then_norm", "norm_then_ret"]),
    members=st.sampled_from(["turns", "trajectories"]),
    prior=st.sampled_from([0.0, 2.0]),
    weight=st.sampled_from([1.0, -0.5]),
)


@given(GROUPS, TERMS, st.sampled_from([1.0, 0.5]))
@settings(max_examples=200)
def test_every_term_is_what_its_definition_says(groups, term, gamma):
    found = advantages(groups, Estimator("one", (term,), ""), gamma=gamma, **DENSE)
    close(found, slow(groups, term, gamma))


@given(GROUPS, st.sampled_from(list(ESTIMATORS)), st.sampled_from([1.0, 0.9]), st.data())
@settings(max_examples=120)
def test_rules_of_all_estimators(groups, name, gamma, data):
    """Unscored ones are as if not there, one alone gets 0, order is nothing, all is finite."""
    found = advantages(groups, name, gamma=gamma, **DENSE)
    orders = [data.draw(st.permutations(range(len(group)))) for group in groups]
    mixed = [[group[i] for i in order] for group, order in zip(groups, orders, strict=True)]
    again = advantages(mixed, name, gamma=gamma, **DENSE)
    close(again, [[a[i] for i in order] for a, order in zip(found, orders, strict=True)])
    kept = [[t for t in group if t.scored] for group in groups]
    without = iter(a for group in advantages(kept, name, gamma=gamma, **DENSE) for a in group)
    for group, part in zip(groups, found, strict=True):
        scored = sum(t.scored for t in group)
        for one, a in zip(group, part, strict=True):
            assert a.shape == (len(one.turns),) and a.dtype == np.float64 and np.isfinite(a).all()
            if one.scored:
                np.testing.assert_allclose(a, next(without), rtol=1e-9, atol=1e-9)
            if not one.scored or scored == 1:
                assert not a.any()
            silent = ~np.isin(np.arange(len(one.turns)), one.turn)
            assert not a[silent].any()


@given(
    st.sampled_from(
        ["outcome", "dr_grpo", "grpo", "final", "turn_index", "matchtir", "gdpo", "hero", "arena"]
    ),
    st.lists(st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3), min_size=2, max_size=5),
    st.integers(2, 7),
)
def test_no_spread_is_exactly_nothing(name, amounts, count):
    """Whatever rounding does to the mean of equal numbers, and whatever a tiny spread divides."""
    paid = dict(zip(CHANNELS, amounts * 3, strict=False))
    one = trajectory([0.0, 0.0, 0.7], paid, curve=[0.0, 0.1, 0.2, 0.3])
    found = advantages([[one] * count], name, gamma=0.9, **DENSE)
    assert not any(a.any() for a in found[0])
    assert signal(found) == [False]


@given(GROUPS, st.sampled_from(LINEAR), st.sampled_from([1.0, 0.9]))
@FEW
def test_contributions_sum_to_the_advantages(groups, name, gamma):
    parts = contributions(groups, name, gamma=gamma)
    assert next(iter(parts)) == "base"
    total = [
        [sum(part[g][i] for part in parts.values()) for i in range(len(group))]
        for g, group in enumerate(groups)
    ]
    close(advantages(groups, name, gamma=gamma), total)


@pytest.mark.parametrize("name", [n for n, rule in ESTIMATORS.items() if not rule.batch_std])
@given(GROUPS, GROUPS)
@settings(max_examples=6)
def test_groups_know_nothing_of_each_other(name, some, others):
    found = advantages([*some, *others], name, gamma=0.9, **DENSE)
    close(found[: len(some)], advantages(some, name, gamma=0.9, **DENSE))


def test_nothing_is_nothing():
    assert advantages([], gamma=1.0) == [] and advantages([[]], gamma=1.0) == [[]]
    died = trajectory([0.0, 1.0], ended="died")
    assert [a.tolist() for a in advantages([[died]], "igpo", gamma=1.0)[0]] == [[0.0, 0.0]]


def test_a_trajectory_in_two_groups_is_compared_in_each():
    one, two, three = (trajectory([x]) for x in (1.0, 0.0, 0.5))
    found = advantages([[one, two], [one, three]], "outcome", gamma=1.0)
    assert [[float(a[0]) for a in group] for group in found] == [[1.0, -1.0], [0.5, -0.5]]


def test_turns_without_a_token_pay_and_get_nothing():
    """A cut is a turn of nobody: it ends what came before, and is in no mean."""
    cut = trajectory([0.0, 1.0], dead=(1,))
    other = trajectory([0.0, 0.0])
    (found,) = advantages([[cut, other]], "turn_pooled", gamma=1.0)
    # Its one live turn earned 1, and the other's two turns are compared with that.
    assert [a.tolist() for a in found] == [[1.0, 0.0], [-1.0, -1.0]]
    (found,) = advantages([[trajectory([0.0], dead=(0,)), trajectory([1.0])]], "turn", gamma=1.0)
    assert [a.tolist() for a in found] == [[0.0], [0.0]]


def test_rewards_that_are_no_numbers_are_not_learnt_from():
    bad = trajectory([math.nan, 0.0], success=False)
    (found,) = advantages([[bad, trajectory([1.0]), trajectory([0.0])]], gamma=1.0)
    assert [a.tolist() for a in found] == [[0.0, 0.0], [1.0], [-1.0]]
    spoilt = trajectory([0.0, 0.0])
    spoilt.turns[0] = replace(spoilt.turns[0], unmeasured="judge: no answer")
    (found,) = advantages([[spoilt, trajectory([1.0]), trajectory([0.0])]], gamma=1.0)
    assert not found[0].any() and found[1].any()


def test_what_is_refused():
    group = [trajectory([1.0], {"progress": [0.1]}), trajectory([0.0], {"progress": [0.2]})]
    with pytest.raises(ValueError, match=r"estimator must be one of .* did you mean 'turn'"):
        advantages([group], "tern", gamma=1.0)
    with pytest.raises(ValueError, match=r"gamma must be a number in \(0, 1\], got 1\.1"):
        advantages([group], gamma=1.1)
    with pytest.raises(ValueError, match=r"channel 'information' must be paid .*'progress'"):
        advantages([group], "igpo", gamma=1.0)
    with pytest.raises(ValueError, match=r"a group must hold one task, got \['t', 'u'\]"):
        advantages([[*group, trajectory([1.0], task="u")]], gamma=1.0)
    for name in ("igpo_paper", "matchtir", "gdpo", "siop"):
        with pytest.raises(ValueError, match="allow_std_on_dense"):
            advantages([group], name, gamma=1.0)
    for name in ("grpo", "procredit_paper"):
        advantages([group], name, gamma=1.0)
    for wrong in (
        {"ret": "sum"},
        {"key": "state"},
        {"centre": "median"},
        {"scale": "std"},
        {"order": "ret"},
        {"members": "tokens"},
        {"prior": -1.0},
        {"weight": math.inf},
        {"gamma": 0.0},
        {"channels": "base"},
        {"channels": ()},
        {"ret": "rank", "order": "norm_then_ret"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong)) if len(wrong) == 1 else "order"):
            Term(**{"channels": ("base",), **wrong})


# What an advantage becomes


@given(episodes(), st.integers(0, 10**6))
def test_tokens_get_the_advantage_of_their_turn(one, seed):
    given = np.random.default_rng(seed).normal(size=len(one.turns))
    found = tokens(one, given)
    assert found.dtype == np.float32 and found.shape == one.ids.shape
    for at, value in enumerate(found):
        assert value == (np.float32(given[one.turn[at]]) if one.mask[at] else 0.0)
    with pytest.raises(ValueError, match=r"advantages must have shape \(\d,\)"):
        tokens(one, np.zeros(len(one.turns) + 1))


def test_signal_is_read_from_the_advantages():
    assert signal(
        [[np.zeros(2)], [np.zeros(1), np.array([0.0, -2e-8])], [], [np.array([1e-9])]]
    ) == [
        False,
        True,
        False,
        False,
    ]


# Methods, each by its own laws


def test_outcomes_by_hand():
    group = [trajectory([0.0, 1.0]), trajectory([0.0]), trajectory([0.0, 0.0, 0.0])]
    for name, won, lost in (
        ("outcome", 1.0, -0.5),
        ("rloo", 1.0, -0.5),
        ("dr_grpo", 2 / 3, -1 / 3),
        ("grpo", 2 / 3 / (math.sqrt(2) / 3 + 1e-6), -1 / 3 / (math.sqrt(2) / 3 + 1e-6)),
    ):
        (found,) = advantages([group], name, gamma=0.5)
        for a, value in zip(found, (won, lost, lost), strict=True):
            assert a == pytest.approx(np.full(len(a), value))


@given(GROUPS)
@FEW
def test_outcome_is_its_share_of_the_centred_outcome(groups):
    """Leave-one-out is ``G / (G - 1)`` times the difference from the mean, live or not."""
    live = [[t for t in g if t.scored and (t.turn >= 0).any()] for g in groups]
    mean, loo = (advantages(live, name, gamma=0.9) for name in ("dr_grpo", "outcome"))
    for some, others in zip(mean, loo, strict=True):
        factor = len(some) / max(1, len(some) - 1)
        for a, b in zip(some, others, strict=True):
            np.testing.assert_allclose(a * factor, b, atol=1e-12)


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=6), st.floats(-3.0, 1.0))
def test_a_deviation_takes_the_size_of_a_reward_away(amounts, power):
    """Where all fail: without it the advantages scale with the reward, with it they do not."""
    if np.std(amounts) < 0.1:
        return

    def size(name, scale):
        group = [trajectory([0.0], {"progress": [scale * x]}) for x in amounts]
        z = Term(("progress",), "episode", scale="group_std", members="trajectories")
        rule = Estimator("z", (z,), "") if name == "z" else name
        (found,) = advantages([group], rule, gamma=1.0, **DENSE)
        return np.array([a[0] for a in found])

    scale = 10.0**power
    np.testing.assert_allclose(size("final", scale), scale * size("final", 1.0), rtol=1e-6)
    np.testing.assert_allclose(size("z", scale), size("z", 1.0), rtol=2e-2)


@given(GROUPS)
@FEW
def test_procredit_pays_a_turn_what_it_adds(groups):
    """One turn's advantage less the next one's is what was paid between them."""
    for name in ("procredit", "procredit_paper"):
        for group, part in zip(groups, advantages(groups, name, gamma=1.0), strict=True):
            for one, a in zip(group, part, strict=True):
                alive = np.isin(np.arange(len(one.turns)), one.turn)
                if a.any() and alive.all():
                    paid = one.rewards()["progress"] + one.rewards()["base"]
                    np.testing.assert_allclose(a[:-1] - a[1:], paid[:-1], atol=1e-9)


@given(GROUPS)
@FEW
def test_procredit_without_its_turns_is_dr_grpo_on_the_sum(groups):
    rule = ESTIMATORS["procredit"]
    whole = Estimator("whole", rule.terms[:1], "")
    summed = [
        [
            replace(t, turns=[replace(x, base=x.base + x.channels["progress"]) for x in t.turns])
            for t in group
        ]
        for group in groups
    ]
    close(advantages(groups, whole, gamma=1.0), advantages(summed, "dr_grpo", gamma=1.0))


@given(GROUPS, st.booleans())
@FEW
def test_anchors_that_all_differ_leave_the_outcome(groups, std):
    """Then GiGPO is GRPO without its deviation; its steps always sum to 0 in a state."""
    rule = ESTIMATORS["gigpo"]
    apart = [
        [
            replace(t, turns=[replace(x, start=(i, at)) for at, x in enumerate(t.turns)])
            for i, t in enumerate(group)
        ]
        for group in groups
    ]
    close(advantages(apart, rule, gamma=0.95), advantages(apart, "dr_grpo", gamma=0.95))
    steps = advantages(groups, Estimator("steps", rule.terms[1:], ""), gamma=0.95)
    for group, part in zip(groups, steps, strict=True):
        sums = defaultdict(float)
        for one, a in zip(group, part, strict=True):
            for turn, value in zip(one.turns, a, strict=True):
                sums[turn.start] += value
        if sum(t.scored for t in group) > 1:
            assert max(map(abs, sums.values())) < 1e-9


@given(GROUPS)
@FEW
def test_information_that_says_nothing_leaves_the_outcome(groups):
    quiet = [
        [
            replace(t, turns=[replace(x, channels={"information": 0.0}) for x in t.turns])
            for t in group
        ]
        for group in groups
    ]
    close(advantages(quiet, "igpo", gamma=1.0), advantages(quiet, "outcome", gamma=1.0))
    close(advantages(quiet, "igpo_paper", gamma=1.0, **DENSE), advantages(quiet, "grpo", gamma=1.0))


def test_the_orders_of_igpo_differ_by_a_price_per_turn():
    """Every turn pays 0.1: returns first rewards going on, amounts first says nothing."""
    group = [trajectory([0.0] * n, {"information": [0.1] * n}) for n in (1, 3)]
    (first,) = advantages([group], "igpo", gamma=1.0)
    assert first[0] == pytest.approx([-0.1]) and first[1] == pytest.approx([0.2, 0.1, 0.0])
    (paper,) = advantages([group], "igpo_paper", gamma=1.0, **DENSE)
    assert not paper[0].any() and not paper[1].any()


@given(GROUPS, st.sampled_from([1.0, 0.9]))
@FEW
def test_shaping_telescopes(groups, gamma):
    """From each turn on it is worth what is kept at the end, less the progress it began with."""
    for end in ("keep", "zero"):
        term = Term((f"phi:{end}",), centre="none")
        found = advantages(groups, Estimator("phi", (term,), ""), gamma=gamma)
        for group, part in zip(groups, found, strict=True):
            for one, a in zip(group, part, strict=True):
                count = len(one.turns)
                left = one.curve[-1] if end == "keep" else 0.0
                wanted = gamma ** (count - np.arange(count)) * left - one.curve[:-1]
                if a.any():
                    alive = np.isin(np.arange(count), one.turn)
                    np.testing.assert_allclose(a[alive], wanted[alive], atol=1e-9)


def test_progress_that_was_never_measured_shapes_nothing():
    blind = trajectory([0.0, 0.0], curve=[math.nan, math.nan, 0.5])
    term = Term(("phi:keep",), "step", centre="none")
    (found,) = advantages([[blind, blind]], Estimator("phi", (term,), ""), gamma=0.5)
    assert found[0].tolist() == [0.0, 0.25]


@given(GROUPS, st.sampled_from(CHANNELS))
@FEW
def test_gdpo_gives_channels_one_size(groups, name):
    loud = [
        [
            replace(
                t,
                turns=[
                    replace(x, channels={**x.channels, name: 1000.0 * x.channels[name]})
                    for x in t.turns
                ],
            )
            for t in group
        ]
        for group in groups
    ]
    some, others = (advantages(g, "gdpo", gamma=1.0, **DENSE) for g in (groups, loud))
    for a, b in zip(some, others, strict=True):
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-2)


def test_siop_and_matchtir_by_hand():
    group = [
        trajectory([0.0, 1.0], {"match": [0.5, 0.0]}),
        trajectory([0.0, 0.0], {"match": [0.0, 0.5]}),
    ]
    amounts = np.array([[0.5, 1.0], [0.0, 0.5]])
    z = (amounts - 0.5) / (np.sqrt(0.125) + 1e-6)
    (found,) = advantages([group], "siop", gamma=1.0, **DENSE)
    np.testing.assert_allclose(found, np.cumsum(z[:, ::-1], 1)[:, ::-1])
    (found,) = advantages([group], "matchtir", gamma=0.9, **DENSE)
    # Episodes 1.5 and 0.5; from turn 0 on 1.4 and 0.45, from turn 1 on 1.0 and 0.5: all 1, -1.
    np.testing.assert_allclose(found, [[1.0, 1.0], [-1.0, -1.0]], atol=1e-4)


def tree(*paths):
    """Trajectories that do what the letters say, the outcome being whether the last is an x."""
    group = []
    for path in paths:
        one = trajectory([0.0] * (len(path) - 1) + [float(path[-1] == "x")])
        turns = [replace(x, action=c, observation=c) for x, c in zip(one.turns, path, strict=True)]
        group.append(replace(one, turns=turns))
    return group


@given(st.lists(st.text("abx", min_size=1, max_size=3), min_size=2, max_size=5))
def test_shared_turns_get_one_value_and_siblings_cancel(paths):
    group = tree(*paths)
    rule = Estimator("fork", ESTIMATORS["portool"].terms[1:], "")
    (found,) = advantages([group], rule, gamma=0.95)
    worth = {}
    for path, a in zip(paths, found, strict=True):
        for t, value in enumerate(a):
            assert worth.setdefault(path[: t + 1], value) == pytest.approx(value, abs=1e-12)
    sums, count = defaultdict(float), defaultdict(int)
    for node, value in worth.items():
        sums[node[:-1]] += value
        count[node[:-1]] += 1
    assert max(map(abs, sums.values())) < 1e-9
    assert all(abs(v) < 1e-12 for node, v in worth.items() if count[node[:-1]] == 1)


def test_a_fork_by_hand():
    """After a common first turn one wins at once, one a turn later, and one loses."""
    group = tree("ax", "abx", "ab")
    (found,) = advantages([group], "portool", gamma=0.5)
    # Behind b there is 0.5 * 1, behind x at once 1; all calls worked, which cancels.
    assert [a.tolist() for a in found] == [
        pytest.approx([1 / 3, 1 / 3 + 0.25]),
        pytest.approx([1 / 3, 1 / 3 - 0.25, 1 / 3]),
        pytest.approx([-2 / 3, -2 / 3 - 0.25]),
    ]
    refused = [replace(t, turns=list(t.turns)) for t in group]
    refused[0].turns[1] = replace(refused[0].turns[1], refused=1)
    (less,) = advantages([refused], "portool", gamma=0.5)
    assert (found[0] - less[0]).tolist() == pytest.approx([0.0, 0.05])


def test_trees_of_groups_are_apart():
    """What follows a turn in one group is worth nothing in another."""
    lost, won = tree("ab", "bb"), tree("ax", "bb")
    found = advantages([lost, won], "portool", gamma=1.0)
    assert not any(a.any() for a in found[0]) and found[1][0][0] > 0.5


def test_the_key_of_turn_credit():
    """Same progress by other checks is another place; back at the start is the start."""
    one = trajectory([0.0] * 4, curve=[0.0, 0.5, 0.5, 0.0, 0.5])
    one.turns[0] = replace(one.turns[0], ok=frozenset("a"))
    one.turns[1] = replace(one.turns[1], ok=frozenset("b"))
    one.turns[2] = replace(one.turns[2], ok=frozenset("z"))  # true from the start, as at reset
    first, a, b, back = KEYS["checks"](one)
    assert first == back and len({first, a, b}) == 3
    assert KEYS["stage"](one) == [0.0, 0.5, 0.5, 0.0]
    unknown = trajectory([0.0, 0.0], curve=[math.nan, 0.1 + 0.2, 0.3])
    assert KEYS["stage"](unknown) == [None, 0.3]


@given(GROUPS, st.sampled_from(["hero", "arena"]), st.integers(1, 5))
@FEW
def test_ranks_see_no_more_than_order(groups, name, power):
    """A judge's scale does not matter to ranks; in bands every success is above every failure."""
    found = advantages(groups, name, gamma=1.0)
    if name == "arena":
        bent = [
            [
                replace(
                    t,
                    turns=[
                        replace(
                            x,
                            channels={"rubric": math.exp(power * t.rewards()["rubric"].sum())}
                            if x is t.turns[-1]
                            else {"rubric": 0.0},
                        )
                        for x in t.turns
                    ],
                )
                for t in group
            ]
            for group in groups
        ]
        close(advantages(bent, name, gamma=1.0), found)
    for group, part in zip(groups, found, strict=True):
        rows = [
            (t.success, t.rewards()["rubric"].sum(), a[0])
            for t, a in zip(group, part, strict=True)
            if t.scored and 0 in t.turn
        ]
        if name == "arena" and len(rows) == len(group) > 1:
            assert sum(a for *_, a in rows) == pytest.approx(0.0, abs=1e-9)
        if name == "hero":
            for won, score, a in rows:
                for lost, other, b in rows:
                    if won > lost or (won == lost and score > other + 1e-6):
                        assert a > b
            if rows and not any(won for won, *_ in rows):
                count = max(2, sum(t.scored for t in group))
                spread = max(a for *_, a in rows) - min(a for *_, a in rows)
                assert spread <= 0.1 * count / (count - 1) + 1e-9


def test_arena_by_hand():
    group = [trajectory([0.0], {"rubric": [x]}) for x in (0.1, 0.9, 0.9, 0.2)]
    (found,) = advantages([group], "arena", gamma=1.0)
    # Below others: none, two and half of one, the same, one; of three.
    assert np.concatenate(found) * 3 == pytest.approx([-1.5, 1.0, 1.0, -0.5])


def test_gdpo_is_of_one_size_over_the_batch():
    groups = [
        [trajectory([x], {"progress": [y]}) for x, y in rows]
        for rows in (((1.0, 0.1), (0.0, 0.0)), ((1.0, 0.0), (0.0, 0.9), (0.0, 0.1)))
    ]
    found = advantages(groups, "gdpo", gamma=1.0, **DENSE)
    assert np.std([a[0] for group in found for a in group]) == pytest.approx(1.0, abs=1e-4)


# Weights


@given(GROUPS)
@FEW
def test_costs_count_only_where_others_succeed(groups):
    """A group in which all fail pays no price; a gate does not see its own outcome."""
    found = contributions(groups, "grpo_lambda", gamma=1.0)["turncost"]
    gate = gate_group(0.5)
    for group, part in zip(groups, found, strict=True):
        scored = [t for t in group if t.scored]
        if not any(t.success for t in scored):
            assert not any(a.any() for a in part)
        weights = gate([scored], 1.0)[0]
        for i, one in enumerate(scored):
            rate = np.mean([t.success for t in scored if t is not one] or [0.0])
            assert (weights[i] == float(rate >= 0.5)).all() and len(weights[i]) == len(one.turns)
            turned = [replace(t, success=not t.success) if t is one else t for t in scored]
            assert (gate([turned], 1.0)[0][i] == weights[i]).all()


def test_a_gate_has_two_ends():
    group = [trajectory([x]) for x in (1.0, 0.0, 0.0, 0.0, 1.0)]
    weights = [float(w[0]) for w in gate_group(0.3, 0.5, closed=0.25)([group], 1.0)[0]]
    assert weights == [0.25, 1.0, 1.0, 1.0, 0.25]
    for wrong in ({"low": 2.0}, {"low": 0.5, "high": 0.4}, {"closed": -1.0}):
        with pytest.raises(ValueError, match="must be a number in"):
            gate_group(**wrong)


@given(GROUPS)
@FEW
def test_trust_reads_the_others(groups):
    weigh = trust("rubric")
    for group in groups:
        for i, weight in enumerate(weigh([group], 1.0)[0]):
            others = [t for j, t in enumerate(group) if j != i]
            assert (weight >= 0.0).all() and (weight <= 1.0).all()
            mixed = len({t.success for t in others}) == 2
            assert weight.any() == mixed


def test_trust_by_hand():
    def judged(won, score):
        return trajectory([float(won)], {"rubric": [score]})

    fair = [judged(True, 0.9), judged(False, 0.1), judged(False, 0.3)]
    fooled = [judged(True, 0.2), judged(False, 0.7), judged(False, 0.5)]
    assert [float(w[0]) for w in trust()([fair], 1.0)[0]] == [0.0, 1.0, 1.0]
    weights = [float(w[0]) for w in trust()([fooled], 1.0)[0]]
    assert weights == pytest.approx([0.0, math.exp(-0.3), math.exp(-0.5)])


@given(episodes(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_turns_after_the_work_is_done_count_less(one, alpha, level):
    ((weights,),) = saturation(alpha, level)([[one]], 1.0)
    assert weights[0] == 1.0 and (np.diff(weights) <= 0.0).all()
    assert (weights >= 1.0 - alpha - 1e-12).all()
    done = sum(level < x for x in one.curve[1:-1])
    assert weights[-1] == pytest.approx(1.0 - alpha * (1.0 - math.exp(-done)))


def test_discounted_weighs_turns_by_when_they_come():
    ((weights,),) = discounted([[trajectory([0.0, 0.0, 1.0])]], 0.5)
    assert weights.tolist() == [1.0, 0.5, 0.25]


# Controls


@given(GROUPS, st.sampled_from(PLACEBOS), st.integers(0, 10**6))
@FEW
def test_placebos_touch_channels_and_nothing_else(groups, kind, seed):
    others = [trajectory([0.0, 1.0], {n: [9.0, 7.0] for n in CHANNELS}, task="u")]
    batch = [*groups, others]
    before = [[t.rewards() for t in group] for group in batch]
    if kind == "mismatch" and not any(t.scored for group in groups for t in group):
        return
    dealt = placebo(batch, kind, np.random.default_rng(seed))
    again = placebo(batch, kind, np.random.default_rng(seed))
    pool = {
        name: [x for g in batch for t in g if t.scored for x in t.rewards()[name]]
        for name in CHANNELS
    }
    for place, (group, new) in enumerate(zip(batch, dealt, strict=True)):
        for i, (one, other) in enumerate(zip(group, new, strict=True)):
            rewards, old = other.rewards(), before[place][i]
            assert all((one.rewards()[n] == old[n]).all() for n in old)
            assert all((again[place][i].rewards()[n] == rewards[n]).all() for n in old)
            assert (rewards["base"] == old["base"]).all()
            assert other.curve.tolist() == one.curve.tolist() and other.success == one.success
            if not one.scored:
                assert other is one
            elif kind == "shuffle_turns":
                for name in CHANNELS:
                    assert sorted(rewards[name]) == sorted(old[name])
            elif kind == "random":
                for name in CHANNELS:
                    drawn = rewards[name] + np.mean(pool[name])
                    assert all(min(abs(x - np.array(pool[name]))) < 1e-9 for x in drawn)
            elif kind == "mismatch":
                theirs = [t for g in batch for t in g if t.task_id != one.task_id and t.scored]
                for name in CHANNELS:
                    sums = [t.rewards()[name].sum() for t in theirs]
                    assert min(abs(rewards[name].sum() - np.array(sums))) < 1e-9
        if kind == "shuffle_traj":
            for name in CHANNELS:
                sums = [
                    sorted(t.rewards()[name].sum() for t in g if t.scored) for g in (group, new)
                ]
                assert sums[0] == pytest.approx(sums[1])


def test_placebos_that_change_something():
    """Orders are drawn anew: over some seeds each place is held by each other."""
    names = {"progress": [1.0, 2.0, 3.0]}
    one = trajectory([0.0, 0.0, 1.0], names)
    group = [trajectory([0.0], {"progress": [float(x)]}) for x in range(3)]
    turns, episodes = set(), set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        ((new,),) = placebo([[one]], "shuffle_turns", rng)
        turns.add(tuple(new.rewards()["progress"]))
        (dealt,) = placebo([group], "shuffle_traj", rng)
        episodes.add(tuple(float(t.rewards()["progress"][0]) for t in dealt))
    assert len(turns) == len(episodes) == 6


def test_a_longer_episode_is_paid_out_by_the_end_of_a_shorter():
    rng = np.random.default_rng(0)
    short = trajectory([0.0, 1.0], {"progress": [0.0, 0.0]})
    long = trajectory([0.0] * 4, {"progress": [1.0, 2.0, 3.0, 4.0]}, task="u")
    (new,), (other,) = placebo([[short], [long]], "mismatch", rng)
    assert new.rewards()["progress"].tolist() == [1.0, 9.0]
    assert other.rewards()["progress"].tolist() == [0.0] * 4
    with pytest.raises(ValueError, match="needs trajectories of a task beside 't'"):
        placebo([[short]], "mismatch", rng)
    with pytest.raises(ValueError, match="did you mean 'shuffle_turns'"):
        placebo([[short]], "shuffle_turn", rng)


def test_a_group_that_no_other_task_can_pay_is_left_out():
    """The others failed by the machine: a fault of theirs ends no run."""
    paid = {"progress": [0.5, 0.5]}
    mine = trajectory([0.0, 1.0], paid, task="mine")
    lost = trajectory([0.0, 1.0], paid, task="other", ended="died")
    (one,), (other,) = placebo([[mine], [lost]], "mismatch", np.random.default_rng(0))
    assert mine.scored and not one.scored and not other.scored


# The page


def test_the_example_on_the_page(tmp_path):
    """``docs/credit.md``: what it prints is what it says, and what one finds by hand."""
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    (said,) = re.findall(r"^```text\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == said, done.stderr
    by_hand = [[1.25, 1.25], [0.25 - 2 / 3, -0.625], [-0.625, -0.625, -0.625]]
    assert said.splitlines()[1] == f"turn {' '.join(str(np.round(a, 3).tolist()) for a in by_hand)}"


def test_the_page_names_every_estimator_and_what_it_is_unbiased_for():
    rows = re.findall(
        r"^\| (`.*?) \|.*?\|.*?\| (.*?) ?\|.*\|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    found = {name: claim for names, claim in rows for name in re.findall(r"`(\w+)`", names)}
    assert found == {name: row.exact for name, row in ESTIMATORS.items()}
