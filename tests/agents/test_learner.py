"""One update: its gradient, what takes it back, and micro-batches that change nothing."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents import learner as module
from headway.agents.learner import BROKEN, FEWEST, LIMIT, REMEMBERED, TRIES, Learner
from headway.agents.tiny import tiny
from headway.agents.trajectory import Trajectory, Turn
from headway.bench.depot import WORDS

torch.set_num_threads(1)


def little():
    return tiny(WORDS, seed=0, layers=1, width=16, heads=2, ffn=32)


def learner(policy, **changes):
    found = {"rate": 1e-3, "batch_tokens": 10_000, "kl_limit": 10.0}
    return Learner(policy, **{**found, "temperature": 1.0, "turn_tokens": 4, **changes})


def trajectory(policy, seed, length, temperature=1.0):
    """Random tokens, of which some count as sampled, with their true log-probabilities."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, len(policy.tokenizer), length)
    mask = rng.random(length) < 0.5
    mask[0], mask[-1] = False, True
    with torch.no_grad():
        logits = policy.model(input_ids=torch.from_numpy(ids)[None]).logits[0]
        logp = (logits / temperature).log_softmax(-1)
    found = np.zeros(length, np.float32)
    for place in np.flatnonzero(mask):
        found[place] = logp[place - 1, ids[place]]
    turn = Turn("", "", 0.0, {}, 0.0)
    return Trajectory(
        "t", 0, "", ids.astype(np.int32), mask, found, np.where(mask, 0, -1), [turn], 0.0
    )


def batch(policy, lengths, temperature=1.0):
    made = [trajectory(policy, seed, n, temperature) for seed, n in enumerate(lengths)]
    worth = [np.where(t.mask, (-1.0) ** n, 0.0).astype(np.float32) for n, t in enumerate(made)]
    return made, worth


def weights(policy):
    return torch.cat([w.detach().flatten() for w in policy.model.parameters()])


def by_hand(policy, made, worth, temperature=1.0):
    """Gradient of the sum of minus advantage times log-probability, over all trajectories."""
    want = torch.zeros(())
    for one, amount in zip(made, worth, strict=True):
        logits = policy.model(input_ids=torch.from_numpy(one.ids.astype(np.int64))[None]).logits
        logp = (logits[0] / temperature).log_softmax(-1)
        for place in np.flatnonzero(one.mask):
            want = want - float(amount[place]) * logp[place - 1, one.ids[place]]
    return torch.autograd.grad(want / (len(made) * 4), policy.learns)


def divergence(policy, before, made):
    """From what was to what is, in nats per token, on all of the batch."""
    total, count = 0.0, 0
    for one, old in zip(made, before, strict=True):
        ids = torch.from_numpy(one.ids.astype(np.int64))[None]
        with torch.no_grad():
            off = old - policy.logp(ids, torch.from_numpy(one.mask[None, 1:]))[0]
        off = off[torch.from_numpy(one.mask[1:])]
        total, count = total + float(((-off).exp() - 1.0 + off).sum()), count + len(off)
    return total / count


def test_the_gradient_is_that_of_reinforce():
    """Sum of advantage times log-probability, over trajectories times the constant.

    Those that teach nothing count, too.
    """
    policy = little()
    made, worth = batch(policy, (7, 12, 9, 8))
    worth[3][:] = 0.0
    gradient = by_hand(policy, made, worth)
    found = learner(policy).step(made, worth)
    norm = float(torch.sqrt(sum(g.square().sum() for g in gradient)))
    assert found.norm == pytest.approx(norm, rel=1e-4)
    for weight, wanted in zip(policy.learns, gradient, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-3, atol=1e-6)


def test_the_gradient_is_of_what_was_sampled_from():
    """At a temperature, which the measure of what the step has done has, too."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9), temperature=2.0)
    gradient = by_hand(policy, made, worth, temperature=2.0)
    found = learner(policy, temperature=2.0, rate=1e-6).step(made, worth)
    assert found.gap < 1e-5 and found.kl < 1e-6
    for weight, wanted in zip(policy.learns, gradient, strict=True):
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-3, atol=1e-6)


def test_a_sampler_that_was_off_only_weighs():
    """Each token by the ratio, at most 2, and is clipped by nothing: the step is the first."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9))
    off = (0.5, -1.0, 1.0)
    weighed = [w * min(np.exp(x), 2.0) for w, x in zip(worth, off, strict=True)]
    gradient = by_hand(policy, made, weighed)
    for one, by in zip(made, off, strict=True):
        one.logp = np.where(one.mask, one.logp - np.float32(by), one.logp)
    found = learner(policy).step(made, worth)
    assert found.gap == pytest.approx(1.0, rel=1e-4)
    for weight, wanted in zip(policy.learns, gradient, strict=True):
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


