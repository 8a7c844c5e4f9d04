"""Lanes that write with one policy: the same numbers as training, whoever sits beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents import engine as module
from headway.agents.decoder import Fused, Plain
from headway.agents.engine import SPARE, Engine, Stream, draw
from headway.agents.policy import Policy
from headway.agents.tiny import tiny, words

VOCABULARY = tuple(f"w{n}" for n in range(28))
SIZE = len(words(VOCABULARY))
SMALL = {
    "vocab_size": SIZE,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def model(kind):
    """A model of each kind that is told apart, with weights large enough to have opinions."""
    if kind == "llama":  # biases everywhere, heads that share keys, a head of its own
        config = transformers.LlamaConfig(
            **SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=False
        )
        made = transformers.LlamaForCausalLM(config)
    elif kind == "qwen2":  # biases in part, tied
        made = transformers.Qwen2ForCausalLM(
            transformers.Qwen2Config(**SMALL, tie_word_embeddings=True)
        )
    elif kind == "qwen3":  # norms of heads, whose size is free
        made = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SMALL, head_dim=16))
    elif kind == "gemma2":  # logits that are bent; a window that is wide enough
        made = transformers.Gemma2ForCausalLM(
            transformers.Gemma2Config(
                **SMALL, head_dim=16, sliding_window=160, attn_implementation="eager"
            )
        )
    else:  # learnt positions
        made = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=SIZE,
                n_embd=48,
                n_layer=2,
                n_head=4,
                n_positions=160,
                bos_token_id=None,
                eos_token_id=None,
            )
        )
    stream = torch.Generator().manual_seed(1)
    for weight in made.parameters():
        weight.data.normal_(0.0, 0.2, generator=stream)
    return made


KINDS = ("llama", "qwen2", "qwen3", "gemma2", "gpt2")
POLICIES = {kind: Policy(model(kind), words(VOCABULARY)) for kind in KINDS}
LLAMA = POLICIES["llama"]


def prompt(seed):
    """From 2 to 6 ids, the first two the same for all."""
    return [3, 4, *(5 + (seed * k) % 20 for k in range(seed % 5))]


def play(engine, seeds, *, turns=3, limit=5, temperature=1.0):
    """Per lane the ids, which of them were sampled, and their log-probabilities."""
    made = {lane: (list(prompt(seed)), [], []) for lane, seed in enumerate(seeds)}
    streams = {lane: Stream("play", seed) for lane, seed in enumerate(seeds)}
    left = dict.fromkeys(made, turns)
    engine.clear()
    engine.start({lane: ids for lane, (ids, _, _) in made.items()})
    for lane in made:
        engine.write(lane, streams[lane].draw(limit))
    while engine.writing:
        for lane, turn in engine.step(temperature=temperature).items():
            ids, at, logp = made[lane]
            at += range(len(ids), len(ids) + len(turn.ids))
            ids += turn.ids
            logp += turn.logp
            left[lane] -= 1
            if left[lane]:
                reply = [7, 8, *[9] * (sum(turn.ids) % 4), 10]
                engine.feed({lane: reply})
                ids += reply
                engine.write(lane, streams[lane].draw(limit))
    return made


def trained(policy, ids, at, temperature=1.0):
    """Log-probabilities of the ids at some places, as training computes them."""
    mask = torch.zeros(1, len(ids) - 1, dtype=torch.bool)
    mask[0, [place - 1 for place in at]] = True
    with torch.no_grad():
        found = policy.logp(torch.tensor([ids]), mask, temperature=temperature)
    return found[mask].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_written_as_training_sees_it(kind):
    """Log-probabilities in play and in training agree to 1e-5, over turns, for every kind."""
    policy = POLICIES[kind]
    engine = Engine(policy, lanes=6)
    for ids, at, logp in play(engine, range(6), temperature=1.5).values():
        assert np.abs(trained(policy, ids, at, 1.5) - logp).max() < 1e-5


@pytest.mark.parametrize("kind", [*KINDS, "eager", "window"])
def test_training_by_the_definition(kind):
    """Log-probabilities and their gradient are those of all logits of the whole model."""
    if kind in KINDS:
        policy = POLICIES[kind]
    elif kind == "eager":
        policy = Policy(model("llama"), words(VOCABULARY))
        policy.model.set_attn_implementation("eager")
    else:
        config = transformers.MistralConfig(**SMALL, sliding_window=3)
        policy = Policy(transformers.MistralForCausalLM(config), words(VOCABULARY))
    ids = torch.randint(0, SIZE, (3, 11), generator=torch.Generator().manual_seed(4))
    mask = torch.rand((3, 10), generator=torch.Generator().manual_seed(5)) < 0.4
    grads = []
    for whole in (False, True):
        policy.model.zero_grad()
        if whole:
            logits = policy.model(input_ids=ids, use_cache=False).logits[:, :-1]
            every = torch.log_softmax(logits / 0.7, -1).gather(2, ids[:, 1:, None])[..., 0]
            want = torch.where(mask, every, 0.0)
        else:
            want = policy.logp(ids, mask, temperature=0.7)
        (want * torch.arange(10)).sum().backward()
        grads.append([want.detach(), *(w.grad.clone() for w in policy.learns)])
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def same(one, other, close):
    """Whether two plays wrote the same ids, with the same log-probabilities."""
    assert one.keys() == other.keys()
    for lane in one:
        assert one[lane][:2] == other[lane][:2]
        assert np.abs(np.subtract(one[lane][2], other[lane][2])).max() <= close


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_short_way_is_the_long_way(kind):
    """What is computed here agrees with transformers to 1e-5."""
    fused, plain = Engine(POLICIES[kind], lanes=6), Engine(POLICIES[kind], lanes=6, fused=False)
    assert isinstance(fused._decoder, Fused) and isinstance(plain._decoder, Plain)
    same(play(fused, range(6)), play(plain, range(6)), 1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("stride", [2, 3, 7])
def test_looking_less_often_changes_nothing(kind, stride):
    """What is written after a turn's end, before anyone looks, is thrown away."""
    often, rarely = Engine(POLICIES[kind], lanes=6), Engine(POLICIES[kind], lanes=6, stride=stride)
    same(play(often, range(6)), play(rarely, range(6)), 1e-6)


