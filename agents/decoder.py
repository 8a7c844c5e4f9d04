"""Forward passes over a cache of keys and values that lanes of different lengths share.

Position is column: a token of a lane at position p has its keys in column p, and sees the columns
up to p. So nothing has to be padded on the left, and what stands behind a lane's last token cannot
be seen by anything before it is overwritten.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from headway.agents.policy import PLAIN, Policy

FUSED = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Kinds of models that :class:`Fused` computes."""

STILL = frozenset({"default", "linear", "llama3"})
"""Kinds of rotary embeddings whose angles do not depend on the length of the context."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens to be fed, those of all lanes in one row.

    Attributes:
        ids: (tokens,) int64.
        lane: (tokens,) int64, the row of the cache.
        position: (tokens,) int64, the column.
        row: (tokens,) int64, which row of ``rows``.
        offset: (tokens,) int64, which of the row's tokens.
        rows: (rows,) int64, the lane of each row; None where row is lane, for all lanes.
        starts: (rows,) int64, position of the first token of each row.
        width: Tokens of the longest row.
        columns: Columns that are looked at: all positions are below it.
    """

    ids: Tensor
    lane: Tensor
    position: Tensor
    row: Tensor
    offset: Tensor
    rows: Tensor | None
    starts: Tensor
    width: int
    columns: int

    def mask(self, dtype: torch.dtype) -> Tensor:
        """(rows, 1, width, columns): 0 where a token may look, else -inf."""
        device = self.starts.device
        here = self.starts[:, None] + torch.arange(self.width, device=device)
        hidden = torch.arange(self.columns, device=device) > here[:, None, :, None]
        found = torch.zeros(hidden.shape, dtype=dtype, device=device)
        return found.masked_fill_(hidden, float("-inf"))

    def seen(self, cache: Tensor) -> Tensor:
        """(rows, heads, columns, dim), what is looked at of the keys or values of a layer."""
        cut = cache[:, :, : self.columns]
        return cut if self.rows is None else cut[self.rows]

    def padded(self, packed: Tensor) -> Tensor:
        """(rows, width, ...) from (tokens, ...); 0 where there is no token."""
        shape = (len(self.starts), self.width, *packed.shape[1:])
        if self.width == 1 and len(packed) == len(self.starts):
            return packed.view(shape)  # every lane has its one token
        found = packed.new_zeros(shape)
        found[self.row, self.offset] = packed
        return found

    def packed(self, padded: Tensor) -> Tensor:
        """(tokens, ...) from (rows, width, ...)."""
        if self.width == 1 and len(self.ids) == len(self.starts):
            return padded[:, 0]
        return padded[self.row, self.offset]


class Decoder(ABC):
    """A model with a cache, of which the caller keeps the books.

    Attributes:
        keys: One a layer, (lanes, heads, columns, dim).
        values: Likewise.
    """

    keys: list[Tensor]
    values: list[Tensor]

    @abstractmethod
    def sync(self) -> None:
        """Takes up the weights that the policy has now."""

    @abstractmethod
    def forward(self, chunk: Chunk) -> Tensor:
        """Feeds tokens and keeps their keys and values; (tokens, size), what ``logits`` wants."""

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """(tokens, vocabulary) float32 from some of what ``forward`` returned."""

    def clear(self, lanes: int, columns: int) -> None:
        """Makes a new cache; what was in the old one is forgotten."""
        # Zeros, not whatever was there: a hidden NaN would still make a NaN of what it is added to.
        self.keys = [t.new_zeros(lanes, t.shape[1], columns, t.shape[3]) for t in self.keys]
        self.values = [t.new_zeros(lanes, t.shape[1], columns, t.shape[3]) for t in self.values]

    def grow(self, columns: int) -> None:
        """Adds columns; what is in the others stays."""
        for caches in (self.keys, self.values):
            for n, old in enumerate(caches):
                caches[n] = F.pad(old, (0, 0, 0, columns - old.shape[2]))

    def copy(self, source: Tensor, target: Tensor, columns: int) -> None:
        """Copies the first columns of lanes to other lanes."""
        for cache in (*self.keys, *self.values):
            cache[target, :, :columns] = cache[source, :, :columns]