def test_micro_batches_hold_what_they_may(monkeypatch):
    """Padding included; one that is longer is alone."""
    policy = little()
    made, worth = batch(policy, (3, 4, 5, 10, 11, 12, 40))
    seen = []
    real = policy.logp

    def spied(ids, mask, **settings):
        if torch.is_grad_enabled():
            seen.append(tuple(ids.shape))
        return real(ids, mask, **settings)

    monkeypatch.setattr(policy, "logp", spied)
    learner(policy, batch_tokens=24).step(made, worth)
    assert sum(rows for rows, _ in seen) == 7 and (1, 40) in seen and len(seen) < 7
    assert all(rows == 1 or rows * length <= 24 for rows, length in seen)


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
    trained = learner(policy, rate=0.05, kl_limit=0.05)
    before = weights(policy)
    first = trained.step(made, worth)
    assert 1 <= first.rejected < TRIES and 0.0 < first.kl <= 0.05
    assert first.rate == 0.05 * 0.5**first.rejected
    # The first step of Adam moves a weight by no more than the rate.
    assert float((weights(policy) - before).abs().max()) <= 1.01 * first.rate
    strict, before = little(), weights(little())
    never = learner(strict, rate=0.5, kl_limit=1e-12)
    found = never.step(*batch(strict, (7, 12, 9)))
    assert found.rejected == TRIES and found.moved == 0.0 and found.kl > 1e-12
    assert torch.equal(weights(strict), before)
    assert all(not state or float(state["step"]) == 0.0 for state in never.optimiser.state.values())


def test_what_was_known_of_gradients_is_put_back_too():
    """However often it is tried, an optimiser that goes on is as it was before."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9))
    trained = learner(policy)
    trained.step(made, worth)
    before = copy.deepcopy(trained.optimiser.state_dict()["state"])
    trained.kl_limit = 1e-12
    assert trained.step(made, worth).rejected == TRIES
    after = trained.optimiser.state_dict()["state"]
    for index, state in before.items():
        for name, value in state.items():
            assert torch.equal(after[index][name], value)


def test_a_divergence_that_is_no_number_is_too_far():
    policy = little()
    before = weights(policy)
    found = learner(policy, rate=np.inf).step(*batch(policy, (7, 12, 9)))
    assert found.rejected == TRIES and torch.equal(weights(policy), before)


def test_a_rate_that_was_halved_grows_back():
    """To what was asked for, and to no more."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9))
    trained = learner(policy, rate=1e-5)
    trained.factor = 0.5
    rates = [trained.step(made, worth).rate for _ in range(13)]
    assert rates[0] == 0.5e-5 and rates[1] == pytest.approx(0.5e-5 * 2**0.1)
    assert rates == sorted(rates) and rates[9] < rates[11] == rates[12] == 1e-5


@pytest.mark.parametrize("size", [12, 10_000])
def test_the_length_of_a_step_is_measured(size):
    """In weights, and in nats per token of all micro-batches."""
    policy = little()
    made, worth = batch(policy, (7, 12, 9))
    places = [(torch.from_numpy(t.ids.astype(np.int64))[None], t.mask[None, 1:]) for t in made]
    with torch.no_grad():
        old = [policy.logp(ids, torch.from_numpy(mask))[0] for ids, mask in places]
    before = weights(policy)
    found = learner(policy, rate=1e-2, batch_tokens=size).step(made, worth)
    assert found.moved == pytest.approx(float((weights(policy) - before).norm()), rel=1e-4)
    assert found.kl == pytest.approx(divergence(policy, old, made), rel=1e-3) and found.kl > 1e-3
    assert found.rejected == 0 and found.gap < 1e-5
    # What the step is made of is the gradient alone: no weight shrinks by itself.
    assert float((weights(policy) - before).abs().max()) <= 1e-2 * 1.002


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
    trained.norms.extend([*[usual / 100.0] * (FEWEST - 1), 100.0 * usual])
    trained.step(made, worth)
    grads = torch.cat([w.grad.flatten() for w in policy.learns])
    assert float(grads.norm()) == pytest.approx(LIMIT * usual / 100.0, rel=1e-3)


