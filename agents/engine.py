"""Generation over many turns at once: only new tokens are fed, and nobody waits for a neighbour.

Lanes have a cache each, of which a cursor says how much is valid. A turn is written token by token
together with those of all other lanes that write; what follows it (an observation) is fed in one
piece, for as many lanes as have one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.agents.decoder import Chunk, chunk, decoder
from headway.agents.policy import Policy
from headway.agents.trajectory import TEMPERATURES
from headway.arguments import number, whole

STRIDE = 8
"""Tokens between two looks of the host at what a GPU has written."""

SPARE = 64
"""Tokens beyond the context that may be scored, as far as the model goes."""

FIRST = 256
"""On a CPU lanes have so many columns at first, and twice as many whenever they are too few."""

COLUMNS = 128
"""On a GPU the columns that are looked at are a multiple of this, so that shapes repeat."""


class Stream:
    """Uniform numbers in [0, 1), named by a key: the same in every process and release.

    Args:
        *key: What the stream is for.
    """

    def __init__(self, *key: int | str) -> None:
        digest = sha256(repr(key).encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "big"))

    def draw(self, count: int) -> NDArray[np.float64]:
        """The next ``count`` numbers, multiples of 2**-53."""
        words: NDArray[np.uint64] = self._bits.random_raw(count)
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Written(NamedTuple):
    """A turn that is over.

    Attributes:
        ids: The tokens, in order; the last may be a stop token.
        logp: Of each, under the distribution that it was drawn from.
        stopped: Whether the policy ended it, and not the limit.
    """

    ids: list[int]
    logp: list[float]
    stopped: bool


@dataclass(slots=True)
class _Turn:
    """A turn that is being written."""

    luck: NDArray[np.float64]
    forced: Sequence[int]
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)


class Engine:
    """Lanes that write turns with one policy.

    A turn does not depend on what else is going on: its chance comes from its own numbers, one a
    token, and neither padding nor neighbours reach its cache. So the same trajectory comes out in
    whatever lane and order it is made, up to the rounding of matrix products of other shapes.

    Args:
        policy: Who writes.
        lanes: Most episodes at once, at least 1.
        context: Tokens of the longest context; None for what the model was made for.
        share: Whether a prompt's beginning that some lane has already is copied and not fed.
        dtype: Of the weights that are computed with; None for the policy's.
        fused: Whether to use the short way for Llama and its likes; None for where that can be.
        stride: Tokens between two looks at whether a turn is over; what is written after its end is
            thrown away. None for 1 on a CPU and ``STRIDE`` on a GPU, where a look means waiting.
        compiled: Whether steps are compiled to graphs, which takes a minute at first.

    Attributes:
        longest: Tokens of a context with what is scored after it.
        fed: Tokens that were fed and not sampled.
        shared: Tokens of prompts that were copied.
        scored: Tokens that were fed to be scored, and not kept.

    Raises:
        ValueError: An argument is outside its range, or the model has no cache of this kind.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        lanes: int = 64,
        context: int | None = None,
        share: bool = True,
        dtype: torch.dtype | None = None,
        fused: bool | None = None,
        stride: int | None = None,
        compiled: bool = False,
    ) -> None:
        longest = policy.context
        self.context = longest if context is None else whole("context", context, 2)
        if self.context > longest:
            raise ValueError(f"context must be at most the model's {longest}, got {context!r}")
        self.longest = min(longest, self.context + SPARE)
        self.policy = policy
        self.most = whole("lanes", lanes, 1)
        self.share = share
        self.device = policy.device
        gpu = self.device.type == "cuda"
        self.stride = whole("stride", (STRIDE if gpu else 1) if stride is None else stride, 1)
        self._static = gpu or compiled
        self._decoder = decoder(policy, self.context, dtype, fused)
        self._advance = self._forward
        if compiled:  # with graphs on a GPU, where launching operations is most of a step
            mode = "reduce-overhead" if gpu else "default"
            self._advance = torch.compile(self._forward, mode=mode, dynamic=False)
        self.fed = self.shared = self.scored = 0
        # What is written after a turn's end, and thrown away, needs columns too.
        self._last = max(self.context + self.stride, self.longest)
        # Few contexts are as long as they may be, and zeros take memory on a CPU as well.
        self._columns = self._last if self._static else min(FIRST, self._last)
        self._decoder.clear(self.most, self._columns)
        self.clear()

    def clear(self) -> None:
        """Empties all lanes. What they held stays behind, unseen, until it is overwritten."""
        self.cursor = np.zeros(self.most, np.int64)
        self._ids = np.full((self.most, self.context), -1, np.int64)
        self._pending: list[int | None] = [None] * self.most
        self._turns: dict[int, _Turn] = {}
        self._states: Tensor | None = None

    def _spoilt(self) -> FloatingPointError:
        """What to raise, after the cache that may hold a NaN has been thrown away."""
        self._decoder.clear(self.most, self._columns)
        self.clear()
        return FloatingPointError("the policy's logits are not finite: its weights are spoilt")

    def sync(self) -> None:
        """Takes up the weights that the policy has now; what is cached came from older ones."""
        self._decoder.sync()
        self.clear()

    def __len__(self) -> int:
        return len(self.cursor)

    def room(self, lane: int) -> int:
        """Tokens that still fit into a lane."""
        return self.context - int(self.cursor[lane]) - (self._pending[lane] is not None)

    def spare(self, lane: int) -> int:
        """Tokens that can still be scored behind a lane: some more than fit into it."""
        return self.room(lane) + self.longest - self.context

    def twin(self) -> Engine:
        """An engine with the same weights, as they are now, and empty lanes of its own."""
        made = copy.copy(self)
        made._decoder = copy.copy(self._decoder)
        made._advance = made._forward
        made.fed = made.shared = made.scored = 0
        made._decoder.clear(made.most, made._columns)
        made.clear()
        return made

    def start(self, prompts: Mapping[int, Sequence[int]]) -> None:
        """Puts new contexts into lanes and makes them ready to write.

        Args:
            prompts: Per lane at least 1 token, at most ``context - 1``.

        Raises:
            ValueError: A prompt is too long or has no token.
        """
        for prompt in prompts.values():
            if not 1 <= len(prompt) < self.context:
                raise ValueError(
                    f"a prompt must have from 1 to {self.context - 1} tokens, so that one more "
                    f"fits into the context, got {len(prompt)}"
                )
        first: dict[tuple[int, ...], int] = {}
        twins: list[tuple[int, int]] = []
        rest: dict[int, Sequence[int]] = {}
        found = {lane: self._known(lane, ids, prompts) for lane, ids in prompts.items()}
        for lane, ids in prompts.items():
            key = tuple(ids)
            if self.share and key in first:
                twins.append((first[key], lane))
                continue
            first[key] = lane
            source, known = found[lane]
            if source != lane and known:
                self._decoder.copy(self._lanes([source]), self._lanes([lane]), known)
            self._put(lane, ids[:known])
            self.shared += known
            rest[lane] = ids[known:]
        self.feed(rest)
        if twins:
            sources, targets = (self._lanes(side) for side in zip(*twins, strict=True))
            columns = max(len(prompts[lane]) for _, lane in twins)
            self._decoder.copy(sources, targets, columns)
            assert self._states is not None
            self._states[targets] = self._states[sources]
            for _, lane in twins:
                self._put(lane, prompts[lane])
                self.shared += len(prompts[lane])

    def feed(self, parts: Mapping[int, Sequence[int]]) -> None:
        """Adds tokens to lanes, after the last one that each wrote.

        Args:
            parts: Per lane at least 1 token.

        Raises:
            ValueError: There is no token, or no room for them.
        """
        whole_parts = self._with_pending(parts)
        for lane, part in whole_parts.items():
            if len(part) > self.context - self.cursor[lane]:
                raise ValueError(
                    f"lane {lane} has room for {self.room(lane)} tokens, got {len(parts[lane])}"
                )
        if not whole_parts:
            return
        made = self._chunk(whole_parts)
        states = self._decoder.forward(made)
        lengths = torch.tensor([len(part) for part in whole_parts.values()], device=self.device)
        self._set(self._lanes(list(whole_parts)), states[torch.cumsum(lengths, 0) - 1])
        for lane, part in whole_parts.items():
            at = int(self.cursor[lane])
            self._ids[lane, at : at + len(part)] = part
            self.cursor[lane] = at + len(part)
            self._pending[lane] = None
            self.fed += len(parts[lane])

    def write(self, lane: int, luck: NDArray[np.float64], forced: Sequence[int] = ()) -> None:
        """Lets a lane begin a turn.

        Args:
            lane: One that was fed.
            luck: (limit,) in [0, 1), one number a token; the turn has at most as many.
            forced: Ids that are written whatever the policy wants, at most as many; where there
                are some, the turn ends with them.

        Raises:
            ValueError: There is no number, or no room for so many tokens, or nothing was fed.
        """
        if self._pending[lane] is not None or not self.cursor[lane]:
            raise ValueError(f"lane {lane} must be fed before it can begin a turn")
        if not max(1, len(forced)) <= len(luck) <= self.room(lane):
            raise ValueError(
                f"a turn must have from {max(1, len(forced))} to {self.room(lane)} tokens here, "
                f"got {len(luck)}"
            )
        self._turns[lane] = _Turn(luck, forced)

    @property
    def writing(self) -> int:
        """Lanes that have begun a turn and not ended it."""
        return len(self._turns)

    def step(self, *, temperature: float = 1.0, greedy: bool = False) -> dict[int, Written]:
        """Adds ``stride`` tokens to each turn that is being written.

        Args:
            temperature: That logits are divided by, in [0.001, 1000].
            greedy: Take the likeliest token always; log-probabilities are still those of sampling.

        Returns:
            The turns that are over, by lane.

        Raises:
            ValueError: ``temperature`` is out of range.
            FloatingPointError: The policy's logits are no numbers; all lanes are empty then.
        """
        number("temperature", temperature, TEMPERATURES)
        live = sorted(self._turns)
        if not live:
            return {}
        rows = list(range(len(self))) if self._static else live
        ids, logp = self._drawn(rows, temperature, greedy)
        place = {lane: n for n, lane in enumerate(rows)}
        if not np.isfinite(logp[[place[lane] for lane in live]]).all():
            raise self._spoilt()
        over: dict[int, Written] = {}
        for lane in live:
            turn, row = self._turns[lane], place[lane]
            for made, chance in zip(ids[row].tolist(), logp[row].tolist(), strict=True):
                self._take(lane, turn, made, chance)
                stopped = made in self.policy.template.stops
                if stopped or len(turn.ids) in (len(turn.luck), len(turn.forced)):
                    over[lane] = Written(turn.ids, turn.logp, stopped)
                    del self._turns[lane]
                    break
        return over

    def score(self, parts: Mapping[int, tuple[Sequence[int], int]]) -> dict[int, float]:
        """What the policy thinks of a continuation of each lane, which is not kept.

        Cursors, what is cached up to them, and what is drawn next stay as they are, bit by bit.

        Args:
            parts: Per lane the ids that would follow, and the index of the first that is asked
                for: at least 1, unless the lane has just ended a turn.

        Returns:
            Per lane the mean log-probability of the ids asked for, temperature 1, in nats.

        Raises:
            ValueError: Nothing is asked for, nothing stands before it, or there is no room.
            FloatingPointError: The policy's logits are no numbers; all lanes are empty then.
        """
        if not parts:
            return {}
        added = {lane: self._pending[lane] is not None for lane in parts}
        filled = self._with_pending({lane: ids for lane, (ids, _) in parts.items()})
        asked: list[int] = []
        targets: list[int] = []
        counts, at = [], 0
        for lane, ids in filled.items():
            first = parts[lane][1] + added[lane]
            if not 1 <= first < len(ids) or len(parts[lane][0]) > self.spare(lane):
                raise ValueError(
                    f"lane {lane} can score {self.spare(lane)} tokens, some of which but not the "
                    f"first are asked for, got {len(parts[lane][0])} from {parts[lane][1]} on"
                )
            asked += range(at + first - 1, at + len(ids) - 1)
            targets += ids[first:]
            counts.append(len(ids) - first)
            at += len(ids)
            self.scored += len(ids)
        states = self._decoder.forward(self._chunk(filled))
        logp = F.log_softmax(self._decoder.logits(states[self._lanes(asked)]), -1)
        found = logp.gather(1, self._lanes(targets)[:, None])[:, 0].cpu().double()
        if not found.isfinite().all():
            raise self._spoilt()
        return {
            lane: float(part.mean())
            for lane, part in zip(parts, torch.split(found, counts), strict=True)
        }

    @torch.no_grad()
    def _drawn(
        self, rows: Sequence[int], temperature: float, greedy: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The next ``stride`` tokens of lanes and their log-probabilities, (rows, stride) each."""
        shape = (len(rows), self.stride)
        luck, forced = np.full(shape, 0.5), np.full(shape, -1)
        for row, lane in enumerate(rows):
            turn = self._turns.get(lane)
            if turn is not None:
                for values, given in ((luck, turn.luck), (forced, turn.forced)):
                    now = given[len(turn.ids) : len(turn.ids) + self.stride]
                    values[row, : len(now)] = now
        pending = [self._pending[lane] for lane in rows]
        waits = [last is not None for last in pending]
        lanes, starts = self._lanes(rows), self._lanes(self.cursor)
        last = self._lanes([0 if one is None else one for one in pending])
        fresh = ~torch.tensor(waits, device=self.device)
        must = torch.from_numpy(forced).to(self.device) if (forced >= 0).any() else None
        chance = torch.from_numpy(luck).to(self.device)
        columns = int(self.cursor[list(rows)].max()) + self.stride
        if self._static:
            columns = min(-(-columns // COLUMNS) * COLUMNS, self._last)
        self._reach(columns)
        assert self._states is not None
        states = self._states[lanes]
        ids, logps = [], []
        for n in range(self.stride):
            if self._static or n or all(waits):
                new = self._advance(last, lanes, starts, columns)
                states = new if n or all(waits) else torch.where(fresh[:, None], states, new)
            elif any(waits):
                old = (~fresh).nonzero()[:, 0]
                states[old] = self._advance(last[old], lanes[old], starts, columns)
            last, logp = draw(
                self._decoder.logits(states),
                chance[:, n],
                temperature=temperature,
                greedy=greedy,
                forced=None if must is None else must[:, n],
            )
            ids.append(last)
            logps.append(logp)
            # What was fresh has not been fed yet: its first token goes where a pending one went.
            starts = starts.index_add(
                0, lanes, (~fresh).long() if n == 0 else torch.ones_like(lanes)
            )
        writing = [row for row, lane in enumerate(rows) if lane in self._turns]
        if len(writing) == len(rows):
            self._states[lanes] = states
        else:
            self._states[lanes[writing]] = states[writing]
        return torch.stack(ids, 1).cpu().numpy(), torch.stack(logps, 1).cpu().numpy()

    def _forward(self, ids: Tensor, lanes: Tensor, starts: Tensor, columns: int) -> Tensor:
        """Feeds one token to each of some lanes, at ``starts`` of all lanes."""
        few = len(lanes) * 3 < len(starts)  # then picking them costs less than looking at all
        rows = torch.arange(len(lanes), device=lanes.device) if few else lanes
        made = Chunk(
            ids,
            lanes,
            starts[lanes],
            rows,
            torch.zeros_like(lanes),
            rows=lanes if few else None,
            starts=starts[lanes] if few else starts,
            width=1,
            columns=columns,
        )
        return self._decoder.forward(made)

    def _take(self, lane: int, turn: _Turn, made: int, chance: float) -> None:
        """Books a token: the one before it is cached by now."""
        turn.ids.append(made)
        turn.logp.append(chance)
        before = self._pending[lane]
        if before is not None:
            self._ids[lane, self.cursor[lane]] = before
            self.cursor[lane] += 1
        self._pending[lane] = made

    def _known(
        self, lane: int, ids: Sequence[int], starting: Mapping[int, Sequence[int]]
    ) -> tuple[int, int]:
        """The lane whose cache begins most like ``ids``, and with how many of them.

        One is left to be fed: what comes after it is what a lane begins to write from. A lane that
        is itself to be filled anew can only give to itself.
        """
        if not self.share:
            return lane, 0
        want = np.asarray(ids[:-1], np.int64)
        alike = np.logical_and.accumulate(self._ids[:, : len(want)] == want, axis=1).sum(1)
        alike = np.minimum(alike, self.cursor)
        taken = [other for other in starting if other != lane]
        alike[taken] = 0
        best = lane if alike[lane] == alike.max() else int(alike.argmax())
        return best, int(alike[best])

    def _put(self, lane: int, ids: Sequence[int]) -> None:
        """Says what a lane holds."""
        self._ids[lane, : len(ids)] = ids
        self.cursor[lane] = len(ids)
        self._pending[lane] = None
        self._turns.pop(lane, None)

    def _with_pending(self, parts: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """The parts, after the token that is not cached yet where there is one."""
        found = {}
        for lane, part in parts.items():
            if lane in self._turns or not len(part):
                raise ValueError(
                    f"what is added must have a token and come after a turn, got {len(part)} "
                    f"tokens for lane {lane}, {'in' if lane in self._turns else 'after'} a turn"
                )
            last = self._pending[lane]
            found[lane] = [*([] if last is None else [last]), *part]
        return found

    def _chunk(self, parts: Mapping[int, Sequence[int]]) -> Chunk:
        rows = list(parts)
        starts = [int(self.cursor[lane]) for lane in rows]
        made = chunk(rows, list(parts.values()), starts, device=self.device)
        self._reach(made.columns)
        everyone = rows == list(range(len(self)))
        return replace(made, rows=None) if everyone else made

    def _reach(self, columns: int) -> None:
        """Makes sure that there are so many."""
        if columns > self._columns:
            self._columns = min(self._last, max(columns, 2 * self._columns))
            self._decoder.grow(self._columns)

    def _set(self, lanes: Tensor, states: Tensor) -> None:
        """Keeps what lanes will write from."""
        if self._states is None:
            self._states = states.new_zeros(len(self), states.shape[1])
        self._states[lanes] = states

    def _lanes(self, values: Sequence[int] | NDArray[np.int64]) -> Tensor:
        """Integers as a tensor."""
        return torch.as_tensor(values, dtype=torch.int64).to(self.device)


def draw(
    logits: Tensor,
    luck: Tensor,
    *,
    temperature: float = 1.0,
    greedy: bool = False,
    forced: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One token a row by the inverse of the distribution function, and its log-probability.

    Args:
        logits: (rows, vocabulary) float32.
        luck: (rows,) float64 in [0, 1): the smallest id is taken up to which the probabilities sum
            to more than this.
        temperature: That logits are divided by.
        greedy: Take the likeliest, whatever ``luck`` says.
        forced: (rows,) int64, ids to take instead; -1 for none.

    Returns:
        (rows,) int64 and (rows,) float32.
    """
    logp = F.log_softmax(logits / temperature, -1)
    if greedy:
        ids = logits.argmax(-1)
    else:
        sums = logp.exp().cumsum(-1, dtype=torch.float64)
        # Times the sum, which rounding has made other than 1, so that the last id is not favoured.
        aim = luck[:, None] * sums[:, -1:]
        ids = torch.searchsorted(sums, aim, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)
    if forced is not None:
        ids = torch.where(forced >= 0, forced, ids)
    return ids, logp.gather(1, ids[:, None])[:, 0]