def decoder(policy: Policy, context: int, dtype: torch.dtype | None, fused: bool | None) -> Decoder:
    """The fastest decoder for a policy.

    Args:
        policy: Whose weights are used.
        context: Tokens of the longest context.
        dtype: Of the weights that are computed with; None for that of the policy.
        fused: Whether it has to be :class:`Fused`; None for where that can be.

    Raises:
        ValueError: The model cannot be computed as asked.
    """
    config = policy.core.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) or context
    if kinds - {"full_attention", "sliding_attention"} or window < context:
        raise ValueError(
            f"a policy must see its whole context of {context} in every layer, got a "
            f"{config.model_type} with layers {sorted(kinds)} and a window of {window}"
        )
    can = _can_be_fused(config)
    if fused and not can:
        raise ValueError(
            f"fused must be None or False for a {config.model_type}; it can be True for "
            f"{sorted(FUSED)} with silu and rotary embeddings of kinds {sorted(STILL)}"
        )
    if can and fused is not False:
        return Fused(policy, dtype)
    if dtype not in (None, policy.core.dtype):
        raise ValueError(f"dtype must be the policy's, {policy.core.dtype}, or None, got {dtype!r}")
    return Plain(policy)


class _Block(NamedTuple):
    """Weights of one layer, those that see the same input in one."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    norm2: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


class Fused(Decoder):
    """Llama and its likes computed here, on a copy of the weights with adapters merged in.

    Linear layers see the tokens of all lanes without any padding; only attention is padded. A
    forward pass of few tokens is a matter of how many operations it takes, and these are half of
    those of the general path.
    """

    def __init__(self, policy: Policy, dtype: torch.dtype | None) -> None:
        self.policy = policy
        config = policy.core.config
        self.dtype = dtype or policy.dtype
        self.heads = config.num_attention_heads
        self.groups = getattr(config, "num_key_value_heads", None) or self.heads
        self.dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        empty = torch.empty(0, self.groups, 0, self.dim, dtype=self.dtype, device=policy.device)
        self.keys = [empty] * config.num_hidden_layers
        self.values = [empty] * config.num_hidden_layers
        self.turns: tuple[Tensor, Tensor] = (empty, empty)
        self.sync()

    @torch.no_grad()
    def sync(self) -> None:
        """Copies the weights, merged."""
        model = self.policy.core.model
        self.blocks = [self._block(layer) for layer in model.layers]
        self.embedding = self._cast(model.embed_tokens.weight)
        self.norm = self._cast(model.norm.weight)
        head = self.policy.core.get_output_embeddings().weight
        tied = head is model.embed_tokens.weight
        self.head = self.embedding if tied else self._cast(head)

    def clear(self, lanes: int, columns: int) -> None:
        """An empty cache, and the angles of its columns."""
        super().clear(lanes, columns)
        self._angles(columns)

    def grow(self, columns: int) -> None:
        """Adds columns and their angles."""
        super().grow(columns)
        self._angles(columns)

    def _angles(self, columns: int) -> None:
        places = torch.arange(columns, device=self.policy.device)[None]
        like = torch.empty(0, dtype=torch.float32, device=self.policy.device)
        cos, sin = self.policy.core.model.rotary_emb(like, position_ids=places)
        half = self.dim // 2
        sign = torch.ones(self.dim, device=sin.device)
        sign[:half] = -1.0
        # Turned by a roll: a half against the other with its sign changed is what Llama does.
        self.turns = (
            cos[0].to(self.dtype)[:, None],
            (sin[0] * sign).to(self.dtype)[:, None],
        )

    @torch.no_grad()
    def forward(self, chunk: Chunk) -> Tensor:
        """Last hidden states, (tokens, width of the model)."""
        heads, groups, dim = self.heads, self.groups, self.dim
        share, half = heads // groups, dim // 2
        cos, sin = self.turns[0][chunk.position], self.turns[1][chunk.position]
        mask = chunk.mask(self.dtype)
        if share > 1 and chunk.width > 1:
            mask = mask.repeat(1, 1, share, 1)
        x = self.embedding[chunk.ids]
        size = (x.shape[-1],)
        for n, block in enumerate(self.blocks):
            seen = F.rms_norm(x, size, block.norm, self.eps)
            made = F.linear(seen, block.qkv, block.qkv_bias).view(-1, heads + 2 * groups, dim)
            qk, v = made[:, : heads + groups], made[:, heads + groups :]
            if block.qk_norm is not None:
                qk = F.rms_norm(qk, (dim,), None, self.eps) * block.qk_norm
            qk = torch.addcmul(qk * cos, qk.roll(half, -1), sin)
            keys, values = self.keys[n], self.values[n]
            keys[chunk.lane, :, chunk.position] = qk[:, heads:]
            values[chunk.lane, :, chunk.position] = v
            keys, values = chunk.seen(keys), chunk.seen(values)
            # Heads that share keys stand side by side as further queries, so nothing is repeated.
            q = chunk.padded(qk[:, :heads])
            q = q.view(len(q), chunk.width, groups, share, dim)
            found = F.scaled_dot_product_attention(
                q.permute(0, 2, 3, 1, 4).reshape(len(q), groups, share * chunk.width, dim),
                keys,
                values,
                attn_mask=mask,
            )
            found = found.view(len(q), groups, share, chunk.width, dim).permute(0, 3, 1, 2, 4)
            found = chunk.packed(found.reshape(len(q), chunk.width, heads * dim))
            x = x + F.linear(found, block.out, block.out_bias)
            seen = F.rms_norm(x, size, block.norm2, self.eps)
            gate, up = F.linear(seen, block.gate_up, block.gate_up_bias).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, block.down, block.down_bias)
        return F.rms_norm(x, size, self.norm, self.eps)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """(tokens, vocabulary) float32."""
        return F.linear(states, self.head).float()

    def _block(self, layer: Any) -> _Block:
        attention, mlp = layer.self_attn, layer.mlp
        return _Block(
            self._cast(layer.input_layernorm.weight),
            *self._joined(attention.q_proj, attention.k_proj, attention.v_proj),
            self._head_norms(attention),
            *self._joined(attention.o_proj),
            self._cast(layer.post_attention_layernorm.weight),
            *self._joined(mlp.gate_proj, mlp.up_proj),
            *self._joined(mlp.down_proj),
        )

    def _head_norms(self, attention: Any) -> Tensor | None:
        """(heads that ask and heads that are looked at, dim), where a model has such."""
        if not hasattr(attention, "q_norm"):
            return None
        asks = attention.q_norm.weight.expand(self.heads, -1)
        looked_at = attention.k_norm.weight.expand(self.groups, -1)
        return self._cast(torch.cat([asks, looked_at]))

    def _joined(self, *linears: Any) -> tuple[Tensor, Tensor | None]:
        weights, biases = [], []
        for linear in linears:
            weight = linear.weight
            for name in getattr(linear, "active_adapters", ()):
                weight = weight + linear.get_delta_weight(name)
            weights.append(weight)
            if linear.bias is not None:
                biases.append(linear.bias)
        joined = self._cast(torch.cat(weights) if len(weights) > 1 else weights[0])
        return joined, self._cast(torch.cat(biases)) if biases else None

    def _cast(self, weight: Tensor) -> Tensor:
        """A copy: training changes its weights in place, in the middle of nobody's turn."""
        return weight.detach().to(self.dtype, copy=True)


