"""A causal language model that plays: weights, tokenizer, and where a turn begins and ends."""

from __future__ import annotations

import io
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from headway.arguments import whole

try:
    import torch
    import transformers
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from torch import Tensor
    from transformers.utils import logging

    from headway.agents.loss import token_logp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'a policy needs {error.name}, which is missing; pip install "headway[agents]"',
        name=error.name,
    ) from error

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Number formats of weights by name."""

ADAPTER = "adapter_config.json"
"""The file that a folder with an adapter, and no whole model, has."""

WEIGHTS = "adapter_model.safetensors"
"""The file of an adapter's weights."""

PLAIN = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Kinds of models built like Llama, whose logits are their last states times the head."""

CHUNK = 2**24
"""Most logits that a training forward has at a time."""

_MARKS = ("QZOBSERVATION", "QZACTION", "QZNEXT")
"""Texts that no template contains or changes."""


class Template:
    """Text and token ids of a conversation, piece by piece: no token is ever made twice.

    The pieces between messages are read off the tokenizer's own chat template, once. What a policy
    sampled is never encoded again, so a context is the tokens that were sampled, not others that
    spell the same text. An observation cannot end a turn: special tokens in it are plain text.

    Args:
        tokenizer: Of transformers, with a chat template that knows the roles user and assistant.
        stops: Ids that end a turn beside the template's own and the tokenizer's end of sequence.

    Attributes:
        stops: Ids of which each ends a turn.
        stop: The one of them that the template itself ends a turn with.

    Raises:
        ValueError: There is no chat template, or none that renders messages unchanged and in
            order, or nothing ends a turn.
    """

    def __init__(
        self, tokenizer: transformers.PreTrainedTokenizerBase, stops: Iterable[int] = ()
    ) -> None:
        if not tokenizer.chat_template:
            raise ValueError(
                "tokenizer must have a chat_template, got none; set tokenizer.chat_template to one "
                "that renders the roles user and assistant"
            )
        self._tokenizer = tokenizer
        self._fast = _copied(tokenizer)
        seen, said, after = _MARKS
        first = [{"role": "user", "content": seen}]
        second = [{"role": "assistant", "content": said}, {"role": "user", "content": after}]
        before, header = _between(self._rendered(first), [seen])
        start, _, between, last = _between(self._rendered(first + second), list(_MARKS))
        if (start, last) != (before, header):
            raise ValueError(
                "chat_template must begin and go on alike at every turn, got "
                f"{(before, header)!r} and then {(start, last)!r}"
            )
        self._before = self._encoded(before)
        self._header = self._encoded(header)
        self._between = self._encoded(between)
        special = set(tokenizer.all_special_ids)
        closing = next((n for n, i in enumerate(self._between) if i in special), None)
        self._closed = 0 if closing is None else closing + 1
        end = tokenizer.eos_token_id
        if closing is None and end is None:
            raise ValueError(
                "nothing ends a turn: the chat_template has no special token after an assistant's "
                "message, and the tokenizer has no eos_token"
            )
        self.stop: int = end if closing is None else self._between[closing]
        self.stops = frozenset({self.stop, *stops, *([] if end is None else [end])})

    def head(self, obs: str) -> list[int]:
        """All that stands before the first token of the policy.

        Args:
            obs: The first observation.
        """
        return [*self._before, *self.encode(obs), *self._header]

    def reply(self, obs: str, stopped: bool) -> list[int]:
        """All that stands between the last token of one turn and the first of the next.

        Args:
            obs: What the environment answered.
            stopped: Whether the policy ended its turn itself, with one of ``stops``.
        """
        rest = self._between[self._closed :] if stopped else self._between
        return [*rest, *self.encode(obs), *self._header]

    def turn(self, text: str) -> list[int]:
        """A turn as a policy would write it, its end included; for demonstrations."""
        return [*self.encode(text), self.stop]

    def text(self, ids: Sequence[int]) -> str:
        """What a turn says, without the stop token at its end."""
        kept = list(ids[:-1] if len(ids) and ids[-1] in self.stops else ids)
        if self._fast is not None:
            return str(self._fast.decode(kept, skip_special_tokens=False))
        decoded = self._tokenizer.decode(kept, clean_up_tokenization_spaces=False)
        return str(decoded)

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which nothing is a special token."""
        if self._fast is not None:
            return list(self._fast.encode(text, add_special_tokens=False).ids)
        found = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return list(found)

    def spelt(self, before: str, text: str) -> tuple[list[int], int]:
        """Ids of ``before + text``, and at which of them ``text`` begins.

        A token that holds the last of ``before`` and the first of ``text`` belongs to ``text``.
        """
        if self._fast is None:
            ids = self.encode(before)
            return [*ids, *self.encode(text)], len(ids)
        found = self._fast.encode(before + text, add_special_tokens=False)
        ends = (n for n, (_, end) in enumerate(found.offsets) if end > len(before))
        return list(found.ids), next(ends, len(found.ids))

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        try:
            made = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template is a program, which may do anything but run
            raise ValueError(
                f"chat_template must render a conversation, got {type(error).__name__}: {error}"
            ) from error
        return str(made)

    def _encoded(self, piece: str) -> list[int]:
        """Ids of a piece of the template, with its special tokens."""
        found = self._tokenizer.encode(piece, add_special_tokens=False, split_special_tokens=False)
        return list(found)


