"""What all tests share: Hypothesis without deadlines and without chance, and a state to grade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings

# Busy cores took 407 ms for a first call; a failure must come back on the next run.
settings.register_profile("headway", deadline=None, derandomize=True)
settings.load_profile("headway")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest --slow`` runs the whole of the suites of which the default run takes a sample."""
    parser.addoption("--slow", action="store_true", help="run whole suites, not samples of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Names what is left out, and why."""
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="a sample of it ran; pytest --slow"))


class TableState:
    """The smallest gradable state: named tables, replaced and never changed in place."""

    def __init__(self, tables: Mapping[str, Mapping[str, Any]], watched: tuple[str, ...]) -> None:
        self.tables = {name: dict(rows) for name, rows in tables.items()}
        self.watched = watched
        self.writes = 0
        self.start: TableState = self
        self.start = self.fork()

    def table(self, name: str) -> Mapping[str, Any]:
        return self.tables.get(name, {})

    def names(self) -> tuple[str, ...]:
        return self.watched

    def stamp(self) -> int:
        return self.writes

    def put(self, name: str, key: str, row: Any) -> None:
        """Sets one row; None deletes it."""
        rows = {**self.table(name), key: row}
        if row is None:
            del rows[key]
        self.tables[name] = rows
        self.writes += 1

    def fork(self) -> TableState:
        twin = object.__new__(TableState)
        twin.__dict__.update(self.__dict__, tables=dict(self.tables))
        return twin


@pytest.fixture(scope="session")
def table_state() -> type[TableState]:
    """The class: ``table_state({"mail": {...}}, watched=("mail",))``."""
    return TableState