class Plain(Decoder):
    """Any causal language model of transformers that has keys and values and nothing else."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        core = policy.core
        self.headed = core.config.model_type in PLAIN
        self.keys, self.values = [], []
        self.size = (0, 0)
        takes = inspect.signature(core.forward).parameters
        self.name = "cache" if "cache" in takes else "past_key_values"
        self.limit = policy.context

    def sync(self) -> None:
        """Nothing: these are the policy's own weights."""

    def clear(self, lanes: int, columns: int) -> None:
        """An empty cache; its tensors are made when the first layer says what they look like."""
        self.keys, self.values, self.size = [], [], (lanes, columns)

    def grow(self, columns: int) -> None:
        """Adds columns, to tensors that are there and to those that are made later."""
        super().grow(columns)
        self.size = (self.size[0], columns)

    @torch.no_grad()
    def forward(self, chunk: Chunk) -> Tensor:
        """Last hidden states, or logits where the model makes them in a way of its own."""
        core = self.policy.core
        places = chunk.starts[:, None] + torch.arange(chunk.width, device=chunk.ids.device)
        given = {
            "input_ids": chunk.padded(chunk.ids),
            "position_ids": places.clamp(max=self.limit - 1),  # those of pads may be anything
            "attention_mask": chunk.mask(core.dtype),
            "use_cache": True,
            self.name: _Lanes(self, chunk),
        }
        if self.headed:
            found: Tensor = core.base_model(**given).last_hidden_state
        else:
            found = core(**given).logits
        return chunk.packed(found)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """(tokens, vocabulary) float32."""
        if not self.headed:
            return states.float()
        found: Tensor = self.policy.core.get_output_embeddings()(states)
        return found.float()


