"""Alarms: what goes wrong in training with dense rewards while the reward goes up.

Three ways are known. A signal that differs within groups where all fail takes over once nothing
else does, and the policy learns to please it (Dark Room). A proxy rises while what it stands for
falls (Goodhart). A reward pays for length. All of them are watched from the trajectories and from
what was made of them; nothing here changes a reward or stops a run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from headway.agents.credit import measured, signal
from headway.agents.routing import Array, Groups
from headway.arguments import number, whole

RISE = 0.02
"""Success or progress that rises by less than this over a window is flat."""

DECAY = 0.5
"""What falls below this share of what it was has decayed; what stays above has not."""

HOLDS = 0.8
"""Updates that keep this share of their size have not become smaller."""

SHARE = 0.5
"""A channel that makes more than this share of all advantages leads."""

LENGTH = 0.5
"""A correlation with length above this is an alarm."""

FEWEST = 30
"""A correlation is of at least so many trajectories."""

Moments = tuple[float, float, float, int]
"""Sums of squares of rewards and of lengths, and of their products, within groups; and how many."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of an update.

    Attributes:
        success: Share of scored trajectories that ended well.
        progress: Their mean progress at the end.
        size: Mean size of the advantages of turns.
        moved: Length of the change of all weights.
        variance: See :func:`failed_variance`.
        share: See :func:`shares`.
        length: Per channel, see :data:`Moments`.
    """

    success: float
    progress: float
    size: float
    moved: float
    variance: Mapping[str, float]
    share: Mapping[str, float]
    length: Mapping[str, Moments]


class Monitor:
    """Watches updates through a window, and says what looks wrong.

    Dark Room: over a full window neither success nor progress has risen, yet some channel leads
    the advantages and still differs between trajectories of groups where all fail. Signals whose
    differences vanish as they are mastered, such as verified progress, are the safe kind. Beside
    the advantages it looks at the updates: an optimiser that divides by the size of the gradient
    makes a signal that was annealed away as loud as it was.

    Args:
        window: Updates, an even int of at least 4: its two halves are compared.

    Raises:
        ValueError: ``window`` is outside its range.

    Source: Dark Room (2026); ODIN (2024) for length.
    """

    def __init__(self, window: int = 20) -> None:
        if whole("window", window, 4) % 2:
            raise ValueError(f"window must be even, got {window}")
        self.seen: deque[Seen] = deque(maxlen=window)

    def observe(
        self,
        groups: Groups,
        advantages: Sequence[Sequence[Array]],
        parts: Mapping[str, Sequence[Sequence[Array]]],
        moved: float,
    ) -> dict[str, Any]:
        """Takes up one update.

        Args:
            groups: What was sampled.
            advantages: What was made of it.
            parts: The same by channel, from :func:`headway.agents.credit.contributions`.
            moved: Length of the change of all weights, in [0, inf).

        Returns:
            Plain data for a log: ``"zero"``, the share of groups that teach nothing;
            ``"variance"``, ``"share"`` and ``"length"`` by channel, the last over the window and
            None where it is not known; ``"alarms"``, texts.

        Raises:
            ValueError: ``moved`` is outside its range.
        """
        number("moved", moved, "[0, inf)")
        scored = [t for group in groups for t in group if measured(t) is not None]
        sizes = [abs(a) for group in advantages for one in group for a in one.tolist()]
        if scored:
            self.seen.append(
                Seen(
                    success=fmean(t.success for t in scored),
                    progress=fmean(float(np.nan_to_num(t.curve[-1])) for t in scored),
                    size=fmean(sizes),
                    moved=float(moved),
                    variance=failed_variance(groups),
                    share=shares(parts),
                    length=moments(groups),
                )
            )
        teaches = signal(advantages)
        last = self.seen[-1] if scored else None
        return {
            "zero": 1.0 - sum(teaches) / max(1, len(teaches)),
            "variance": dict(last.variance) if last else {},
            "share": dict(last.share) if last else {},
            "length": self.lengths(),
            "alarms": [*self._dark(), *self._long()],
        }

    def lengths(self) -> dict[str, float | None]:
        """Correlation of each channel's sum with sampled tokens, within groups, over the window."""
        found: dict[str, float | None] = {}
        for name in dict.fromkeys(name for seen in self.seen for name in seen.length):
            rows = [seen.length[name] for seen in self.seen if name in seen.length]
            rewards, tokens, both, count = (sum(column) for column in zip(*rows, strict=True))
            known = count >= FEWEST and rewards > 0.0 and tokens > 0.0
            found[name] = both / math.sqrt(rewards * tokens) if known else None
        return found

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        rows = [{name: getattr(seen, name) for name in Seen.__slots__} for seen in self.seen]
        return {"window": self.seen.maxlen, "seen": [_plain(row) for row in rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned, through JSON or not.

        Raises:
            ValueError: It is of another window.
        """
        if state["window"] != self.seen.maxlen:
            raise ValueError(f"window must be {self.seen.maxlen}, got {state['window']}")
        self.seen.clear()
        for row in state["seen"]:
            length = {name: (*map(float, m[:3]), int(m[3])) for name, m in row["length"].items()}
            self.seen.append(Seen(**{**row, "length": length}))

    def _dark(self) -> Iterator[str]:
        """Alarms of the Dark Room."""
        if len(self.seen) != self.seen.maxlen:
            return
        rows = list(self.seen)
        early, late = rows[: len(rows) // 2], rows[len(rows) // 2 :]

        def rise(name: str) -> float:
            return fmean(getattr(s, name) for s in late) - fmean(getattr(s, name) for s in early)

        if rise("success") >= RISE or rise("progress") >= RISE:
            return
        names = dict.fromkeys(name for seen in rows for name in seen.share if name != "base")
        for name in names:
            share = fmean(seen.share.get(name, 0.0) for seen in late)
            was, now = (
                [seen.variance[name] for seen in half if name in seen.variance]
                for half in (early, late)
            )
            if share > SHARE and was and now and fmean(now) > DECAY * fmean(was) > 0.0:
                yield (
                    f"dark room: success and progress are flat over {len(rows)} updates, "
                    f"{name!r} makes {share:.0%} of the advantages, and its variance where all "
                    f"fail went from {fmean(was):.2g} to {fmean(now):.2g}"
                )
        size, moved = (
            (fmean(getattr(s, name) for s in early), fmean(getattr(s, name) for s in late))
            for name in ("size", "moved")
        )
        if size[1] < DECAY * size[0] and moved[1] > HOLDS * moved[0] > 0.0:
            yield (
                f"dark room: advantages fell from {size[0]:.2g} to {size[1]:.2g} and updates did "
                f"not ({moved[0]:.2g} to {moved[1]:.2g}), while success and progress are flat"
            )

    def _long(self) -> Iterator[str]:
        """Alarms of length."""
        for name, found in self.lengths().items():
            if found is not None and found > LENGTH:
                yield f"length: {name!r} correlates with sampled tokens, {found:.2f} within groups"


def failed_variance(groups: Groups) -> dict[str, float]:
    """Per channel the variance of its episode sums within a group, on average over failed groups.

    Those are the groups of two or more scored trajectories without a success. Without one the
    result is empty: a variance that was not measured is not 0.
    """
    found: dict[str, list[float]] = {}
    for group in groups:
        paid = [(t, rewards) for t in group if (rewards := measured(t)) is not None]
        if len(paid) < 2 or any(t.success for t, _ in paid):
            continue
        for name in dict.fromkeys(n for _, rewards in paid for n in rewards if n != "base"):
            sums = [float(rewards[name].sum()) if name in rewards else 0.0 for _, rewards in paid]
            found.setdefault(name, []).append(float(np.var(sums)))
    return {name: fmean(values) for name, values in found.items()}


def shares(parts: Mapping[str, Sequence[Sequence[Array]]]) -> dict[str, float]:
    """What part of the size of all advantages each channel makes; they sum to 1, or are all 0.

    Args:
        parts: From :func:`headway.agents.credit.contributions`.
    """
    sizes = {
        name: sum(float(np.abs(a).sum()) for group in part for a in group)
        for name, part in parts.items()
    }
    whole = sum(sizes.values())
    return {name: size / whole if whole > 0.0 else 0.0 for name, size in sizes.items()}


def moments(groups: Groups) -> dict[str, Moments]:
    """Per channel, outcome included, how its episode sums go with sampled tokens within groups."""
    found: dict[str, Moments] = {}
    for group in groups:
        paid = [(t, rewards) for t in group if (rewards := measured(t)) is not None]
        if len(paid) < 2:
            continue
        tokens = np.array([t.sampled for t, _ in paid], dtype=np.float64)
        tokens -= tokens.mean()
        for name in dict.fromkeys(n for _, rewards in paid for n in rewards):
            sums = np.array(
                [rewards[name].sum() if name in rewards else 0.0 for _, rewards in paid]
            )
            sums -= sums.mean()
            old = found.get(name, (0.0, 0.0, 0.0, 0))
            found[name] = (
                old[0] + float(sums @ sums),
                old[1] + float(tokens @ tokens),
                old[2] + float(sums @ tokens),
                old[3] + len(paid),
            )
    return found


class Goodhart:
    """Says when a proxy goes on rising while what it stands for has fallen.

    That is when the last ``patience`` evaluations are all more than ``delta`` below the best, and
    the proxy was on average higher in them than at the best. So it never speaks when the proxy is
    the measure itself, or any rising straight line of it.

    Args:
        delta: Fall of the held-out measure that counts, in [0, inf).
        patience: Evaluations in a row, at least 1.

    Attributes:
        stopped: Whether it has spoken; then nothing that comes later is the best.

    Raises:
        ValueError: An argument is outside its range.

    Source: practical form of Goodhart's Law in Reinforcement Learning, Karwowski et al. (2023);
    :func:`goodhart_stop` is theirs.
    """

    def __init__(self, *, delta: float = 0.02, patience: int = 3) -> None:
        self.delta = number("delta", delta, "[0, inf)")
        self.patience = whole("patience", patience, 1)
        self.seen: list[tuple[float, float]] = []
        self.stopped = False

    @property
    def best(self) -> int | None:
        """Which evaluation was the best, the first of equals; None before the first."""
        if not self.seen:
            return None
        return max(range(len(self.seen)), key=lambda at: self.seen[at][1])

    def observe(self, proxy: float, held_out: float) -> bool:
        """Takes up one evaluation; True from the one on which it is time to stop.

        Args:
            proxy: What is trained on, finite.
            held_out: What it stands for, finite.

        Raises:
            ValueError: A number is not finite.
        """
        pair = tuple(
            number(name, value, "(-inf, inf)")
            for name, value in (("proxy", proxy), ("held_out", held_out))
        )
        if self.stopped:
            return True
        self.seen.append((pair[0], pair[1]))
        top = self.best
        last = self.seen[-self.patience :]
        if top is None or len(self.seen) - top <= self.patience:
            return False
        fell = all(held < self.seen[top][1] - self.delta for _, held in last)
        self.stopped = fell and fmean(p for p, _ in last) > self.seen[top][0]
        return self.stopped

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"seen": [list(pair) for pair in self.seen], "stopped": self.stopped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` returned."""
        self.seen = [(float(proxy), float(held)) for proxy, held in state["seen"]]
        self.stopped = bool(state["stopped"])


def occupancy(policy: Array, chances: Array, start: Array, gamma: float) -> Array:
    """How often each action is taken in each state, discounted.

    Args:
        policy: (states, actions), rows sum to 1.
        chances: (states, actions, states), of what comes next; rows sum to 1.
        start: (states,), sums to 1.
        gamma: In (0, 1).

    Returns:
        (states, actions); sums to ``1 / (1 - gamma)``. Times a reward it is the return.
    """
    gamma = number("gamma", gamma, "(0, 1)")
    moves = np.einsum("sa,sat->st", policy, chances)
    visits = np.linalg.solve(np.eye(len(start)) - gamma * moves.T, start)
    found: Array = visits[:, None] * policy
    return found


def goodhart_stop(
    now: Array, after: Array, proxy: Array, theta: float, chances: Array, gamma: float
) -> bool:
    """Whether a step of a tabular policy may no longer help what the proxy stands for.

    With d the change of occupancy, and M the projection on directions in which occupancies can
    change: stop if ``d . proxy / |d| < sin(theta) * |M proxy|``. A step that is let pass raises
    every reward whose part in M is within ``theta`` of the proxy's.

    Args:
        now: (states, actions), see :func:`occupancy`.
        after: Same shape, after the step.
        proxy: Same shape, the reward that is optimised.
        theta: Largest angle between proxy and true reward, in [0, pi / 2], in radians.
        chances: (states, actions, states).
        gamma: In (0, 1).

    Raises:
        ValueError: ``theta`` or ``gamma`` is outside its range.

    Source: Karwowski et al. (2023).
    """
    theta = number("theta", theta, f"[0, {math.pi / 2}]")
    step = (after - now).reshape(-1)
    length = float(np.linalg.norm(step))
    if length == 0.0:
        return True
    size = float(np.linalg.norm(projection(chances, gamma) @ proxy.reshape(-1)))
    return float(step @ proxy.reshape(-1)) / length < math.sin(theta) * size


def projection(chances: Array, gamma: float) -> Array:
    """On the directions in which occupancies of policies differ from each other.

    Args:
        chances: (states, actions, states).
        gamma: In (0, 1).

    Returns:
        (states * actions, states * actions), symmetric and idempotent.

    Raises:
        ValueError: ``gamma`` is outside its range.
    """
    gamma = number("gamma", gamma, "(0, 1)")
    states, actions, _ = chances.shape
    # The flow out of each state less that into it is fixed by the start.
    flow = np.repeat(np.eye(states), actions, axis=1) - gamma * chances.reshape(-1, states).T
    found: Array = np.eye(states * actions) - np.linalg.pinv(flow) @ flow
    return found


def _plain(value: Any) -> Any:
    """Mappings and tuples as JSON has them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