def test_static_shapes_change_nothing():
    """All lanes in every step, as on a GPU, with lanes that wait and lanes that are empty."""
    loose, static = Engine(LLAMA, lanes=6), Engine(LLAMA, lanes=9, stride=3)
    static._static = True
    same(play(loose, range(6)), play(static, range(6)), 1e-6)


def test_static_lanes_that_wait():
    """A lane that was fed keeps what it will write from, while others write."""
    engine = Engine(LLAMA, lanes=3)
    engine._static = True
    engine.start({0: [3, 4], 1: [3, 4, 5], 2: [3]})
    for lane, before in {0: [3, 4], 1: [3, 4, 5], 2: [3]}.items():
        engine.write(lane, Stream(lane).draw(4))
        while engine.writing:
            for turn in engine.step().values():
                at = range(len(before), len(before) + len(turn.ids))
                gap = trained(LLAMA, [*before, *turn.ids], at) - turn.logp
                assert np.abs(gap).max() < 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what torch imports to compile
def test_compiled_steps_change_nothing():
    loose, compiled = Engine(LLAMA, lanes=6), Engine(LLAMA, lanes=6, compiled=True)
    same(play(loose, range(6)), play(compiled, range(6)), 1e-5)


@settings(max_examples=30)
@given(
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    lane=st.integers(0, 5),
    kind=st.sampled_from(["llama", "gpt2"]),
)
def test_neighbours_change_nothing(seeds, lane, kind):
    """A lane writes what it would write alone; padding moves log-probabilities by 1e-6 at most."""
    engine = ENGINES[kind]
    lane %= len(seeds)
    among, alone = play(engine, seeds), play(engine, [seeds[lane]])
    same({0: among[lane]}, alone, 1e-6)


ENGINES = {kind: Engine(POLICIES[kind], lanes=6) for kind in KINDS}


