"""What a check may look at, and what :func:`headway.verifiers.grade` needs of a state.

A state is a set of named tables of rows. Files are a table keyed by path, a mailbox is a table
keyed by id, a Taxi grid is one table of one row. Anything that offers these few reads can be
graded, so a foreign environment takes an adapter of about twenty lines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Row = Mapping[str, Any]
Table = Mapping[str, Row]


class View(Protocol):
    """Read-only access to the tables of a state."""

    def table(self, name: str) -> Table:
        """The rows of one table by key; a name that is not there is an empty table.

        A table is a value: whoever changes the state puts a new object in its place and leaves
        the old one as it was. So the same object means the same rows, and what a check found on
        it can be kept.

        Two names are fixed. ``"seen"`` has a row for every record that reached the agent;
        ``"submission"`` is empty until the agent submits.
        """
        ...


class Gradable(View, Protocol):
    """A state that can be judged: a world's box, or an adapter over a foreign environment."""

    @property
    def start(self) -> View:
        """The state at reset."""
        ...

    def names(self) -> Iterable[str]:
        """Tables in which a change outside the footprint is damage."""
        ...

    def stamp(self) -> Hashable:
        """A cheap value: equal stamps within one episode mean an equal verdict."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of check is decided.

    Attributes:
        prepare: ``prepare(args)`` returns the test, ``test(view) -> bool``: pure, and total on
            anything that an agent can write. Raises KeyError, TypeError or ValueError on
            arguments that do not fit.
        reads: ``reads(args)`` names every table that the test looks at.
        timeout_s: Seconds after which the answer is *no verdict*. None is for tests whose work is
            bounded by their input; they run without a watchdog thread.
    """

    prepare: Callable[[Mapping[str, Any]], Callable[[View], bool]]
    reads: Callable[[Mapping[str, Any]], tuple[str, ...]]
    timeout_s: float | None = 10.0
