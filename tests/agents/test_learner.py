"""One update: its gradient, what takes it back, and micro-batches that change nothing."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents.learner import FEWEST, LIMIT, TRIES, Learner
from headway.agents.tiny import tiny
from headway.agents.trajectory import Trajectory, Turn
from headway.bench.depot import WORDS

torch.set_num_threads(1)


def little():
    return tiny(WORDS, seed=0, layers=1, width=16, heads=2, ffn=32)


def learner(policy, **changes):
    found = {"rate": 1e-3, "batch_tokens": 10_000, "kl_limit": 10.0}
    return Learner(policy, **{**found, "temperature": 1.0, "turn_tokens": 4, **changes})


def trajectory(policy, seed, length):
    """Random tokens, of which some count as sampled, with their true log-probabilities."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, len(policy.tokenizer), length)
    mask = rng.random(length) < 0.5
    mask[0], mask[-1] = False, True
    with torch.no_grad():
        logp = policy.model(input_ids=torch.from_numpy(ids)[None]).logits[0].log_softmax(-1)
    found = np.zeros(length, np.float32)
    for place in np.flatnonzero(mask):
        found[place] = logp[place - 1, ids[place]]
    turn = Turn("", "", 0.0, {}, 0.0)
    return Trajectory(
        "t", 0, "", ids.astype(np.int32), mask, found, np.where(mask, 0, -1), [turn], 0.0
    )


def batch(policy, lengths):
    made = [trajectory(policy, seed, length) for seed, length in enumerate(lengths)]
    worth = [np.where(t.mask, (-1.0) ** n, 0.0).astype(np.float32) for n, t in enumerate(made)]
    return made, worth


def weights(policy):
    return torch.cat([w.detach().flatten() for w in policy.model.parameters()])


def test_the_gradient_is_that_of_reinforce():
    """Sum of advantage times log-probability, over trajectories times the constant."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9))
    want = torch.zeros(())
    for one, amount in zip(made, worth, strict=True):
        logp = policy.model(input_ids=torch.from_numpy(one.ids.astype(np.int64))[None]).logits
        logp = logp[0].log_softmax(-1)
        for place in np.flatnonzero(one.mask):
            want = want - float(amount[place]) * logp[place - 1, one.ids[place]]
    gradient = torch.autograd.grad(want / (3 * 4), policy.learns)
    found = learner(policy).step(made, worth)
    norm = float(torch.sqrt(sum(g.square().sum() for g in gradient)))
    assert found.norm == pytest.approx(norm, rel=1e-4)
    for weight, wanted in zip(policy.learns, gradient, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-3, atol=1e-6)


@settings(max_examples=8)
@given(st.lists(st.integers(3, 20), min_size=2, max_size=6), st.integers(1, 60))
def test_micro_batches_change_nothing(lengths, size):
    """Whatever their size, up to rounding."""
    one, two = little(), little()
    learner(one).step(*batch(one, lengths))
    learner(two, batch_tokens=size).step(*batch(two, lengths))
    for a, b in zip(one.learns, two.learns, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-6)


def test_silent_batches_are_no_step():
    policy = little()
    made, worth = batch(policy, (7, 9))
    before = weights(policy)
    trained = learner(policy)
    found = trained.step(made, [np.zeros_like(w) for w in worth])
    assert found.norm is None and found.moved == 0.0 and not trained.optimiser.state
    assert torch.equal(weights(policy), before)


def test_a_step_too_far_is_taken_back_and_tried_smaller():
    """Each try at half the rate; none that is short enough leaves all as it was."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9))
    trained = learner(policy, rate=0.5, kl_limit=0.05)
    before = weights(policy)
    first = trained.step(made, worth)
    assert first.rejected >= 1 and first.kl is not None
    assert first.rate == 0.5 * 0.5**first.rejected if first.rejected < TRIES else True
    strict = little()
    never = learner(strict, rate=0.5, kl_limit=1e-12)
    found = never.step(*batch(strict, (7, 12, 9)))
    assert found.rejected == TRIES and found.moved == 0.0 and found.kl > 1e-12
    assert torch.equal(weights(strict), before)
    assert all(not state or float(state["step"]) == 0.0 for state in never.optimiser.state.values())


def test_the_length_of_a_step_is_measured():
    policy = little()
    before = weights(policy)
    found = learner(policy).step(*batch(policy, (7, 12, 9)))
    assert found.moved == pytest.approx(float((weights(policy) - before).norm()), rel=1e-4)
    assert found.rejected == 0 and 0.0 <= found.kl < 10.0 and found.gap < 1e-5


def test_an_unusual_gradient_is_shortened():
    """To three times the median, once enough is known of what is usual."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9))
    trained = learner(policy)
    usual = trained.step(made, worth).norm
    trained.norms.clear()
    trained.norms.extend([usual / 100.0] * (FEWEST - 1))
    trained.step(made, worth)
    grads = torch.cat([w.grad.flatten() for w in policy.learns])
    assert float(grads.norm()) > usual / 10.0
    trained.norms.clear()
    trained.norms.extend([usual / 100.0] * FEWEST)
    trained.step(made, worth)
    grads = torch.cat([w.grad.flatten() for w in policy.learns])
    assert float(grads.norm()) == pytest.approx(LIMIT * usual / 100.0, rel=1e-3)


def test_a_gradient_that_is_no_number_is_left_out():
    policy = little()
    made, worth = batch(policy, (7, 9))
    before = weights(policy)
    found = learner(policy).step(made, [np.where(w != 0, np.float32(3e38), w) for w in worth])
    assert not np.isfinite(found.norm) and torch.equal(weights(policy), before)


def test_the_second_loss_is_of_what_was_read_after_the_first_turn():
    """Without any advantage it alone is learnt from."""
    policy = little()
    made, worth = batch(policy, (12,))
    silent = [np.zeros_like(w) for w in worth]
    (one,) = made
    logp = policy.model(input_ids=torch.from_numpy(one.ids.astype(np.int64))[None]).logits
    logp = logp[0].log_softmax(-1)
    first = int(np.flatnonzero(one.mask)[0])
    read = [place for place in range(first, len(one.ids)) if not one.mask[place]]
    assert read
    want = -0.3 * sum(logp[place - 1, one.ids[place]] for place in read) / 4
    gradient = torch.autograd.grad(want, policy.learns)
    learner(policy, auxiliary=0.3).step(made, silent)
    for weight, wanted in zip(policy.learns, gradient, strict=True):
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-3, atol=1e-6)


def test_its_state_is_whole():
    """Two learners go on alike from one state."""
    one = little()
    first = learner(one)
    made = batch(one, (7, 12, 9))
    first.step(*made)
    two = little()
    two.model.load_state_dict(one.model.state_dict())
    second = learner(two)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    first.step(*made)
    second.step(*made)
    assert torch.equal(weights(one), weights(two))
    assert list(first.norms) == list(second.norms) and first.factor == second.factor
