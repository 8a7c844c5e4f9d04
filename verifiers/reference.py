"""How near the calls of an episode come to one right sequence of calls."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headway.arguments import number
from headway.verifiers.check import Verdict
from headway.verifiers.signal import Look, Potential, measured, told

Call = Mapping[str, Any]
"""``{"tool": name or None, "args": {name: JSON value}}``; None where no call could be read."""

SUBMIT = "submit"
"""The call that hands in: no part of the work, and its answer is judged by itself."""

Floats = npt.NDArray[np.float64]


def similarity(call: Call, wanted: Call) -> float:
    """How much of a wanted call another call is, in [0, 1].

    0.0 for another tool; else the tool counts as one point, the Jaccard index of the parameter
    names as one, and each wanted parameter with the wanted value as one, over the points there
    are. Values are equal if they are the same JSON, numbers by value.

    Args:
        call: The call that was made.
        wanted: The call of the reference.

    Source: MatchTIR (2026).
    """
    if call["tool"] is None or call["tool"] != wanted["tool"]:
        return 0.0
    given, right = call["args"], wanted["args"]
    names = set(given) | set(right)
    shared = len(set(given) & set(right)) / len(names) if names else 1.0
    same = sum(name in given and _plain(given[name]) == _plain(right[name]) for name in right)
    return (1.0 + shared + same) / (2.0 + len(right))


def similarities(calls: Sequence[Call], wanted: Sequence[Call]) -> Floats:
    """``similarity`` of each call to each wanted one: float64, (calls, wanted)."""
    rows = [[similarity(call, one) for one in wanted] for call in calls]
    return np.array(rows, dtype=np.float64).reshape(len(calls), len(wanted))


def assignment(sims: Floats) -> list[tuple[int, int]]:
    """The one-to-one pairs of the greatest total similarity, those of 0.0 left out.

    Args:
        sims: In [0, 1], (calls, wanted).

    Returns:
        Pairs ``(call, wanted)`` by call. Of equally good pairings it is one with early calls and
        early wanted ones, in their order.

    Raises:
        ImportError: scipy is missing.

    Source: MatchTIR (2026), whose public code takes the best pair first, which is not optimal.
    """
    solve = _solver()
    rows, columns = np.indices(sims.shape)
    size = max(1, sims.size)
    order = rows * columns - size * (rows + columns)  # far less than two similarities differ by
    pairs = solve(sims + order * (1e-9 / size**2), maximize=True)
    return [(int(i), int(j)) for i, j in zip(*pairs, strict=True) if sims[i, j] > 0.0]


def matched(sims: Floats) -> list[float]:
    """What each call gets: the similarity to what it is paired with, 0.0 if that is nothing.

    Args:
        sims: In [0, 1], (calls, wanted).

    Raises:
        ImportError: scipy is missing.
    """
    rewards = [0.0] * len(sims)
    for call, wanted in assignment(sims):
        rewards[call] = float(sims[call, wanted])
    return rewards


def transported(sims: Floats, *, reg: float = 0.1) -> list[float]:
    """What each call gets if calls are spread over the wanted ones: ``sum_q T[p, q] * sim[p, q]``.

    T moves equal shares of 1 from the calls to equal shares at the wanted ones, at the least
    ``sum(T * -sims) + reg * sum(T * log(T))``. All calls together get at most 1.

    Args:
        sims: In [0, 1], (calls, wanted).
        reg: In (0, inf); the smaller, the nearer to a one-to-one matching.

    Raises:
        ValueError: ``reg`` is outside its range.

    For trainers, which may spread a turn's credit so: no layer of headway does yet.

    Source: MatchTIR (2026); Cuturi (2013).
    """
    reg = number("reg", reg, "(0, inf)")
    if not sims.size:
        return [0.0] * len(sims)
    n, m = sims.shape
    a, b = np.full(n, -np.log(n)), np.full(m, -np.log(m))
    kernel = sims / reg
    g = np.zeros(m)
    for _ in range(10_000):
        f = a - np.logaddexp.reduce(kernel + g, axis=1)
        g = b - np.logaddexp.reduce(kernel + f[:, None], axis=0)
        plan = np.exp(kernel + f[:, None] + g)
        if np.abs(plan.sum(axis=1) - 1.0 / n).max() < 1e-12:
            break
    return [float(x) for x in (plan * sims).sum(axis=1)]


def wanted_calls(look: Look) -> list[Call]:
    """The calls of the environment's ``reference()`` but those that hand in; none without one."""
    return [call for call in told(look, "reference") if call["tool"] != SUBMIT]


def submits(info: Mapping[str, Any]) -> bool:
    """Whether a turn tried to hand in, with success or not."""
    return any(call["tool"] == SUBMIT for call in info.get("calls", ()))


def handed_in(info: Mapping[str, Any]) -> str | None:
    """The answer that a turn handed in; None if it was none, or no text."""
    answer = None
    for call in info.get("calls", ()):
        if call["tool"] == SUBMIT and not call.get("error"):
            answer = call["args"].get("answer")
    return answer if isinstance(answer, str) else None


def answer_score(said: str, right: Sequence[str]) -> float:
    """F1 of the words of an answer, in [0, 1]: the best over the right ones, 0.0 without any.

    Case, signs and Unicode form do not matter; a word counts as often as it stands in both.
    """
    return max((_f1(_words(said), _words(one)) for one in right), default=0.0)


class Match(Potential):
    """The greatest total similarity of the calls so far to one right sequence, over its length.

    Each wanted call is matched by at most one call, and each call with at most one. So the value
    never falls, a call made again or too much adds nothing, and it is 1.0 once everything wanted
    was called exactly. Calls that failed count as none, and handing in is no part of it. None
    without a reference.

    Source: MatchTIR (2026), online.
    """

    name = "match"
    hears = True
    memory: ClassVar[tuple[str, ...]] = ("wanted", "rows", "total")

    def __init__(self) -> None:
        _solver()
        self.wanted: list[dict[str, Any]] = []
        self.rows: list[list[float]] = []
        self.total = 0.0

    def hear(self, action: Any, observation: Any, info: Mapping[str, Any], look: Look) -> None:
        """Takes in the calls of a turn; at reset the reference."""
        if action is None:
            calls = wanted_calls(look)
            self.wanted = [{"tool": call["tool"], "args": dict(call["args"])} for call in calls]
            self.rows, self.total = [], 0.0
            return
        known = len(self.rows)
        for call in info.get("calls", ()):
            if call.get("error"):
                continue
            row = [similarity(call, one) for one in self.wanted]
            # More of a kind than could ever be paired, or nothing like any, changes no total.
            if any(row) and self.rows.count(row) < len(row):
                self.rows.append(row)
        if len(self.rows) > known:
            self.total = max(self.total, sum(matched(np.array(self.rows))))

    def value(self, verdict: Verdict) -> float | None:
        """In [0, 1]; ValueError on *no verdict*."""
        measured(verdict)
        return min(1.0, self.total / len(self.wanted)) if self.wanted else None


def _plain(value: Any) -> str:
    """A JSON value as a text that equal values share; 1 and 1.0 are equal, 1 and true are not."""
    return json.dumps(_whole(value), sort_keys=True, default=str)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list | tuple) else value


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def _f1(said: Counter[str], right: Counter[str]) -> float:
    shared = (said & right).total()
    return 2.0 * shared / (said.total() + right.total()) if shared else 0.0


def _solver() -> Any:
    try:
        from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError('matching calls needs scipy: pip install "headway[rewards]"') from error
    return linear_sum_assignment