@settings(max_examples=30)
@given(
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    before=st.lists(st.integers(0, 9), max_size=6),
    kind=st.sampled_from(["llama", "gpt2"]),
)
def test_sharing_a_prompt_changes_nothing(seeds, before, kind):
    """Prompts copied from other lanes, or kept from an episode before, in part or whole."""
    engine = ENGINES[kind]
    engine.clear()
    engine.share = False
    want = play(engine, seeds)
    engine.share = True
    engine.clear()
    engine.shared = engine.fed = 0
    if before:
        engine.start({5 - n: prompt(seed) for n, seed in enumerate(before)})
        engine.clear = lambda: None  # what lanes hold now is what prompts are copied from
    try:
        found = play(engine, seeds)
    finally:
        engine.__dict__.pop("clear", None)
    same(found, want, 1e-6)


def test_what_is_shared_is_counted():
    engine = Engine(LLAMA, lanes=4)
    engine.start({0: [3, 4, 5, 6], 1: [3, 4, 5, 6], 2: [3, 4, 9]})
    assert (engine.fed, engine.shared) == (4 + 3, 4)  # two that begin at once do not see each other
    engine.start({3: [3, 4, 5, 8], 0: [3, 4, 5, 6]})
    assert (engine.fed, engine.shared) == (7 + 1 + 1, 4 + 3 + 3)
    engine.start({0: [9, 9]})
    assert engine.fed == 9 + 2


def test_what_was_taken_back_is_not_shared():
    """Behind the cursor of a lane that began anew stands what it was asked, not what it held."""
    engine = Engine(LLAMA, lanes=2)
    engine.start({0: [3, 4, 5, 6, 7]})
    engine.start({0: [3, 4]})
    engine.score({0: ([9, 9, 9], 1)})
    engine.start({1: [3, 4, 5, 6, 8]})
    engine.write(1, Stream(1).draw(1))
    turn = engine.step()[1]
    assert turn.logp[0] == pytest.approx(
        trained(LLAMA, [3, 4, 5, 6, 8, *turn.ids], [5])[0], abs=1e-5
    )


def snapshot(engine, lane):
    """All that decides what a lane writes next."""
    cut = int(engine.cursor[lane])
    caches = [*engine._decoder.keys, *engine._decoder.values]
    return [engine._states[lane].clone(), *(c[lane, :, :cut].clone() for c in caches)]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("pending", [False, True])
def test_scoring_leaves_no_trace(kind, pending):
    """Caches, cursors and states are the same, bit by bit, and so is all that is written next."""
    engine, policy = ENGINES[kind], POLICIES[kind]
    texts = []
    for asks in (False, True):
        engine.clear()
        engine.start({0: [3, 4, 5], 1: [3, 4]})
        if pending:
            for lane in (0, 1):
                engine.write(lane, Stream(lane).draw(1))
            written = engine.step()
        held = [snapshot(engine, lane) for lane in (0, 1)]
        cursors, waits = engine.cursor.copy(), list(engine._pending)
        if asks:
            found = engine.score({0: ([11, 12, 13], 1), 1: ([11, 12, 13, 14, 15], 2)})
            for lane, (asked, first) in {
                0: ([11, 12, 13], 1),
                1: ([11, 12, 13, 14, 15], 2),
            }.items():
                ids = [3, 4, 5][: 3 - lane] + (written[lane].ids if pending else []) + asked
                at = range(len(ids) - len(asked) + first, len(ids))
                assert found[lane] == pytest.approx(trained(policy, ids, at).mean(), abs=1e-5)
        assert (engine.cursor == cursors).all() and engine._pending == waits
        for lane in (0, 1):
            for now, then in zip(snapshot(engine, lane), held[lane], strict=True):
                assert torch.equal(now, then)
        if pending:
            engine.feed({0: [7], 1: [7, 8]})
        for lane in (0, 1):
            engine.write(lane, Stream("next", lane).draw(6))
        turns = {}
        while engine.writing:
            turns |= engine.step()
        texts.append([(turns[lane].ids, turns[lane].logp) for lane in (0, 1)])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_room_is_made_when_it_is_needed(kind, monkeypatch):
    """Columns come as contexts grow, and what is in the others stays."""
    want = play(ENGINES[kind], range(4))
    monkeypatch.setattr(module, "FIRST", 3)
    engine = Engine(POLICIES[kind], lanes=4, stride=2)
    same(play(engine, range(4)), want, 1e-6)
    longest = max(len(ids) for ids, _, _ in want.values())
    assert longest <= engine._decoder.keys[0].shape[2] < 3 * longest < 160


