"""The expected update of an estimator, by enumeration, is the gradient that the docs say it is."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents.credit import ESTIMATORS, Estimator, Term, advantages
from headway.agents.placebo import placebo
from headway.agents.routing import gate_group, saturation
from headway.bench.unbiased import (
    EXACT,
    FAULTS,
    HORIZON,
    LOGITS,
    Chain,
    leaks,
    main,
    progress,
    rows,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "credit.md"

LOGITS_ANY = st.lists(
    st.lists(st.floats(-2.0, 2.0), min_size=3, max_size=3), min_size=3, max_size=3
)


def base(t):
    return sum(turn.base for turn in t.turns)


def total(t):
    return sum(float(x.sum()) for x in t.rewards().values())


def off(update, exact):
    """Relative error."""
    return np.linalg.norm(update[0] - exact) / np.linalg.norm(exact)


@pytest.fixture(scope="module")
def table():
    """With four turns, which are 118 trajectories."""
    return {row.estimator: row for row in rows(4)}


def test_what_is_called_unbiased_is(table):
    for row in table.values():
        assert row.claimed == (row.error < EXACT), row
        assert row.direction < EXACT or not row.claimed, row
    shown = {name.partition(",")[0] for name, row in table.items() if row.claimed}
    assert {row.name for row in ESTIMATORS.values() if row.exact} == shown
    assert ESTIMATORS["turn"].exact


def test_every_fault_shows(table):
    faults = {name.partition(": ")[2]: row for name, row in table.items() if "fault" in name}
    assert {"self-included", "norm_then_ret", "gate paid in retrospect", *FAULTS} < set(faults)
    for row in faults.values():
        assert row.error > 0.01 and row.direction > 0.01, row


def test_a_deviation_bends_the_size_of_an_outcome_and_not_its_direction(table):
    """In one task with an outcome of 0 or 1; it is between tasks that it weighs wrongly."""
    row = table["grpo, groups of 3"]
    assert row.error > 0.1 and row.direction < EXACT


def quoted(row):
    """A row as it stands in docs/credit.md."""
    error, direction = (
        "< 1e-10" if x < EXACT else f"{x:.3f}" for x in (row["error"], row["direction"])
    )
    names = f"| {row['estimator']} | {row['target']} "
    return f"{names}| {error} | {direction} | {row['variance']:.2f} |"


def test_some_rows_of_the_page():
    """All pairs of 334 trajectories."""
    assert len(Chain({}).trajectories) == 334
    page = PAGE.read_text(encoding="utf-8").splitlines()
    for row in islice(rows(), 3, 6):
        assert quoted(asdict(row)) in page


@pytest.mark.slow
def test_the_whole_page(capsys):
    assert main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = [quoted(row) for row in found["rows"]]
    wanted += [f"| {name} | {value:.2f} |" for name, value in found["variances"].items()]
    left = {n: "< 1e-10" if x < EXACT else f"{x:.3f}" for n, x in found["leaks"].items()}
    wanted += [f"| {name} | {share} |" for name, share in left.items()]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line in wanted] == wanted


def test_what_a_placebo_leaves():
    """Nothing where whole trajectories or turns of one index are compared, some elsewhere."""
    found = leaks(3)
    assert max(abs(found[name]) for name in ("final", "turn_index")) < EXACT
    assert min(found[name] for name in ("turn", "turn_shrunk", "turn_pooled")) > 0.05


def test_the_command(capsys):
    assert main(["--horizon", "3"]) == 0
    assert "turn_pooled" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--horizon", "2"])
    assert "must be at least 3, got 2" in capsys.readouterr().err
    assert HORIZON == 5


def test_the_gradient_is_that_of_the_mean():
    """By finite differences, which know nothing of scores."""
    for worth in (base, total, lambda t: len(t.turns) * t.success):
        exact = Chain({"progress": progress}, horizon=3).gradient(worth)
        for level in range(3):
            for action in range(3):
                ends = []
                for step in (1e-5, -1e-5):
                    logits = np.array(LOGITS)
                    logits[level, action] += step
                    ends.append(
                        Chain({"progress": progress}, logits=logits.tolist(), horizon=3).mean(worth)
                    )
                slope = (ends[0] - ends[1]) / 2e-5
                assert exact[level, action] == pytest.approx(slope, abs=1e-8)


def test_variances_are_those_of_groups():
    """In pairs they can be had exactly."""
    chain = Chain({"progress": progress}, horizon=3)
    credit = partial(advantages, estimator="final", gamma=1.0)
    drawn = chain.variance(credit, 2, 20_000)
    assert drawn == pytest.approx(chain.update(credit)[1], rel=0.1)


@given(LOGITS_ANY, st.lists(st.floats(-1.0, 1.0), min_size=9, max_size=9), st.integers(2, 3))
@settings(max_examples=6)
def test_turn_credit_is_unbiased_whatever_is_paid(logits, amounts, size):
    """For any policy and any amounts that depend on level, action and turn."""

    def pay(levels, actions, gamma):
        return [amounts[3 * levels[t] + a] + 0.1 * t for t, a in enumerate(actions)]

    chain = Chain({"odd": pay}, logits=logits, horizon=3)
    exact = chain.gradient(total)
    if np.linalg.norm(exact) < 1e-3:
        return
    for name in ("turn", "turn_pooled", "turn_index", "final"):
        update = chain.update(partial(advantages, estimator=name, gamma=1.0), size)
        assert off(update, exact) < 1e-9


def test_trajectories_as_members_and_whole_states_are_unbiased_too():
    chain = Chain({"progress": progress}, horizon=4)
    exact = chain.gradient(total)
    for term in (
        Term(("base", "*"), key="checks", members="trajectories"),
        Term(("base", "*"), key="start"),
    ):
        rule = Estimator("one", (term,), "")
        update = chain.update(partial(advantages, estimator=rule, gamma=1.0))
        assert off(update, exact) < EXACT


def test_weights_of_the_past_and_of_the_others_keep_it_unbiased():
    """Each for its own sum: a factor per turn, or the chance that a gate is open."""
    chain = Chain({"progress": progress}, horizon=4)
    (turn,) = ESTIMATORS["turn"].terms
    weigh = saturation(0.9, 0.3)
    rule = Estimator("one", (replace(turn, routing=weigh),), "")

    def weighted(t):
        rewards = sum(t.rewards().values())
        return weigh([[t]], 1.0)[0][0] * np.cumsum(rewards[::-1])[::-1]

    update = chain.update(partial(advantages, estimator=rule, gamma=1.0))
    assert off(update, chain.weighted(weighted)) < EXACT

    shut = gate_group(0.0, 0.4, closed=0.5)
    rule = Estimator("one", (replace(turn, routing=shut),), "")
    small = Chain({"progress": progress}, horizon=3)
    wins = small.mean(lambda t: t.success)
    open_ = (1.0 - wins) ** 2  # of two others no more than none
    update = small.update(partial(advantages, estimator=rule, gamma=1.0), 3)
    assert off(update, (open_ + 0.5 * (1.0 - open_)) * small.gradient(total)) < EXACT


class Dealer:
    """A generator that deals in one order."""

    def __init__(self, order):
        self.order = order

    def permutation(self, count):
        assert count == len(self.order)
        return np.array(self.order)


def test_shuffled_trajectories_teach_nothing_on_average():
    """Over both ways to deal a pair, what is left is the gradient of the outcome."""
    chain = Chain({"progress": progress}, horizon=3)
    mean = 0.0
    for order in ([0, 1], [1, 0]):
        dealt = chain.update(
            lambda groups, order=order: advantages(
                placebo(groups, "shuffle_traj", Dealer(order)), "final", gamma=1.0
            )
        )
        mean = mean + dealt[0] / 2.0
    exact = chain.gradient(base)
    assert np.linalg.norm(mean - exact) / np.linalg.norm(exact) < EXACT
    kept = chain.update(partial(advantages, estimator="final", gamma=1.0))[0]
    assert np.linalg.norm(mean - kept) / np.linalg.norm(exact) > 0.1