def test_a_gradient_that_is_no_number_is_left_out():
    policy = little()
    made, worth = batch(policy, (7, 9))
    before = weights(policy)
    found = learner(policy).step(made, [np.where(w != 0, np.float32(3e38), w) for w in worth])
    assert not np.isfinite(found.norm) and torch.equal(weights(policy), before)


def test_gradients_that_are_no_numbers_end_a_run():
    """So many in a row, and no fewer."""
    policy = little()
    made, worth = batch(policy, (7, 9))
    spoilt = [np.where(w != 0, np.float32(3e38), w) for w in worth]
    trained = learner(policy)
    for worths in (*[spoilt] * (BROKEN - 1), worth, *[spoilt] * (BROKEN - 1)):
        trained.step(made, worths)
    before = weights(policy)
    with pytest.raises(FloatingPointError, match="in a row are not finite"):
        trained.step(made, spoilt)
    assert torch.equal(weights(policy), before)


def test_the_guard_measures_rows_of_all_lengths(monkeypatch):
    """Every third of nine, from the middle of the first three on, where a third is to be read."""
    policy = little()
    made, worth = batch(policy, range(10, 28, 2))
    monkeypatch.setattr(module, "PROBED", sum(len(t.ids) for t in made) // 3)
    seen = []
    real = policy.logp

    def spied(ids, mask, **settings):
        if not torch.is_grad_enabled():
            seen.extend([ids.shape[1]] * len(ids))
        return real(ids, mask, **settings)

    monkeypatch.setattr(policy, "logp", spied)
    learner(policy, batch_tokens=1).step(made, worth)
    assert sorted(seen) == [12, 18, 24]


def test_the_second_loss_learns_nothing_from_what_was_not_scored():
    """What a machine said that failed afterwards is as good as nothing to read."""
    gradients = []
    for ended in ("terminated", "died"):
        policy = little()
        made, worth = batch(policy, (12, 9))
        worth[1][:] = 0.0
        made[1].ended = ended
        if ended == "terminated":
            made[1].mask[:-1] = False
            made[1].mask[-1] = True  # nothing was read after its only turn
        learner(policy, auxiliary=0.3).step(made, worth)
        gradients.append([w.grad.clone() for w in policy.learns])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("size", [14, 10_000])
def test_the_second_loss_is_of_what_was_read_after_the_first_turn(size):
    """The mean over all micro-batches, beside what the advantages are worth."""
    policy = little()
    made, worth = batch(policy, (12, 9))
    losses = []
    for one in made:
        logits = policy.model(input_ids=torch.from_numpy(one.ids.astype(np.int64))[None]).logits
        logp = logits[0].log_softmax(-1)
        first = int(np.flatnonzero(one.mask)[0])
        read = [place for place in range(first, len(one.ids)) if not one.mask[place]]
        losses += [-logp[place - 1, one.ids[place]] for place in read]
    assert len(losses) > 2
    second = torch.autograd.grad(0.3 * sum(losses) / len(losses), policy.learns)
    wanted = [a + b for a, b in zip(by_hand(policy, made, worth), second, strict=True)]
    learner(policy, auxiliary=0.3, batch_tokens=size).step(made, worth)
    for weight, gradient in zip(policy.learns, wanted, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-3, atol=1e-6)


def test_the_second_loss_alone_is_no_step():
    """Where no advantage is, it would move the weights as far as any other update."""
    policy = little()
    made, worth = batch(policy, (12, 9))
    before = weights(policy)
    found = learner(policy, auxiliary=0.3).step(made, [np.zeros_like(w) for w in worth])
    assert found.norm is None and torch.equal(weights(policy), before)


def test_its_state_is_whole():
    """Two learners go on alike from one state."""
    one = little()
    first = learner(one)
    made = batch(one, (7, 12, 9))
    first.step(*made)
    first.factor = 0.5
    two = little()
    two.model.load_state_dict(one.model.state_dict())
    second = learner(two)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    first.step(*made)
    second.step(*made)
    assert torch.equal(weights(one), weights(two))
    assert list(first.norms) == list(second.norms) and len(first.norms) == 2
    assert first.factor == second.factor < 1.0
    assert first.norms.maxlen == second.norms.maxlen == REMEMBERED
