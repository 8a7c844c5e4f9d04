"""The live state of an in-memory world."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headway.envs.tools import Tool, ToolError, unknown_tool
from headway.envs.wording import reply_text
from headway.verifiers.view import Row, Table

NOTHING: Table = {}
"""The table that is not there."""


class SandboxDied(RuntimeError):
    """The box is gone.

    Attributes:
        by: ``"agent"`` ends the episode with what was verified last; ``"infra"`` is the machine's
            failure and leaves the episode without a result.
    """

    def __init__(self, message: str, *, by: Literal["agent", "infra"]) -> None:
        super().__init__(message)
        self.by = by

    def __reduce__(self) -> tuple[Any, ...]:
        """Crosses process boundaries with ``by`` intact."""
        return _revive, (str(self), self.by)


def _revive(message: str, by: Literal["agent", "infra"]) -> SandboxDied:
    return SandboxDied(message, by=by)


@dataclass(slots=True)  # frozen, it would take three times as long to make, at every call
class Reply:
    """What one tool call came to; not to be changed.

    Attributes:
        text: As the agent would read it, uncut.
        value: The result before it became text; None for an error.
        error: True when the agent is told of a mistake.
        retry: True when the same call will work if it is made again.
        seen: Records shown in full, which become evidence if the text reaches the agent.
        listed: Records returned by a search.
    """

    text: str
    value: Any = None
    error: bool = False
    retry: bool = False
    seen: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()


class Tables:
    """A frozen state: the view that a box starts from."""

    __slots__ = ("_tables",)

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables

    def table(self, name: str) -> Table:
        """The rows of one table; empty where there is none."""
        return self._tables.get(name, NOTHING)


class Box:
    """Named tables of rows, and the tools that act on them.

    A write replaces the table and never edits it in place, so a reference to a table is a
    snapshot of it: forks share what neither has changed, and a grader keeps what it found.

    Args:
        tables: Initial state.
        tools: Tools by name.
        flaky: Tools whose first call fails with an error that a retry cures.
        hidden: Tables that belong to the task and not to the world: what a user knows.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        tools: Mapping[str, Tool],
        flaky: Iterable[str] = (),
        hidden: Mapping[str, Table] | None = None,
    ) -> None:
        self.start = Tables(tables)
        self._names = tuple(tables)
        self._tools = tools
        self._tables: dict[str, Table] = {**tables, **(hidden or {})}
        self._flaky = frozenset(flaky)
        self._version = 0
        self._seen: list[str] = []
        self._listed: list[str] = []

    # What a grader reads.

    def table(self, name: str) -> Table:
        """The rows of one table by key; replaced on every write, never edited."""
        return self._tables.get(name, NOTHING)

    def names(self) -> tuple[str, ...]:
        """The tables of the world; ``seen`` and ``submission`` are not part of it."""
        return self._names

    def stamp(self) -> int:
        """Counts the writes, evidence included."""
        return self._version

    def canonical(self) -> dict[str, Any]:
        """The world's tables and the submission as plain data, for digests and comparisons."""
        names = (*self._names, "submission")
        return copy.deepcopy({name: self._plain(name) for name in names})

    # What tools do.

    def put(self, name: str, key: str, row: Row) -> None:
        """Sets one row."""
        self._tables[name] = {**self.table(name), key: row}
        self._version += 1

    def edit(self, name: str, key: str, **fields: Any) -> None:
        """Changes fields of one row; a change to what is there already is none."""
        row = self.table(name)[key]
        if any(row.get(field) != value for field, value in fields.items()):
            self.put(name, key, {**row, **fields})

    def drop(self, name: str, key: str) -> None:
        """Removes one row."""
        self._tables[name] = {k: row for k, row in self.table(name).items() if k != key}
        self._version += 1

    def add(self, name: str, prefix: str, row: Row) -> str:
        """Adds a row under the next id and returns the id."""
        used = (int(key[len(prefix) :]) for key in self.table(name) if key[len(prefix) :].isdigit())
        key = f"{prefix}{max(used, default=0) + 1}"
        self.put(name, key, row)
        return key

    def saw(self, *records: str) -> None:
        """The running call shows these records in full."""
        self._seen += records

    def lists(self, *records: str) -> None:
        """The running call returns these records as search results."""
        self._listed += records

    # What an environment does.

    def call(self, name: str, args: Mapping[str, Any]) -> Reply:
        """Runs one tool call; the agent's mistakes are replies.

        Raises:
            SandboxDied: A tool failed in a way that is not the agent's doing.
        """
        tool = self._tools.get(name)
        if tool is None:
            return Reply(f"Error: {unknown_tool(name, self._tools)}", error=True)
        if name in self._flaky:
            self._flaky -= {name}
            return Reply(
                f"Error: {name} is busy; make the same call again.", error=True, retry=True
            )
        self._seen, self._listed = [], []
        try:
            value = tool.function(self, **tool.bind(args))
            text = reply_text(value)
        except ToolError as error:
            return Reply(f"Error: {error}", error=True)
        except SandboxDied:
            raise
        except Exception as error:
            raise SandboxDied(f"tool {name!r} failed: {error!r}", by="infra") from error
        return Reply(text, value, seen=tuple(self._seen), listed=tuple(self._listed))

    def observe(self, records: Iterable[str]) -> None:
        """Records that the agent has really been shown."""
        seen = self.table("seen")
        new: dict[str, Row] = {record: {} for record in records if record not in seen}
        if new:
            self._tables["seen"] = {**seen, **new}
            self._version += 1

    def fork(self) -> Box:
        """A sibling that shares every table until one of the two writes it."""
        twin = object.__new__(Box)
        twin.__dict__ = dict(self.__dict__)
        twin._tables = dict(self._tables)
        return twin

    def get_state(self) -> dict[str, Any]:
        """Everything that :meth:`set_state` needs, as plain data."""
        tables = {name: self._plain(name) for name in self._tables}
        return copy.deepcopy({"tables": tables, "flaky": sorted(self._flaky)})

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Puts the box back into a state that :meth:`get_state` returned.

        Raises:
            ValueError: ``state`` is not such a state of this world; the box is as it was.
        """
        tables = state.get("tables") if isinstance(state, Mapping) else None
        if (
            not isinstance(tables, Mapping)
            or not set(self._tables) <= {*tables, *_OPTIONAL}
            or not all(_is_table(table) for table in tables.values())
        ):
            raise ValueError(
                f"box must be a state of a world with tables {sorted(self._names)}, whose rows are "
                f"mappings, got {state!r:.100}"
            )
        self._tables = copy.deepcopy(dict(tables))
        self._flaky = frozenset(state.get("flaky", ()))
        self._version += 1

    def _plain(self, name: str) -> dict[str, Any]:
        return {key: dict(row) for key, row in self.table(name).items()}

    def close(self) -> None:
        """Nothing is held that would have to be given back."""


_OPTIONAL = ("seen", "submission")


def _is_table(table: Any) -> bool:
    return isinstance(table, Mapping) and all(isinstance(row, Mapping) for row in table.values())
