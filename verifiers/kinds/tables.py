"""Conditions on rows, and the check kinds that count, compare and look up rows.

A condition is plain JSON, so that a task stores and digests it: a literal, or a mapping of one
matcher to its argument, for example ``{"to": {"address": "ada@x.org"}, "body": {"typed":
["2031-05-01", "09:00"]}}``.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from types import MappingProxyType
from typing import Any

from headway.arguments import nearest
from headway.verifiers.kinds.numbers import near
from headway.verifiers.kinds.text import (
    Token,
    read_address,
    read_number,
    read_token,
    tidy,
    tidy_address,
    tokens,
)
from headway.verifiers.view import Kind, Row, View

Test = Callable[[Any], bool]
"""Decides one value; total: whatever an agent can write there gets True or False."""


def where(conditions: Mapping[str, Any]) -> Callable[[Row], bool]:
    """Compiles conditions on the fields of a row into one fast test; no conditions match any row.

    A literal matches the same JSON value: ``1`` is neither ``True`` nor ``"1"``, but is ``1.0``.
    The matchers are

    * ``{"text": s}``: the same text up to white space and Unicode composition.
    * ``{"number": "12.50"}``: that number as printed (see :func:`numbers.near`), as a number or in
      a text with that token and no other; saying it again, and mail addresses, do no harm.
    * ``{"typed": ["2031-05-01", "09:00"]}``: a text with these tokens and no other, in any order;
      saying one again does no harm, and mail addresses count only if one is among ``typed``.
    * ``{"address": a}``, ``{"addresses": [...]}``: a mail address; a list of exactly these.
    * ``{"bag": [...]}``: a list of exactly these literals, in any order; duplicates count.
    * ``{"has": x}``: a list in which the literal ``x`` stands.
    * ``{"csv": {"columns": [...], "rows": [[...]]}}``: a CSV text with exactly these columns, by
      their headings, and these rows, in any order; cells are compared by what they are.
    * ``{"any": True}``: the field is there.
    * ``{"not": condition}``: the field is there and does not match.

    A field that is missing matches nothing. Cheap conditions are tried first.

    Raises:
        ValueError: There is no such matcher, or its argument does not fit it.
    """
    if not isinstance(conditions, Mapping):
        raise ValueError(
            f"conditions must be a mapping from field to condition, got {conditions!r}"
        )
    exact = tuple((f, c) for f, c in conditions.items() if isinstance(c, str))
    others = [(f, *_compile(c, f)) for f, c in conditions.items() if not isinstance(c, str)]
    tests = tuple((f, test) for f, _, test in sorted(others, key=lambda other: other[1]))

    def match(row: Row) -> bool:
        for name, wanted in exact:
            if row.get(name) != wanted:
                return False
        for name, test in tests:
            if not test(row.get(name, _MISSING)):
                return False
        return True

    return match


def _compile(condition: Any, place: str) -> tuple[int, Test]:
    """``(cost, test)`` of one condition; ``place`` names it in messages."""
    try:
        if not isinstance(condition, Mapping):
            return _LITERAL_COST, _literal(condition)
        if len(condition) != 1:
            raise ValueError(f"a matcher is a mapping with one key, got {dict(condition)!r}")
        ((name, argument),) = condition.items()
        if name == "not":
            cost, test = _compile(argument, place)
            return cost, lambda value: value is not _MISSING and not test(value)
        if name not in _MATCHERS:
            raise ValueError(_unknown("matcher", name, [*_MATCHERS, "not"]))
        cost, build = _MATCHERS[name]
        return cost, build(argument)
    except ValueError as error:
        raise ValueError(f"condition on {place!r}: {error}") from error


def _literal(gold: Any) -> Test:
    if gold is None or isinstance(gold, bool):
        return lambda value: value is gold
    if isinstance(gold, str):
        return lambda value: isinstance(value, str) and value == gold
    if isinstance(gold, int) or (isinstance(gold, float) and math.isfinite(gold)):
        return lambda value: (
            isinstance(value, int | float) and not isinstance(value, bool) and value == gold
        )
    if isinstance(gold, list | tuple):
        tests = [_literal(item) for item in gold]
        return lambda value: (
            isinstance(value, list | tuple)
            and len(value) == len(tests)
            and all(test(item) for test, item in zip(tests, value, strict=True))
        )
    raise ValueError(f"a literal must be null, a boolean, a number, a text or a list, got {gold!r}")


def _text(gold: Any) -> Test:
    wanted = tidy(_string(gold))
    return lambda value: isinstance(value, str) and (value == wanted or tidy(value) == wanted)


def _number(gold: Any) -> Test:
    is_near = near(gold)

    def test(value: Any) -> bool:
        if not isinstance(value, str):
            return is_near(value)
        found = [token for token in tokens(value) if token.kind != "mail"]
        return bool(found) and all(
            token.kind == "number" and is_near(Decimal(token.value)) for token in found
        )

    return test


def _typed(gold: Any) -> Test:
    wanted = {_token(text) for text in _list(gold)}
    mails = any(token.kind == "mail" for token in wanted)  # else an address is a signature

    def test(value: Any) -> bool:
        if not isinstance(value, str):
            return False
        return {token for token in tokens(value) if mails or token.kind != "mail"} == wanted

    return test


def _token(gold: Any) -> Token:
    found = tokens(_string(gold))
    if len(found) != 1:
        raise ValueError(f"a wanted token must be one date, time, number..., got {gold!r}")
    return found[0]


def _address(gold: Any) -> Test:
    wanted = read_address(_string(gold))
    if wanted is None:
        raise ValueError(f"a wanted address must be a mail address, got {gold!r}")
    return lambda value: isinstance(value, str) and tidy_address(value) == wanted


def _addresses(gold: Any) -> Test:
    return _bag_of([_address(item) for item in _list(gold)])


def _bag(gold: Any) -> Test:
    return _bag_of([_literal(item) for item in _list(gold)])


def _bag_of(tests: Sequence[Test]) -> Test:
    """A list that gives each test a value of its own; the tests must be equalities."""

    def test(value: Any) -> bool:
        if not isinstance(value, list | tuple) or len(value) != len(tests):
            return False
        left = list(value)
        for wanted in tests:
            place = next((i for i, item in enumerate(left) if wanted(item)), None)
            if place is None:
                return False
            del left[place]
        return True

    return test


def _has(gold: Any) -> Test:
    wanted = _literal(gold)
    return lambda value: isinstance(value, list | tuple) and any(map(wanted, value))


def _csv(gold: Any) -> Test:
    """Typed cells: a number as printed, another token as itself, anything else as a text."""
    if not isinstance(gold, Mapping):
        raise ValueError(f"expected columns and rows, got {gold!r}")
    _only(gold, ["columns", "rows"])
    columns = [tidy(_string(column)) for column in _list(gold["columns"])]
    rows = [[_cell(_string(cell)) for cell in _list(row)] for row in _list(gold["rows"])]
    if len(set(columns)) != len(columns) or any(len(row) != len(columns) for row in rows):
        raise ValueError(f"columns must differ and rows be as long as they are, got {gold!r}")

    def test(value: Any) -> bool:
        if not isinstance(value, str):
            return False
        try:
            lines = csv.reader(io.StringIO(value.removeprefix("\ufeff"), newline=""), strict=True)
            table = list(islice(filter(None, lines), len(rows) + 2))
        except csv.Error:
            return False
        if len(table) != len(rows) + 1 or any(len(line) != len(columns) for line in table):
            return False
        head, *body = [[tidy(cell) for cell in line] for line in table]
        if sorted(head) != sorted(columns):
            return False
        at = [head.index(column) for column in columns]
        return _matched(
            [
                [
                    i
                    for i, line in enumerate(body)
                    if all(cell(line[place]) for cell, place in zip(row, at, strict=True))
                ]
                for row in rows
            ]
        )

    return test


def _cell(gold: str) -> Test:
    if read_number(gold) is not None:
        return near(gold)
    wanted = read_token(gold)
    if wanted is None:
        return _text(gold)
    return lambda value: isinstance(value, str) and read_token(value) == wanted


def _any(gold: Any) -> Test:
    if gold is not True:
        raise ValueError(f"the argument of 'any' must be True, got {gold!r}")
    return lambda value: value is not _MISSING


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {value!r}")
    return value


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list, got {value!r}")
    return value


def _unknown(what: str, name: Any, known: Iterable[str]) -> str:
    return f"{what} must be one of {sorted(known)}, got {name!r}{nearest(name, known)}"


_MISSING = object()
_LITERAL_COST = 1
_MATCHERS: Mapping[str, tuple[int, Callable[[Any], Test]]] = MappingProxyType(
    {
        "any": (0, _any),
        "text": (2, _text),
        "has": (2, _has),
        "address": (3, _address),
        "number": (3, _number),
        "bag": (3, _bag),
        "addresses": (4, _addresses),
        "typed": (5, _typed),
        "csv": (6, _csv),
    }
)


def _rows(args: Mapping[str, Any]) -> Callable[[View], bool]:
    """``{"table", "where", "count"}``: exactly ``count`` rows (1), or ``{"min": n}``, match.

    With ``"key"`` instead of ``"count"``: the row of that key matches.
    """
    _only(args, ["table", "where"], ["key"] if "key" in args else ["count"])
    name, match = _string(args["table"]), where(args["where"])
    if "key" in args:
        key = _string(args["key"])
        return lambda view: (row := view.table(name).get(key)) is not None and match(row)
    least, exact = _count(args.get("count", 1))
    texts = [(field, gold) for field, gold in args["where"].items() if isinstance(gold, str)]

    def test(view: View) -> bool:
        rows: Iterable[Row] = view.table(name).values()
        for field, gold in texts:  # rules most rows out, without a call for each
            rows = [row for row in rows if row.get(field) == gold]
        found = sum(map(match, rows))
        return found == least if exact else found >= least

    return test


def _count(count: Any) -> tuple[int, bool]:
    """``(how many, whether exactly so many)``."""
    exact = not isinstance(count, Mapping)
    least = count if exact else count["min"] if list(count) == ["min"] else None
    if isinstance(least, bool) or not isinstance(least, int) or least < 0:
        raise ValueError(
            f"count must be an integer >= 0 or {{'min': such an integer}}, got {count!r}"
        )
    return least, exact


def _whole_table(args: Mapping[str, Any]) -> Callable[[View], bool]:
    """``{"table", "columns", "rows", "ordered"}``: the table has exactly these rows.

    A row is a list of conditions, one for each of ``columns``; other columns may hold anything.
    Duplicates count; the order counts only if ``ordered`` is true.
    """
    _only(args, ["table", "columns", "rows"], ["ordered"])
    name, columns = _string(args["table"]), [_string(c) for c in _list(args["columns"])]
    if len(set(columns)) != len(columns):
        raise ValueError(f"columns must differ from each other, got {columns}")
    ordered = args.get("ordered", False)
    if not isinstance(ordered, bool):
        raise ValueError(f"ordered must be true or false, got {ordered!r}")
    wanted = []
    for row in _list(args["rows"]):
        if len(_list(row)) != len(columns):
            raise ValueError(f"each of rows must have {len(columns)} cells, got {row!r}")
        wanted.append(where(dict(zip(columns, row, strict=True))))

    def test(view: View) -> bool:
        rows = list(view.table(name).values())
        if len(rows) != len(wanted):
            return False
        if ordered:
            return all(match(row) for match, row in zip(wanted, rows, strict=True))
        return _matched([[i for i, row in enumerate(rows) if match(row)] for match in wanted])

    return test


def _matched(options: Sequence[Sequence[int]]) -> bool:
    """Whether each entry can be given one of its options, none of them twice.

    Tolerances overlap, so the first option that fits may be one that another entry needs: a taken
    option is freed by moving its owner on, along a path found breadth first.
    """
    owner: dict[int, int] = {}
    for start in range(len(options)):
        reached: dict[int, tuple[int, int | None]] = {}  # option -> (who asks, the one it gives up)
        queue: list[tuple[int, int | None]] = [(start, None)]
        free: int | None = None
        for entry, given_up in queue:
            for option in options[entry]:
                if option in reached:
                    continue
                reached[option] = (entry, given_up)
                if option not in owner:
                    free = option
                    break
                queue.append((owner[option], option))
            if free is not None:
                break
        if free is None:
            return False
        while free is not None:
            owner[free], free = reached[free]
    return True


def _records(args: Mapping[str, Any]) -> Callable[[View], bool]:
    """``{"records"}``: each of these keys stands in the table ``"seen"``."""
    _only(args, ["records"])
    wanted = [_string(record) for record in _list(args["records"])]
    if not wanted:
        raise ValueError("records must name at least one record, got none")
    return lambda view: all(map(view.table("seen").__contains__, wanted))


def _only(args: Mapping[str, Any], needed: Sequence[str], optional: Sequence[str] = ()) -> None:
    for name in args:
        if name not in needed and name not in optional:
            raise ValueError(_unknown("argument", name, [*needed, *optional]))
    for name in needed:
        if name not in args:
            raise ValueError(f"argument {name!r} is missing, got {sorted(args)}")


def _own_table(args: Mapping[str, Any]) -> tuple[str, ...]:
    return (args["table"],)


ROWS = Kind(_rows, _own_table, timeout_s=None)
BAG = Kind(_whole_table, _own_table, timeout_s=None)
SEEN = Kind(_records, lambda args: ("seen",), timeout_s=None)