def test_the_first_token_behind_a_turn_can_be_scored():
    engine = Engine(LLAMA, lanes=1)
    engine.start({0: [3, 4]})
    engine.write(0, Stream(1).draw(1))
    ids = engine.step()[0].ids
    found = engine.score({0: ([9, 10], 0)})[0]
    want = trained(LLAMA, [3, 4, *ids, 9, 10], [3, 4]).mean()
    assert found == pytest.approx(want, abs=1e-5)
    assert engine.scored == 3  # the last token of the turn was put through with them


def test_scores_may_go_a_little_past_the_context():
    """The context is what an episode may fill; what is asked on top of it needs room of its own."""
    engine = Engine(LLAMA, lanes=1, context=8)
    engine.start({0: [3] * 7})
    assert engine.room(0) == 1 and engine.spare(0) == 1 + SPARE
    found = engine.score({0: ([5] * 9, 1)})[0]
    assert found == pytest.approx(trained(LLAMA, [3] * 7 + [5] * 9, range(8, 16)).mean(), abs=1e-5)
    full = Engine(LLAMA, lanes=1, context=160)
    full.start({0: [3] * 159})
    with pytest.raises(ValueError, match="can score 1 tokens"):
        full.score({0: ([5, 5], 1)})


@settings(max_examples=60)
@given(
    logits=st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=12),
    luck=st.floats(0, 1, exclude_max=True),
    temperature=st.sampled_from([0.25, 1.0, 3.0]),
)
def test_drawn_by_the_inverse_distribution(logits, luck, temperature):
    """The smallest id up to which the probabilities sum to more than the number drawn."""
    p = np.exp(np.array(logits, np.float64) / temperature)
    p /= p.sum()
    ids, logp = draw(
        torch.tensor([logits]),
        torch.tensor([luck], dtype=torch.float64),
        temperature=temperature,
    )
    chosen = int(ids[0])
    assert np.cumsum(p)[chosen] > luck - 1e-6
    assert chosen == 0 or np.cumsum(p)[chosen - 1] <= luck + 1e-6
    assert float(logp[0]) == pytest.approx(np.log(p[chosen]), abs=1e-5)


def test_shares_of_what_is_drawn():
    """Over evenly spread numbers each id comes up as often as its probability says, or one off."""
    logits = torch.tensor([0.3, -1.0, -torch.inf, 2.0, 0.0])
    count = 10_000
    luck = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    ids, _ = draw(logits.expand(count, -1), luck)
    shares = torch.bincount(ids, minlength=5) / count
    assert (shares - torch.softmax(logits, -1)).abs().max() < 1.5 / count
    assert shares[2] == 0
    last, _ = draw(logits[None], torch.tensor([1.0 - 2.0**-53], dtype=torch.float64))
    assert int(last[0]) == 4
    likeliest, logp = draw(logits[None], luck[-1:], greedy=True, temperature=2.0)
    assert int(likeliest[0]) == 3
    assert float(logp[0]) == pytest.approx(float(torch.log_softmax(logits / 2.0, -1)[3]))
    made, logp = draw(logits[None], luck[:1], forced=torch.tensor([1]))
    assert int(made[0]) == 1
    assert float(logp[0]) == pytest.approx(float(torch.log_softmax(logits, -1)[1]))


def test_shares_of_what_is_drawn_at_the_edge():
    """An id that is impossible is not drawn, whatever number comes up."""
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    for luck, want in [(0.0, 1), (0.5, 3), (1.0 - 2.0**-53, 3)]:
        ids, logp = draw(logits, torch.tensor([luck], dtype=torch.float64))
        assert int(ids[0]) == want and float(logp[0]) == pytest.approx(np.log(0.5))


