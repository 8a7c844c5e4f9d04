"""The state of a person's apps and the tools on it.

Rows: ``mail`` {from, to, subject, body, date, labels}, ``contacts`` {name, email, team}, ``events``
{title, date, start, who, status}, ``notes`` {title, text}, ``payments`` {payee, amount, memo,
status}, ``files`` {text} keyed by path. Dates, times, amounts and addresses are read by the grammar
that also grades them, and stored in its canonical form.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from headway.envs.box import Box
from headway.envs.tools import ToolError, tool
from headway.verifiers.kinds.text import read_address, tokens

TABLES = ("mail", "contacts", "events", "notes", "payments", "files")
VOIDS = {"payments": {"status": "refunded"}, "events": {"status": "cancelled"}}
"""A payment or an event that the agent made and took back is no change."""

HOURS = tuple(f"{hour:02d}:00" for hour in range(8, 18))
MAX_HITS = 20
MAX_WORDS = 20
MAX_TEXT = 2000
"""Characters of a mail, a note or a file."""

MAX_SENT = 100
"""Mails that may be sent: reading them all again must take milliseconds."""

FEW = 3
"""A look-up that returns more rows than this has not singled anything out: no evidence."""

_LIKE = {"date": "2031-05-01", "time": "09:00"}
_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


def _read(field: str, kind: str, text: str) -> str:
    """The one token of a kind that ``text`` consists of, in canonical form."""
    found = tokens(text)
    if len(found) != 1 or found[0].kind != kind:
        raise ToolError(f"{field} must be one {kind} like {_LIKE[kind]}, got {text[:60]!r}")
    return found[0].value


def _address(field: str, text: str) -> str:
    address = read_address(text)
    if address is None:
        raise ToolError(f"{field} must be an address like ann@corp.example, got {text[:60]!r}")
    return address


def _hour(text: str) -> str:
    start = _read("start", "time", text)
    if start not in HOURS:
        raise ToolError(f"start must be a full hour from {HOURS[0]} to {HOURS[-1]}, got {start!r}")
    return start


def _row(box: Box, table: str, id: str) -> dict[str, Any]:
    row = box.table(table).get(id)
    if row is None:
        raise ToolError(f"no {table} record {id[:60]!r}")
    return dict(row)


def _text(field: str, text: str) -> str:
    if len(text) > MAX_TEXT:
        raise ToolError(f"{field} must have at most {MAX_TEXT} characters, got {len(text)}")
    return text


def _named(box: Box, title: str) -> tuple[str, dict[str, Any]] | None:
    hits = ((k, dict(n)) for k, n in box.table("notes").items() if n["title"] == title)
    return next(hits, None)


@tool
def mail_search(box: Box, query: str) -> Any:
    """Find mails whose sender, subject or body hold every word of the query.

    Args:
        query: Words, in any order and case.
    """
    words = list(dict.fromkeys(query.casefold().split()))
    if not 0 < len(words) <= MAX_WORDS:
        raise ToolError(f"query must hold 1 to {MAX_WORDS} different words, got {len(words)}")
    hits = [
        {"id": key, **{f: mail[f] for f in ("from", "subject", "date", "labels")}}
        for key, mail in box.table("mail").items()
        if _holds(f"{mail['from']} {mail['subject']} {mail['body']}", words)
    ]
    box.lists(*(f"mail/{hit['id']}" for hit in hits[:MAX_HITS]))
    more = len(hits) - MAX_HITS
    return hits if more <= 0 else [*hits[:MAX_HITS], f"and {more} more; use more words"]


def _holds(text: str, words: list[str]) -> bool:
    text = text.casefold()
    return all(word in text for word in words)


@tool
def mail_read(box: Box, id: str) -> Any:
    """Show one mail in full.

    Args:
        id: Id of the mail, for example m3.
    """
    mail = _row(box, "mail", id)
    box.saw(f"mail/{id}")
    return mail


@tool(writes=True, idempotent=False)
def mail_send(box: Box, to: str, subject: str, body: str) -> Any:
    """Send a mail to one address.

    Args:
        to: Address, for example ann@corp.example.
        subject: Subject line.
        body: Text.
    """
    if sum(mail["from"] == "me" for mail in box.table("mail").values()) >= MAX_SENT:
        raise ToolError(f"no more than {MAX_SENT} mails can be sent")
    mail = {"from": "me", "to": _address("to", to), "subject": subject, "body": _text("body", body)}
    return {"id": box.add("mail", "m", {**mail, "date": "today", "labels": []})}


@tool(writes=True)
def mail_label(box: Box, id: str, label: str) -> Any:
    """Put a label on a mail; labels cannot be taken off.

    Args:
        id: Id of the mail.
        label: The label.
    """
    labels = _row(box, "mail", id)["labels"]
    if label not in labels:
        box.edit("mail", id, labels=[*labels, label])
    return {"labels": box.table("mail")[id]["labels"]}


@tool
def contacts_find(box: Box, name: str) -> Any:
    """Find contacts by a part of the name.

    Args:
        name: Part of the name, at least two letters.
    """
    part = name.casefold().strip()
    if len(part) < 2:
        raise ToolError(f"name must have at least two letters, got {name!r}")
    hits = {k: dict(c) for k, c in box.table("contacts").items() if part in c["name"].casefold()}
    if len(hits) <= FEW:
        box.saw(*(f"contacts/{key}" for key in hits))
    box.lists(*(f"contacts/{key}" for key in hits))
    return [{"id": key, **row} for key, row in list(hits.items())[:MAX_HITS]]


@tool
def cal_list(box: Box, date: str) -> Any:
    """List the events of one day.

    Args:
        date: The day, for example 2031-05-01.
    """
    day = _read("date", "date", date)
    box.saw(f"day/{day}")
    hits = [
        {"id": key, **{f: event[f] for f in ("title", "start", "who")}}
        for key, event in box.table("events").items()
        if event["date"] == day and event["status"] == "on"
    ]
    return sorted(hits, key=lambda hit: str(hit["start"]))


@tool(writes=True, idempotent=False)
def cal_create(box: Box, title: str, date: str, start: str, who: list[str]) -> Any:
    """Create an event of one hour.

    Args:
        title: Its title.
        date: The day.
        start: A full hour from 08:00 to 17:00.
        who: Addresses of those invited.
    """
    guests = [_address("who", address) for address in who]
    event = {"title": title, "date": _read("date", "date", date), "start": _hour(start)}
    return {"id": box.add("events", "e", {**event, "who": guests, "status": "on"})}


@tool(writes=True)
def cal_move(box: Box, id: str, date: str, start: str) -> Any:
    """Move an event to another day or hour.

    Args:
        id: Id of the event.
        date: The new day.
        start: The new hour, a full hour from 08:00 to 17:00.
    """
    if _row(box, "events", id)["status"] != "on":
        raise ToolError(f"event {id!r} is cancelled")
    box.edit("events", id, date=_read("date", "date", date), start=_hour(start))
    return dict(box.table("events")[id])


@tool(writes=True)
def cal_cancel(box: Box, id: str) -> Any:
    """Cancel an event.

    Args:
        id: Id of the event.
    """
    _row(box, "events", id)
    box.edit("events", id, status="cancelled")
    return {"status": "cancelled"}


@tool
def note_list(box: Box) -> Any:
    """List the titles of all notes."""
    return sorted(note["title"] for note in box.table("notes").values())


@tool
def note_read(box: Box, title: str) -> Any:
    """Show one note.

    Args:
        title: Its exact title.
    """
    found = _named(box, title)
    if found is None:
        raise ToolError(f"no note with the title {title[:60]!r}; note_list shows the titles")
    box.saw(f"notes/{found[0]}")
    return found[1]["text"]


@tool(writes=True)
def note_write(box: Box, title: str, text: str) -> Any:
    """Create a note, or replace the text of the note with that title.

    Args:
        title: Its title.
        text: The whole text.
    """
    _text("text", text)
    found = _named(box, title)
    if found is None:
        return {"id": box.add("notes", "n", {"title": title, "text": text})}
    box.edit("notes", found[0], text=text)
    return {"id": found[0]}


@tool
def pay_history(box: Box, payee: str) -> Any:
    """List all payments to a payee.

    Args:
        payee: The exact name.
    """
    name = payee.strip().casefold()
    hits = {k: dict(p) for k, p in box.table("payments").items() if p["payee"].casefold() == name}
    box.saw(f"payee/{name}")
    return [{"id": key, **row} for key, row in hits.items()]


@tool(writes=True, idempotent=False)
def pay_send(box: Box, payee: str, amount: float, memo: str) -> Any:
    """Pay an amount.

    Args:
        payee: The exact name.
        amount: More than 0, at most two decimals.
        memo: Any text.
    """
    value = Decimal(str(amount))
    if not 0 < value < 10**6 or value != round(value, 2):
        raise ToolError(
            f"amount must be above 0, below 1000000 and have at most two decimals, got {amount!r}"
        )
    row = {"payee": payee.strip(), "amount": f"{value:.2f}", "memo": memo, "status": "sent"}
    return {"id": box.add("payments", "p", row)}


@tool(writes=True)
def pay_refund(box: Box, id: str) -> Any:
    """Get one payment back.

    Args:
        id: Id of the payment.
    """
    _row(box, "payments", id)
    box.edit("payments", id, status="refunded")
    return {"status": "refunded"}


@tool
def file_list(box: Box, folder: str) -> Any:
    """List the paths of the files in a folder and below.

    Args:
        folder: For example receipts; an empty text lists everything.
    """
    inside = folder.strip("/") + "/" if folder.strip("/") else ""
    paths = sorted(path for path in box.table("files") if path.startswith(inside))
    box.lists(*(f"files/{path}" for path in paths))
    return paths


@tool
def file_read(box: Box, path: str) -> Any:
    """Show one file.

    Args:
        path: Its path, for example receipts/r1.txt.
    """
    file = box.table("files").get(path)
    if file is None:
        raise ToolError(f"no file {path[:60]!r}; file_list shows the paths")
    box.saw(f"files/{path}")
    return file["text"]


@tool(writes=True)
def file_write(box: Box, path: str, text: str) -> Any:
    """Create or replace a file.

    Args:
        path: Its path: letters, digits, dot, dash and underscore, parts separated by /.
        text: The whole text.
    """
    if len(path) > 100 or not _PATH.fullmatch(path):
        raise ToolError(
            "path must be at most 100 characters: letters, digits, . - _ in parts separated by /, "
            f"none beginning with a dot; got {path[:60]!r}"
        )
    _text("text", text)
    if path in box.table("files"):
        box.edit("files", path, text=text)
    else:
        box.put("files", path, {"text": text})
    return {"path": path}


TOOLS = (
    mail_search,
    mail_read,
    mail_send,
    mail_label,
    contacts_find,
    cal_list,
    cal_create,
    cal_move,
    cal_cancel,
    note_list,
    note_read,
    note_write,
    pay_history,
    pay_send,
    pay_refund,
    file_list,
    file_read,
    file_write,
)
