"""What makes an environment that knows nothing of headway gradable."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium as gym

from headway.verifiers import KINDS, Acceptance, Grader, Kind, Row, Table, Verdict, View, settle


class Graded(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs, ABC):
    """Adds ``grade()`` to a foreign environment, so that reward layers work around it.

    A subclass says how the state reads as tables of rows, and what has to become true of them;
    ``examples/foreign_taxi.py`` does so in 20 lines. Observations, actions and rewards stay as
    they are. The table ``"submission"`` is kept here: empty until the environment ends the
    episode, so an episode that ended counts as submitted.

    Args:
        env: The environment, with the time limit that it shall have.

    Attributes:
        kinds: The check kinds that ``acceptance()`` may name.
    """

    kinds: ClassVar[Mapping[str, Kind]] = KINDS

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._grader: Grader | None = None

    @abstractmethod
    def tables(self) -> Mapping[str, Mapping[str, Row]]:
        """The state as it stands: ``{table: {key: row}}``, plain JSON values."""

    @abstractmethod
    def acceptance(self) -> Acceptance:
        """What the running episode has to reach; asked once, right after its reset.

        Any change in a table that ``writes`` does not allow is a violation.
        """

    def grade(self) -> Verdict:
        """The verdict on the state as it stands, computed at most once a turn.

        Raises:
            ResetNeeded: No episode is running.
        """
        if self._grader is None:
            raise gym.error.ResetNeeded("nothing can be graded yet; call reset() first")
        return self._grader(self)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode. Checks that hold from its start become guards.

        Raises:
            ValueError: ``acceptance()`` does not fit the check kinds or the tables.
        """
        obs, info = self.env.reset(seed=seed, options=options)
        self._turn, self._ended = 0, False
        self._now: dict[str, Table] = {}
        self._read()
        self._start = _Tables(self._now)
        acceptance = self.acceptance()
        if not acceptance.start:
            text = json.dumps(self._now, sort_keys=True, ensure_ascii=False)
            acceptance = replace(acceptance, start=hashlib.sha256(text.encode()).hexdigest()[:16])
        self._grader = Grader(settle(acceptance, self, self.kinds), self.kinds)
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one turn; the state is read only if somebody grades it."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._turn += 1
        self._ended = bool(terminated or truncated)
        return obs, float(reward), bool(terminated), bool(truncated), info

    # The Gradable protocol.

    @property
    def start(self) -> View:
        """The state at reset."""
        return self._start

    def table(self, name: str) -> Table:
        """The rows of one table as they were last read; the same object means the same rows."""
        return self._now.get(name, {})

    def names(self) -> tuple[str, ...]:
        """Every table but ``"seen"`` and ``"submission"``, gone ones included."""
        both = {**self._start.tables, **self._now}
        return tuple(name for name in both if name not in ("seen", "submission"))

    def stamp(self) -> int:
        """The turn; reads the state, once, so that a failure to read is *no verdict*."""
        if self._read_at != self._turn:
            self._read()
        return self._turn

    def _read(self) -> None:
        # Copies: some environments keep one object and change it in place.
        fresh: dict[str, Table] = {
            name: {key: dict(row) for key, row in rows.items()}
            for name, rows in self.tables().items()
        }
        fresh["submission"] = {"end": {}} if self._ended else {}
        was = self._now
        self._now = {n: was[n] if was.get(n) == rows else rows for n, rows in fresh.items()}
        self._read_at = self._turn


class _Tables:
    """A state that stands still."""

    def __init__(self, tables: dict[str, Table]) -> None:
        self.tables = tables

    def table(self, name: str) -> Table:
        return self.tables.get(name, {})