def test_streams_are_named_by_their_keys():
    """The same numbers in every process and release; parts of a key stay apart."""
    assert Stream("a", 1).draw(2).tolist() == PINNED
    split = Stream("a", 1)
    assert [*split.draw(1), *split.draw(1)] == Stream("a", 1).draw(2).tolist()
    many = [tuple(Stream(*key).draw(2)) for key in [("a", 1), ("a", 2), ("a", 11), ("a1", 1), (1,)]]
    assert len(set(many)) == len(many)
    numbers = Stream("even").draw(100_000)
    assert 0.0 <= numbers.min() < 1e-4 and 1.0 - 1e-4 < numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 0.005


PINNED = [0.23095865289064554, 0.08378873512512797]


def test_forced_turns_end_where_they_end():
    """They are written whatever the policy wants, which says how likely they are."""
    engine = Engine(LLAMA, lanes=2)
    engine.start({0: [3, 4], 1: [3, 4, 5]})
    engine.write(0, Stream(0).draw(9), forced=[6, 7, 8])
    engine.write(1, Stream(1).draw(4))
    turns = {}
    while engine.writing:
        turns |= engine.step()
    assert turns[0].ids == [6, 7, 8] and not turns[0].stopped
    assert np.abs(trained(LLAMA, [3, 4, 6, 7, 8], [2, 3, 4]) - turns[0].logp).max() < 1e-5
    stop = LLAMA.template.stop
    engine.feed({0: [9]})
    engine.write(0, Stream(0).draw(3), forced=[6, stop, 8])
    while engine.writing:
        turns |= engine.step()
    assert turns[0].ids == [6, stop] and turns[0].stopped


def test_weights_are_taken_up_when_it_is_said():
    policy = tiny(VOCABULARY, seed=0, layers=1, width=32, ffn=32)
    engine = Engine(policy, lanes=1)
    before = play(engine, [1])
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(3.0)
    same(play(engine, [1]), before, 0.0)
    engine.sync()
    ids, at, logp = play(engine, [1])[0]
    assert np.abs(trained(policy, ids, at) - logp).max() < 1e-5
    assert np.abs(np.array(logp[:2]) - before[0][2][:2]).max() > 1e-3


def test_adapters_are_part_of_the_weights(tmp_path):
    tiny(VOCABULARY, seed=0, layers=1, width=32, ffn=32).save(tmp_path / "base")
    policy = Policy.load(tmp_path / "base", lora=4)
    for weight in policy.learns:
        weight.data.add_(0.3)
    for fused in (True, False):
        ids, at, logp = play(Engine(policy, lanes=1, fused=fused), [1])[0]
        assert np.abs(trained(policy, ids, at) - logp).max() < 1e-5


def test_a_twin_has_the_weights_and_nothing_else():
    engine = Engine(LLAMA, lanes=2)
    engine.start({0: [3, 4, 5]})
    twin = engine.twin()
    assert (twin.fed, twin.room(0)) == (0, 160)
    twin.start({0: [6] * 9})
    assert engine.fed == 3 and int(engine.cursor[0]) == 3
    engine.write(0, Stream(1).draw(4))
    found = []
    while engine.writing:
        found += [turn for turn in engine.step().values()]
    assert (
        np.abs(
            trained(LLAMA, [3, 4, 5, *found[0].ids], range(3, 3 + len(found[0].ids)))
            - found[0].logp
        ).max()
        < 1e-5
    )