class Policy:
    """A causal language model with its tokenizer; on a GPU when there is one.

    It is in evaluation mode for good: dropout would make the probabilities of training others than
    those of play.

    Args:
        model: A causal language model of transformers, or a peft model around one.
        tokenizer: Its tokenizer, with a chat template.
        source: Where the weights came from.
        dtype: To compute in; None for that of the weights.

    Attributes:
        template: Text and ids at the borders of turns.
        source: Where the weights came from; None where they were made here.
        dtype: That matrix products are computed in.

    Raises:
        ValueError: The tokenizer has no usable chat template.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: transformers.PreTrainedTokenizerBase,
        *,
        source: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.model: Any = model.eval()
        self.dtype: torch.dtype = dtype or model.dtype
        self.tokenizer = tokenizer
        self.source = source
        told = getattr(model.generation_config, "eos_token_id", None)
        self.template = Template(tokenizer, [told] if isinstance(told, int) else told or [])

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str],
        *,
        device: str = "auto",
        dtype: str | torch.dtype | None = None,
        lora: int | None = None,
        seed: int = 0,
        trained: bool = False,
    ) -> Policy:
        """A policy from a folder or file; nothing is downloaded.

        Args:
            source: A folder as ``save_pretrained`` or :meth:`save` writes it, or a ``.gguf`` file,
                whose weights are unpacked.
            device: ``"auto"`` takes the GPU when there is one, else the CPU.
            dtype: To compute in, and of the weights that do not learn; None for bfloat16 on a GPU
                and float32 elsewhere.
            lora: Rank r of adapters on all linear layers, alpha 2r, which then alone learn; at
                least 1. None for none, or for those that the folder has.
            seed: Of the adapters' first weights.
            trained: Whether it will be: what learns is kept in float32 then, as the steps of a
                learning rate are lost in fewer bits.

        Raises:
            FileNotFoundError: There is nothing at ``source``.
            ValueError: What is there is no causal language model, or an argument is out of range.
        """
        where = Path(source)
        if not where.exists():
            raise FileNotFoundError(
                f"source must be a folder or a .gguf file on this machine, got {str(source)!r}"
            )
        place = _device(device)
        weights = _dtype(dtype, place)
        if trained and weights is torch.float16:
            raise ValueError(
                "dtype must be 'float32' or 'bfloat16' where weights learn, got float16, whose "
                "gradients vanish"
            )
        if (where / ADAPTER).is_file():
            return cls._adapted(where, place, weights, lora)
        mixed = trained and lora is None
        model, tokenizer = _read(where, torch.float32 if mixed else weights)
        path = str(where.resolve())
        if lora is not None:
            model = _with_lora(model, whole("lora", lora, 1), seed, path)
        return cls(model.to(place), tokenizer, source=path, dtype=weights)

    @classmethod
    def _adapted(
        cls, where: Path, place: torch.device, weights: torch.dtype, lora: int | None
    ) -> Policy:
        """The base model that a folder of adapters names, with them."""
        peft = _peft()
        told = json.loads((where / ADAPTER).read_text(encoding="utf-8"))
        if lora not in (None, told.get("r")):
            raise ValueError(
                f"lora must be None or the rank of the adapters in {str(where)!r}, "
                f"{told.get('r')}, got {lora!r}"
            )
        base = Path(told["base_model_name_or_path"] or "")
        if not base.is_absolute() or not base.exists():
            raise FileNotFoundError(
                f"the adapters in {str(where)!r} belong to a model at {str(base)!r}, which is not "
                f"there; put it back, or name its new place in {ADAPTER}"
            )
        model, _ = _read(base, weights)
        tokenizer = _tokenizer(where)
        try:
            with _quiet():
                warnings.simplefilter("ignore", UserWarning)  # of what is missing: told below
                model = peft.PeftModel.from_pretrained(model, str(where), is_trainable=True)
                there = set(load_file(where / WEIGHTS))
        except Exception as error:  # as for a model
            raise ValueError(
                f"source must hold adapters that peft reads, got {str(where)!r}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if lost := sorted(peft.get_peft_model_state_dict(model).keys() - there):
            raise ValueError(
                f"source must hold all adapters of its model, got {str(where)!r} without "
                f"{len(lost)} of them, such as {lost[0]!r}"
            )
        return cls(model.to(place), tokenizer, source=str(where.resolve()))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        found: torch.device = next(self.model.parameters()).device
        return found

    @property
    def context(self) -> int:
        """Tokens of the longest context that the model was made for."""
        longest = getattr(self.model.config, "max_position_embeddings", None)
        return int(longest) if longest else 2**31 - 1

    @property
    def learns(self) -> list[torch.nn.Parameter]:
        """What training changes: the adapters where there are some, else all weights."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def logp(self, ids: Tensor, mask: Tensor, *, temperature: float = 1.0) -> Tensor:
        """Log-probability of each token given those before it, with gradient.

        Args:
            ids: (rows, length) int64, padded on the right with any id.
            mask: (rows, length - 1) bool; column j asks for the token in column j + 1 of ``ids``.
            temperature: That the logits are divided by, in [0.001, 1000].

        Returns:
            (rows, length - 1) float32, at most 0, in nats; 0 where ``mask`` is False.

        Raises:
            ValueError: The shapes do not fit, or ``temperature`` is out of range.
        """
        if ids.ndim != 2 or mask.shape != (ids.shape[0], ids.shape[1] - 1):
            raise ValueError(
                "ids must be (rows, length) and mask (rows, length - 1), got "
                f"{tuple(ids.shape)} and {tuple(mask.shape)}"
            )
        found = ids.new_zeros(mask.shape, dtype=torch.float32)
        if not mask.any():
            return found
        mixed = self.dtype != self.core.dtype
        with torch.autocast(self.device.type, self.dtype, enabled=mixed):
            return found.masked_scatter(mask, self._asked(ids, mask, temperature))

    def _asked(self, ids: Tensor, mask: Tensor, temperature: float) -> Tensor:
        """Log-probabilities of the tokens that ``mask`` asks for, in one row."""
        # Pads need no mask of their own: they stand after all that is asked for.
        core, asked = self.core, ids[:, 1:][mask]
        if core.config.model_type in PLAIN:
            head = core.get_output_embeddings()
            states, rows = self._states(ids[:, :-1], mask), max(1, CHUNK // head.weight.shape[0])
        else:
            states = core(input_ids=ids[:, :-1], use_cache=False).logits[mask]
            head, rows = torch.nn.Identity(), len(states)
        return token_logp(states, head, asked, temperature=temperature, rows=rows)

    def _states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Last hidden states of a model in ``PLAIN``, where ``mask`` is True."""
        core, config = self.core, self.core.config
        # Without a mask this kind of attention is causal; others, and windows, want one made.
        if config._attn_implementation != "sdpa" or getattr(config, "sliding_window", None):
            found: Tensor = core.base_model(input_ids=ids, use_cache=False).last_hidden_state
            return found[mask]
        model = core.model
        x = model.embed_tokens(ids)
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        turned = model.rotary_emb(x, position_ids=places)
        given = {"attention_mask": None, "position_ids": places, "position_embeddings": turned}
        *layers, last = model.layers
        for layer in layers:
            x = layer(x, **given)
        x = x + last.self_attn(hidden_states=last.input_layernorm(x), **given)[0]
        # Nobody looks at the others any more: three quarters of a layer are saved for them.
        rows = x[mask]
        states: Tensor = model.norm(rows + last.mlp(last.post_attention_layernorm(rows)))
        return states

    @property
    def core(self) -> Any:
        """The model of transformers itself, whose layers hold the adapters if there are some."""
        peft = hasattr(self.model, "peft_config")
        return self.model.get_base_model() if peft else self.model

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes weights and tokenizer; with adapters, them and where the rest is.

        All of it is there or nothing: a folder of the same name is replaced only when the new one
        is whole.

        Raises:
            ValueError: There are adapters on a model that is in no file.
            OSError: It cannot be written.
        """
        target = Path(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        made = target.with_name(f".{target.name}.new")
        if (made / "old").exists() and not target.exists():
            os.replace(made / "old", target)  # killed between the two steps of replacing it
        shutil.rmtree(made, ignore_errors=True)  # of one that was killed while writing
        made.mkdir()
        try:
            new = made / "new"
            if hasattr(self.model, "peft_config"):
                self._save_adapters(new)
            else:
                with _quiet():
                    self.model.save_pretrained(new)
            self.tokenizer.save_pretrained(new)
            if target.exists():
                os.replace(target, made / "old")
            os.replace(new, target)
        except SafetensorError as error:
            raise OSError(f"{target} cannot be written: {error}") from error
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _save_adapters(self, folder: Path) -> None:
        base = self.model.peft_config["default"].base_model_name_or_path
        if not base:
            raise ValueError(
                "adapters can be saved only on a model that is in a folder or file itself; save "
                "that first, then load it with lora="
            )
        self.model.save_pretrained(str(folder), save_embedding_layers=False)


def _between(text: str, marks: Sequence[str]) -> list[str]:
    """What stands before, between and after ``marks``, which occur once each and in order."""
    pieces, rest = [], text
    for mark in marks:
        if text.count(mark) != 1 or mark not in rest:
            raise ValueError(
                "chat_template must render each message once, unchanged and in order, got "
                f"{text!r} for messages {list(marks)}"
            )
        piece, _, rest = rest.partition(mark)
        pieces.append(piece)
    return [*pieces, rest]


def _copied(tokenizer: transformers.PreTrainedTokenizerBase) -> Any:
    """The Rust tokenizer by itself, ten times as fast a call, to which nothing is special.

    None where there is none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    twin = type(backend).from_str(backend.to_str())
    twin.no_truncation()
    twin.no_padding()
    twin.encode_special_tokens = True
    return twin


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be 'auto' or one of torch's, got {name!r}") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be one that is there, got {name!r} without CUDA")
    return place


def _dtype(asked: str | torch.dtype | None, place: torch.device) -> torch.dtype:
    if asked is None:
        return torch.bfloat16 if place.type == "cuda" else torch.float32
    for name, kind in DTYPES.items():
        if asked in (name, kind):
            return kind
    raise ValueError(f"dtype must be one of {list(DTYPES)}, got {asked!r}")


def _read(where: Path, weights: torch.dtype) -> tuple[Any, Any]:
    """Model and tokenizer of a folder without adapters, or of a GGUF file."""
    file = where.name if where.is_file() else None
    if file is not None and where.suffix != ".gguf":
        raise ValueError(f"source must be a folder or a .gguf file, got {str(where)!r}")
    folder = str(where.parent if file else where)
    given: dict[str, Any] = {"gguf_file": file} if file else {}
    try:
        with _quiet():
            found: Any = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=weights,
                attn_implementation="sdpa",
                local_files_only=True,
                output_loading_info=True,
                **given,
            )
    except ImportError:
        raise
    except Exception as error:  # whatever a torn or a foreign file makes of its readers
        raise ValueError(
            f"source must hold a causal language model that transformers reads, got "
            f"{str(where)!r}: {type(error).__name__}: {error}"
        ) from error
    model, told = found
    if lost := sorted({*told["missing_keys"], *(key for key, *_ in told["mismatched_keys"])}):
        # transformers would fill them with random numbers, and the policy would just be bad.
        raise ValueError(
            f"source must hold all weights of its model, got {str(where)!r} without {len(lost)} of "
            f"them, such as {lost[0]!r}"
        )
    if file:
        # It is not quantised any more, and saying so would keep it from being saved or trained.
        unpacked: Any = model
        unpacked.is_quantized, unpacked.hf_quantizer = False, None
        if hasattr(unpacked.config, "quantization_config"):
            del unpacked.config.quantization_config
    return model, _tokenizer(where)


def _tokenizer(where: Path) -> Any:
    file = where.name if where.is_file() else None
    given: dict[str, Any] = {"gguf_file": file} if file else {}
    folder = str(where.parent if file else where)
    try:
        with _quiet():
            return transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, **given
            )
    except ImportError:
        raise
    except Exception as error:  # likewise
        raise ValueError(
            f"source must hold a tokenizer that transformers reads, got {str(where)!r}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _with_lora(model: Any, rank: int, seed: int, path: str) -> Any:
    peft = _peft()
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        base_model_name_or_path=path,
    )
    with torch.random.fork_rng(devices=[]), _quiet():
        torch.random.manual_seed(seed)
        made = peft.get_peft_model(model, config)
    made.peft_config["default"].base_model_name_or_path = path
    return made


def _peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'adapters need {error.name}, which is missing; pip install "headway[agents]"',
            name=error.name,
        ) from error
    return peft


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars of transformers, and what it warns its own callers of."""
    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if shown:
            bars.enable_progress_bar()
