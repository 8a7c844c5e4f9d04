"""Policies of a size that two cores can train from nothing, and the tokenizers for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from headway.agents.policy import Policy
from headway.arguments import whole

PAD, STOP, SAY, UNKNOWN = "<pad>", "<end>", "<say>", "<unk>"
"""Filler, end of a turn, its beginning, and what no word stands for."""

SPECIAL = (PAD, STOP, SAY, UNKNOWN)

TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}" + STOP + "{% else %}" + SAY + "{% endif %}"
    "{% endfor %}"
)
"""Observation, ``SAY``, action, ``STOP``, and so on: the least that tells them apart."""

STD = 0.02
"""Standard deviation of first weights, as in GPT-2 and Llama."""


def words(vocabulary: Sequence[str]) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of whole words with spaces between them; what it does not know is ``UNKNOWN``.

    Args:
        vocabulary: Words without spaces in them, none twice.

    Raises:
        ValueError: There is no word, one occurs twice, has a space in it or is special.
    """
    bad = [word for word in vocabulary if word.split() != [word] or word in SPECIAL]
    if bad or not vocabulary or len(set(vocabulary)) != len(vocabulary):
        raise ValueError(
            "vocabulary must be words without spaces, none twice and none of "
            f"{list(SPECIAL)}, got {(bad or list(vocabulary))!r:.200}"
        )
    # The others get their ids after these: as words here they could be written by a tool.
    ids = {word: n for n, word in enumerate([UNKNOWN, *vocabulary])}
    made = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrapped(made)


def bpe(texts: Sequence[str], *, vocabulary: int = 1024) -> transformers.PreTrainedTokenizerFast:
    """A byte-level tokenizer whose pieces are those that ``texts`` repeat; any text can be spelt.

    Digits stand alone, so that numbers are copied digit by digit and not learnt one by one.

    Args:
        texts: What the policy will read and write.
        vocabulary: Most tokens, at least 260: all bytes and the special ones.

    Raises:
        ValueError: ``vocabulary`` is too small.
    """
    size = whole("vocabulary", vocabulary, 256 + len(SPECIAL))
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return _wrapped(made)


def tiny(
    vocabulary: Sequence[str] | transformers.PreTrainedTokenizerFast,
    *,
    seed: int,
    layers: int = 2,
    width: int = 128,
    heads: int = 4,
    ffn: int = 512,
    context: int = 256,
    device: str = "cpu",
) -> Policy:
    """An untrained Llama in float32 with tied embeddings; with 60 words 0.53 million weights.

    Args:
        vocabulary: Words for :func:`words`, or a tokenizer such as :func:`bpe` makes.
        seed: Of the weights; the same seed, the same weights, whatever else was drawn.
        layers: At least 1.
        width: Of the residual stream, a multiple of twice ``heads``.
        heads: Of the attention.
        ffn: Width of the inner layer of the blocks.
        context: Tokens of the longest context.
        device: Of the weights.

    Raises:
        ValueError: An argument is outside its range.
    """
    for name, value in {"layers": layers, "heads": heads, "ffn": ffn, "context": context}.items():
        whole(name, value, 1)
    if whole("width", width, 1) % (2 * heads):
        raise ValueError(f"width must be a multiple of twice heads, {2 * heads}, got {width!r}")
    if isinstance(vocabulary, transformers.PreTrainedTokenizerFast):
        tokenizer = vocabulary
    else:
        tokenizer = words(vocabulary)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):  # what the constructor draws is thrown away
        model = transformers.LlamaForCausalLM(config)
    stream = torch.Generator().manual_seed(whole("seed", seed, 0))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, STD, generator=stream)
            else:
                weight.fill_(1.0)
    moved: Any = model.to(device)  # type: ignore[arg-type]  # transformers' own decorator is wrong
    return Policy(moved, tokenizer)


def _wrapped(made: Tokenizer) -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=made,
        pad_token=PAD,
        eos_token=STOP,
        unk_token=UNKNOWN,
        additional_special_tokens=[SAY],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
