"""The loss: what its gradient is, what does not move it, and figures by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents.loss import (
    auxiliary_loss,
    k1,
    k2,
    k3,
    mismatch,
    policy_loss,
    token_logp,
)

SEEDS = st.integers(0, 10**6)


def batch(seed, rows=3, length=5):
    """Log-probabilities, advantages with zeros among them, and a mask."""
    gen = torch.Generator().manual_seed(seed)
    logp = -torch.rand(rows, length, generator=gen) * 3.0
    advantage = torch.randn(rows, length, generator=gen)
    advantage[torch.rand(rows, length, generator=gen) < 0.3] = 0.0
    mask = torch.rand(rows, length, generator=gen) < 0.6
    return logp, advantage, mask, gen


def slope(loss, *given, **kw):
    """Value, and gradient in the first argument."""
    first = given[0].clone().requires_grad_()
    value = loss(first, *given[1:], **kw)
    value.backward()
    return value.detach(), first.grad


@given(SEEDS)
def test_the_first_update_is_reinforce(seed):
    logp, advantage, mask, _ = batch(seed)
    value, gradient = slope(policy_loss, logp, logp, advantage, mask, normaliser=7.0)
    torch.testing.assert_close(gradient, -advantage * mask / 7.0)
    torch.testing.assert_close(value, -(advantage * mask).sum() / 7.0)


@given(SEEDS)
def test_nothing_moves_what_was_not_sampled_or_earned_nothing(seed):
    """Not even where there is no number."""
    logp, advantage, mask, gen = batch(seed)
    old = logp + 0.1 * torch.randn(logp.shape, generator=gen)
    weights = torch.rand(logp.shape, generator=gen)
    value, gradient = slope(
        policy_loss, logp, old, advantage, mask, normaliser=7.0, weights=weights
    )
    assert not gradient[~mask].any() and not gradient[advantage == 0.0].any()
    for spoilt in (logp, old, advantage, weights):
        spoilt[~mask] = math.nan
    again, same = slope(policy_loss, logp, old, advantage, mask, normaliser=7.0, weights=weights)
    assert torch.equal(value, again) and torch.equal(gradient, same)


@given(SEEDS, st.integers(1, 4))
def test_padding_changes_nothing(seed, pads):
    logp, advantage, mask, gen = batch(seed)
    old = logp + 0.2 * torch.randn(logp.shape, generator=gen)
    wide = [torch.nn.functional.pad(x, (0, pads), value=9.0) for x in (logp, old, advantage)]
    padded = torch.nn.functional.pad(mask, (0, pads))
    found = slope(policy_loss, *wide, padded, normaliser=7.0)
    value, gradient = slope(policy_loss, logp, old, advantage, mask, normaliser=7.0)
    torch.testing.assert_close(found[0], value)
    torch.testing.assert_close(found[1][:, :-pads], gradient)
    assert not found[1][:, -pads:].any()


@given(SEEDS)
def test_micro_batches_sum_to_the_batch(seed):
    logp, advantage, mask, gen = batch(seed, rows=4)
    old = logp + 0.2 * torch.randn(logp.shape, generator=gen)
    count = max(1, int(mask.sum()))
    whole, gradient = slope(policy_loss, logp, old, advantage, mask, normaliser=count)
    parts = [
        slope(policy_loss, *(x[at] for x in (logp, old, advantage, mask)), normaliser=count)
        for at in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(sum(value for value, _ in parts), whole)
    torch.testing.assert_close(torch.cat([g for _, g in parts]), gradient)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "moves"),
    [
        (1.2, 1.0, 1.2, True),
        (1.5, 1.0, 1.28, False),
        (0.5, 1.0, 0.5, True),
        (0.5, -1.0, -0.8, False),
        (1.5, -1.0, -1.5, True),
        (4.0, -1.0, -3.0, False),
        (0.9, -2.0, -1.8, True),
    ],
)
def test_the_clips_by_hand(ratio, advantage, gain, moves):
    logp, old, worth = torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage])
    mask = torch.ones(1, dtype=torch.bool)
    value, gradient = slope(policy_loss, logp, old, worth, mask, normaliser=1.0)
    assert float(value) == pytest.approx(-gain, rel=1e-5)
    assert bool(gradient.any()) == moves
    if moves:
        assert float(gradient) == pytest.approx(-ratio * advantage, rel=1e-5)


def test_far_ratios_stay_finite():
    logp, old = torch.tensor([0.0, -500.0]), torch.tensor([-500.0, 0.0])
    mask = torch.ones(2, dtype=torch.bool)
    for worth in (1.0, -1.0):
        value, gradient = slope(
            policy_loss, logp, old, torch.full((2,), worth), mask, normaliser=1.0
        )
        assert value.isfinite() and gradient.isfinite().all()
    assert k3(old, logp, mask).isfinite()


def test_half_precision_is_summed_in_single():
    logp = torch.full((4096,), -1.0, dtype=torch.bfloat16)
    mask = torch.ones(4096, dtype=torch.bool)
    value, gradient = slope(
        policy_loss, logp, logp, torch.full((4096,), 0.01), mask, normaliser=4096.0
    )
    assert value.dtype is torch.float32 and gradient.dtype is torch.bfloat16
    assert float(value) == pytest.approx(-0.01, rel=1e-5)


@given(SEEDS)
def test_weights_multiply_tokens(seed):
    logp, advantage, mask, gen = batch(seed)
    weights = torch.rand(logp.shape, generator=gen)
    value = policy_loss(logp, logp, advantage, mask, normaliser=2.0, weights=weights)
    torch.testing.assert_close(value, -(advantage * weights * mask).sum() / 2.0)


def test_mismatch_by_hand():
    logp = torch.log(torch.tensor([[0.5, 0.9, 0.3], [0.5, 0.5, 0.5]]))
    sampled = torch.log(torch.tensor([[0.5, 0.3, 0.6], [0.4, 0.5, 0.5]]))
    mask = torch.tensor([[True, True, True], [True, True, False]])
    token = mismatch(logp, sampled, mask, cap=2.0)
    torch.testing.assert_close(token, torch.tensor([[1.0, 2.0, 0.5], [1.25, 1.0, 0.0]]))
    whole = mismatch(logp, sampled, mask, cap=1.3, of="trajectory")
    # 1 * 3 * 0.5 is above the cap, 1.25 below.
    torch.testing.assert_close(whole, torch.tensor([[0.0, 0.0, 0.0], [1.25, 1.25, 0.0]]))
    assert not mismatch(logp.requires_grad_(), sampled, mask).requires_grad
    with pytest.raises(ValueError, match="did you mean 'token'"):
        mismatch(logp, sampled, mask, of="tokens")


@given(SEEDS)
@settings(max_examples=30)
def test_divergences_by_enumeration(seed):
    """Over all outcomes of a distribution: what each is, and what its gradient is as a loss."""
    gen = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, generator=gen, dtype=torch.float64).float()
    ref = torch.log_softmax(torch.randn(5, generator=gen), 0)
    mask = torch.ones(1, dtype=torch.bool)

    def expected(kind):
        at = logits.clone().requires_grad_()
        logp = torch.log_softmax(at, 0)
        values = torch.stack([kind(logp[i : i + 1], ref[i : i + 1], mask) for i in range(5)])
        (gradient,) = torch.autograd.grad((values * logp.exp().detach()).sum(), at)
        return (values * logp.exp()).sum().detach(), gradient

    def exact(swapped):
        at = logits.clone().requires_grad_()
        logp = torch.log_softmax(at, 0)
        one, other = (ref, logp) if swapped else (logp, ref)
        value = (one.exp() * (one - other)).sum()
        return value.detach(), torch.autograd.grad(value, at)[0]

    forward, backward = exact(False), exact(True)
    near = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(expected(k1)[0], forward[0], **near)
    torch.testing.assert_close(expected(k3)[0], forward[0], **near)
    torch.testing.assert_close(expected(k1)[1], torch.zeros(5), **near)
    torch.testing.assert_close(expected(k2)[1], forward[1], **near)
    torch.testing.assert_close(expected(k3)[1], backward[1], **near)


@given(SEEDS)
def test_divergences_read_sampled_tokens_only(seed):
    logp, other, mask, _ = batch(seed)
    other = -other.abs()
    for kind in (k1, k2, k3):
        value = kind(logp, other, mask)
        spoilt = torch.where(mask, logp, math.nan)
        torch.testing.assert_close(kind(spoilt, other, mask), value)
        if mask.any():
            torch.testing.assert_close(kind(logp[mask], other[mask], mask[mask]), value)
        total = kind(logp, other, mask, normaliser=2.0)
        torch.testing.assert_close(total * 2.0, value * mask.sum())
    assert k3(logp, other, mask) >= 0.0


@given(SEEDS, st.integers(1, 9), st.sampled_from([0.5, 1.0, 2.0]))
@settings(max_examples=40)
def test_the_head_in_pieces_is_the_head(seed, rows, temperature):
    """Values and gradients, with no more than so many rows of logits at a time."""
    gen = torch.Generator().manual_seed(seed)
    head = torch.nn.Linear(4, 11)
    with torch.no_grad():
        head.weight.copy_(torch.randn(11, 4, generator=gen))
    ids = torch.randint(11, (7,), generator=gen)
    hidden = torch.randn(7, 4, generator=gen)
    seen = []

    def watched(x):
        seen.append(len(x))
        return head(x)

    def run(rows):
        head.zero_grad()
        at = hidden.clone().requires_grad_()
        found = token_logp(at, watched, ids, temperature=temperature, rows=rows)
        (found * torch.arange(7)).sum().backward()
        return found.detach(), at.grad, head.weight.grad.clone()

    for one, other in zip(run(rows), run(100), strict=True):
        torch.testing.assert_close(one, other)
    assert max(seen[: -(-7 // rows)]) <= rows
    logits = head(hidden) / temperature
    wanted = torch.log_softmax(logits, -1)[torch.arange(7), ids]
    torch.testing.assert_close(token_logp(hidden, head, ids, temperature=temperature), wanted)


@given(SEEDS)
def test_the_auxiliary_loss_is_a_weighted_cross_entropy(seed):
    logp, _, mask, gen = batch(seed)
    weights = torch.where(mask, torch.rand(logp.shape, generator=gen), 0.0)
    value, gradient = slope(auxiliary_loss, logp, weights, normaliser=3.0)
    torch.testing.assert_close(gradient, -weights / 3.0)
    torch.testing.assert_close(value, -(weights * logp).sum() / 3.0)
    logp[weights == 0.0] = -math.inf
    torch.testing.assert_close(auxiliary_loss(logp, weights, normaliser=3.0), value)


def test_what_is_refused():
    logp, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"one shape, got \(2, 3\), \(3,\)"):
        policy_loss(logp, torch.zeros(3), logp, mask, normaliser=1.0)
    for wrong in ((logp, logp, logp[:1], mask), (logp, logp, logp, mask[:1])):
        with pytest.raises(ValueError, match="one shape"):
            policy_loss(*wrong, normaliser=1.0)
    with pytest.raises(ValueError, match="one shape"):
        policy_loss(logp, logp, logp, mask, normaliser=1.0, weights=logp[:1])
    with pytest.raises(ValueError, match=r"mask must be bool, got torch\.float32"):
        policy_loss(logp, logp, logp, mask.float(), normaliser=1.0)
    for name, value in (
        ("normaliser", 0.0),
        ("clip_low", -0.1),
        ("clip_high", -0.1),
        ("dual_clip", 1.0),
    ):
        with pytest.raises(ValueError, match=f"{name} must be a number in"):
            policy_loss(logp, logp, logp, mask, **{"normaliser": 1.0, name: value})
    with pytest.raises(ValueError, match="cap must be a number"):
        mismatch(logp, logp, mask, cap=0.5)
    with pytest.raises(ValueError, match="equally long, got 2 and 3"):
        token_logp(logp, torch.nn.Identity(), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="temperature"):
        token_logp(logp, torch.nn.Identity(), torch.zeros(2, dtype=torch.int64), temperature=0.0)
    with pytest.raises(ValueError, match="rows must be an int of at least 1"):
        token_logp(logp, torch.nn.Identity(), torch.zeros(2, dtype=torch.int64), rows=0)