class _Lanes(Cache):
    """What transformers takes for its own cache of one forward pass."""

    def __init__(self, decoder: Plain, chunk: Chunk) -> None:
        layers = decoder.policy.core.config.num_hidden_layers
        super().__init__(layers=[_Layer(decoder, chunk, n) for n in range(layers)])


class _Layer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """The keys and values of one layer."""

    is_sliding = False

    def __init__(self, decoder: Plain, chunk: Chunk, number: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decoder, self.chunk, self.number = decoder, chunk, number

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Makes the tensors once it is known how many heads of what size there are."""
        if len(self.decoder.keys) == self.number:
            lanes, columns = self.decoder.size
            for store, like in (
                (self.decoder.keys, key_states),
                (self.decoder.values, value_states),
            ):
                store.append(like.new_zeros(lanes, like.shape[1], columns, like.shape[3]))

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keeps what is new, at its place, and returns all that can be looked at."""
        self.lazy_initialization(key_states, value_states)
        chunk, found = self.chunk, []
        for store, new in (
            (self.decoder.keys, key_states),
            (self.decoder.values, value_states),
        ):
            cache = store[self.number]
            cache[chunk.lane, :, chunk.position] = chunk.packed(new.transpose(1, 2))
            found.append(chunk.seen(cache))
        return found[0], found[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that are looked at, and the first of them."""
        return self.chunk.columns, 0

    def get_seq_length(self) -> int:
        """Columns that were filled before this pass, in the longest lane."""
        return self.chunk.columns - self.chunk.width

    def get_max_length(self) -> int:
        """Columns that there are."""
        return self.decoder.size[1]


def chunk(
    rows: Sequence[int],
    parts: Sequence[Sequence[int]],
    starts: Sequence[int],
    *,
    device: torch.device,
) -> Chunk:
    """Tokens for some lanes.

    Args:
        rows: The lanes, none twice.
        parts: The ids of each, at least one.
        starts: The position of the first of each.
        device: Of the tensors.
    """
    lengths = torch.tensor([len(part) for part in parts])
    row = torch.repeat_interleave(torch.arange(len(parts)), lengths)
    firsts = torch.cumsum(lengths, 0) - lengths
    offset = torch.arange(len(row)) - firsts[row]
    lanes, begins = torch.tensor(rows), torch.tensor(starts)
    position = begins[row] + offset
    ids = torch.tensor([i for part in parts for i in part])
    return Chunk(
        *(ids.to(device), lanes[row].to(device), position.to(device)),
        *(row.to(device), offset.to(device), lanes.to(device), begins.to(device)),
        width=int(lengths.max()),
        columns=int(position.max()) + 1,
    )


def _can_be_fused(config: Any) -> bool:
    turned = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in FUSED
        and config.hidden_act == "silu"
        and turned.get("rope_type", "default") in STILL
    )
