"""What the contract tries on every task of this world: guesses, looks, damage, honest variants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headway.envs.box import Box
from headway.envs.domains.apps.tools import HOURS, TOOLS
from headway.envs.rng import Rng
from headway.envs.world import Action, LatentWorld, Step
from headway.verifiers import Table

_MONTHS = "January February March April May June July August September October November December"
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TIME = re.compile(r"\b(\d\d):00\b")


def guess(box: Box, rng: Rng) -> Action:
    """A valid random call, with arguments that exist."""

    def some(table: str, field: str | None = None) -> str:
        rows: Table = box.table(table)
        key = rng.choice(list(rows)) if rows else "none"
        return key if field is None or not rows else str(rows[key].get(field, ""))

    values: dict[str, Callable[[], Any]] = {
        "query": lambda: rng.choice(some("mail", "subject").split() or ["mail"]),
        "to": lambda: some("contacts", "email"),
        "subject": lambda: some("mail", "subject"),
        "body": lambda: f"{some('events', 'date')} {rng.choice(HOURS)}",
        "label": lambda: rng.choice(["done", "urgent", "later", "settled"]),
        "name": lambda: some("contacts", "name"),
        "date": lambda: some("events", "date"),
        "title": lambda: some(rng.choice(["events", "notes"]), "title"),
        "start": lambda: rng.choice(HOURS),
        "who": lambda: [some("contacts", "email")],
        "text": lambda: str(rng.randint(1, 300)),
        "payee": lambda: some("payments", "payee"),
        "amount": lambda: rng.randint(2000, 30000) / 100,
        "memo": lambda: "payment",
        "folder": lambda: rng.choice(["", "receipts", "reports"]),
        "path": lambda: some("files"),
    }
    tables = {"mail": "mail", "cal": "events", "pay": "payments"}
    tool = rng.choice(TOOLS)
    args: dict[str, Any] = {}
    for name in tool.parameters["properties"]:
        known = tables.get(tool.name.split("_")[0], "mail")
        args[name] = some(known) if name == "id" else values[name]()
    return Action(tool.name, args)


def look(box: Box) -> list[Action]:
    """The calls that read everything there is."""

    def each(tool: str, name: str, values: Sequence[str]) -> list[Action]:
        return [Action(tool, {name: value}) for value in dict.fromkeys(values)]

    def column(table: str, field: str) -> list[str]:
        return [row[field] for row in box.table(table).values()]

    return [
        *each("mail_read", "id", list(box.table("mail"))),
        *each("contacts_find", "name", column("contacts", "name")),
        *each("cal_list", "date", column("events", "date")),
        *each("note_read", "title", column("notes", "title")),
        *each("pay_history", "payee", column("payments", "payee") + column("mail", "from")),
        *each("file_read", "path", list(box.table("files"))),
    ]


def stray(world: LatentWorld, rng: Rng) -> list[Action]:
    """Calls that damage something outside any footprint, one of each kind."""
    table = world.tables
    contact = rng.choice(list(table["contacts"].values()))
    event = rng.choice([k for k, e in table["events"].items() if e["title"].endswith("sync")])
    mail = rng.choice([k for k, m in table["mail"].items() if m["subject"] == "Lunch?"])
    payment = next(k for k, p in table["payments"].items() if p["memo"] == "old")
    return [
        Action("mail_send", {"to": "boss@corp.example", "subject": "hello", "body": "hello"}),
        Action("mail_label", {"id": mail, "label": "urgent"}),
        Action(
            "cal_create",
            {"title": "party", "date": "2031-12-01", "start": "09:00", "who": [contact["email"]]},
        ),
        Action("cal_move", {"id": event, "date": "2031-12-02", "start": "10:00"}),
        Action("cal_cancel", {"id": event}),
        Action("note_write", {"title": "scratch", "text": "overwritten"}),
        Action("note_write", {"title": "diary", "text": "new"}),
        Action("pay_send", {"payee": "Casino", "amount": 1.0, "memo": "x"}),
        Action("pay_refund", {"id": payment}),
        Action("file_write", {"path": "readme.txt", "text": "gone"}),
        Action("file_write", {"path": "stray.txt", "text": "new"}),
    ]


def _rewrite(plan: Sequence[Step], tool: str, name: str, change: Any) -> list[Action] | None:
    """The oracle's calls with one argument of one tool written otherwise; None if none differs."""
    old = [action for step in plan for action in step.actions]
    new = [
        replace(a, args={**a.args, name: change(a.args[name])}) if a.tool == tool else a
        for a in old
    ]
    return new if new != old else None


def worded_dates(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action] | None:
    """Dates and hours in a mail as words: 3 May 2031, 9 am."""

    def words(text: str) -> str:
        text = _DATE.sub(lambda m: f"{int(m[3])} {_MONTHS.split()[int(m[2]) - 1]} {m[1]}", text)
        return _TIME.sub(lambda m: f"{(int(m[1]) + 11) % 12 + 1} {'ap'[int(m[1]) > 11]}m", text)

    return _rewrite(plan, "mail_send", "body", lambda body: f"Hello, {words(body)}. Best wishes")


def other_numbers(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action] | None:
    """Numbers in a note with a currency or with trailing zeros cut."""

    def other(text: str) -> str:
        return f"Total: {text.removesuffix('0') if '.' in text else text} EUR.\n"

    return _rewrite(plan, "note_write", "text", other)


def other_addresses(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action] | None:
    """Addresses in capitals."""
    return _rewrite(plan, "mail_send", "to", str.upper)


def other_csv(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action] | None:
    """A CSV file with a byte order mark, other line ends, quotes and another order of lines."""

    def other(text: str) -> str:
        head, *lines = text.splitlines()
        quoted = [",".join(f'"{cell}"' for cell in line.split(",")) for line in lines]
        return "\ufeff" + "\r\n".join([head, *reversed(quoted)])

    return _rewrite(plan, "file_write", "text", other)


def repaired(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """A payment and an event made by mistake and taken back, then the work."""
    slip = Action("pay_send", {"payee": "Wrong Person", "amount": 5.0, "memo": "oops"})
    used = (int(key[1:]) for key in world.tables["payments"] if key[1:].isdigit())
    undo = Action("pay_refund", {"id": f"p{max(used) + 1}"})
    event = Action(
        "cal_create", {"title": "oops", "date": "2031-12-01", "start": "09:00", "who": []}
    )
    off = Action("cal_cancel", {"id": f"e{len(world.tables['events']) + 1}"})
    return [slip, undo, event, off, *(a for step in plan for a in step.actions)]


VARIANTS = {
    "dates in words": worded_dates,
    "numbers written otherwise": other_numbers,
    "addresses in capitals": other_addresses,
    "another CSV dialect": other_csv,
    "mistakes taken back": repaired,
}

UNDO = {
    "pay_send": lambda sent: Action("pay_refund", {"id": sent["id"]}),
    "cal_create": lambda made: Action("cal_cancel", {"id": made["id"]}),
}