@pytest.mark.parametrize("fused", [True, False])
def test_spoilt_weights_are_told_and_leave_nothing_behind(fused):
    """A NaN raises, in writing and in scoring, and the cache is clean once the weights are."""
    policy = tiny(VOCABULARY, seed=0, layers=1, width=32, ffn=32)
    engine = Engine(policy, lanes=2, fused=fused)
    want = play(engine, [1, 2])
    kept = [weight.clone() for weight in policy.model.parameters()]
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.fill_(torch.nan)
    engine.sync()
    with pytest.raises(FloatingPointError, match="not finite"):
        play(engine, [1, 2])
    engine.start({0: [3, 4]})
    with pytest.raises(FloatingPointError, match="not finite"):
        engine.score({0: ([5, 6], 1)})
    with torch.no_grad():
        for weight, old in zip(policy.model.parameters(), kept, strict=True):
            weight.copy_(old)
    engine.sync()
    same(play(engine, [1, 2]), want, 0.0)


def busy():
    """An engine with a lane that writes, one that has, and one that is empty."""
    engine = Engine(LLAMA, lanes=3, context=8)
    engine.start({0: [3, 4], 1: [3]})
    engine.write(1, Stream(0).draw(1))
    engine.step()
    engine.write(0, Stream(0).draw(3))
    return engine


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda e: e.start({2: [3] * 8}), "from 1 to 7 tokens, .* got 8"),
        (lambda e: e.start({2: []}), "from 1 to 7 tokens, .* got 0"),
        (lambda e: e.feed({0: [3]}), "got 1 tokens for lane 0, in a turn"),
        (lambda e: e.feed({1: []}), "got 0 tokens for lane 1, after a turn"),
        (lambda e: e.feed({1: [3] * 7}), "lane 1 has room for 6 tokens, got 7"),
        (lambda e: e.write(1, np.zeros(1)), "lane 1 must be fed before"),
        (lambda e: e.write(2, np.zeros(1)), "lane 2 must be fed before"),
        (lambda e: (e.feed({1: [3]}), e.write(1, np.zeros(0))), "from 1 to 5 tokens here, got 0"),
        (lambda e: (e.feed({1: [3]}), e.write(1, np.zeros(6))), "from 1 to 5 tokens here, got 6"),
        (
            lambda e: (e.feed({1: [3]}), e.write(1, np.zeros(1), [4, 5])),
            "from 2 to 5 tokens here, got 1",
        ),
        (lambda e: e.score({0: ([3, 4], 1)}), "lane 0, in a turn"),
        (lambda e: (e.feed({1: [3]}), e.score({1: ([3, 4], 0)})), "not the first are asked for"),
        (lambda e: e.score({1: ([3], 1)}), "not the first are asked for"),
        (
            lambda e: e.step(temperature=0.0),
            r"temperature must be a number in \[0.001, 1000\], got 0",
        ),
    ],
)
def test_what_lanes_refuse(act, message):
    with pytest.raises(ValueError, match=message):
        act(busy())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lanes": 0}, "lanes must be an int of at least 1, got 0"),
        ({"context": 161}, "context must be at most the model's 160, got 161"),
        ({"context": 1}, "context must be an int of at least 2, got 1"),
        ({"stride": 0}, "stride must be an int of at least 1, got 0"),
        ({"dtype": torch.bfloat16, "fused": False}, "dtype must be the policy's"),
    ],
)
def test_what_an_engine_cannot_be(given, message):
    with pytest.raises(ValueError, match=message):
        Engine(LLAMA, **given)


def test_models_that_forget_are_refused():
    """A window shorter than the context would make play and training see different things."""
    config = transformers.Gemma2Config(**SMALL, head_dim=16, sliding_window=32)
    policy = Policy(transformers.Gemma2ForCausalLM(config), words(VOCABULARY))
    with pytest.raises(ValueError, match=r"whole context of 160 .* a window of 32"):
        Engine(policy)
    Engine(policy, context=32)
    with pytest.raises(ValueError, match="fused must be None or False for a gpt2"):
        Engine(POLICIES["gpt2"], fused=True)


def test_half_precision_is_near():
    """Weights in bfloat16 give log-probabilities that are off by little, in float32."""
    engine = Engine(LLAMA, lanes=4, dtype=torch.bfloat16)
    for ids, at, logp in play(engine, range(4)).values():
        gap = np.abs(trained(LLAMA, ids, at) - logp)
        assert 1e-5 < gap.max() and gap.mean() < 0.1
