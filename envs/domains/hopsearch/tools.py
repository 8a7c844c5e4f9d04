"""The state of HopSearch and its three tools: search, open, note."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from headway.envs.box import Box
from headway.envs.domains.hopsearch.edition import MOST_HITS, Print, printed
from headway.envs.tools import ToolError, tool
from headway.verifiers.kinds.text import tidy

TABLES = ("book", "pages", "worksheet")
"""``book`` has one row, which names the print; ``pages`` the titles; ``worksheet`` the findings.

Beside them ``opened`` keeps count of the parts that were opened; that is no change of the world.
"""

MAX_LINES = 20
"""Lines of the worksheet that can be filled."""

MAX_LINE = 20
MAX_VALUE = 100
MAX_QUERY = 200
MAX_SOURCE = 300
"""Characters of each argument."""

_ARTICLE = re.compile(r"^(?:(?:the|town|guild|of)\s+)+", re.IGNORECASE)
_KIND = re.compile(r"\s*(?:\((?:town|province)\)|\bguild)$", re.IGNORECASE)


def print_of(box: Box) -> Print:
    """The encyclopaedia that the box's task is about."""
    row = box.table("book")["print"]
    return printed(row["split"], row["size"], row["number"], row["kind"])


def plain_name(text: str) -> str:
    """A name as the worksheet keeps it: in lower case, without article, kind and full stop."""
    return _KIND.sub("", _ARTICLE.sub("", tidy(text).strip(" .,;:'\""))).casefold()


@tool
def search(box: Box, query: str, k: int = 5) -> Any:
    """Find pages of the encyclopaedia by their words, the best first; shows titles only.

    Args:
        query: Words to look for.
        k: How many hits to show, 1 to 10.
    """
    if not 1 <= k <= MOST_HITS:
        raise ToolError(f"k must be from 1 to {MOST_HITS}, got {k}")
    if not query.strip() or len(query) > MAX_QUERY:
        raise ToolError(f"query must have 1 to {MAX_QUERY} characters, got {len(query)}")
    book = print_of(box)
    hits = book.search(query, k)
    box.lists(*(f"pages/{book.ids[place]}" for place in hits))
    return [
        {
            "id": book.ids[place],
            "title": box.table("pages")[book.ids[place]]["title"],
            "parts": len(book.edition.pages[place].parts),
        }
        for place in hits
    ]


@tool
def open_page(box: Box, id: str, part: int = 1) -> Any:
    """Read one part of a page. The number of parts that can be read is limited.

    Args:
        id: Id of the page, for example p3.
        part: Which part of it.
    """
    book = print_of(box)
    place = book.place_of.get(id)
    if place is None:
        raise ToolError(f"no page {id[:60]!r}; search shows the ids")
    parts = len(book.edition.pages[place].parts)
    if not 1 <= part <= parts:
        raise ToolError(f"part of page {id} must be from 1 to {parts}, got {part}")
    record = f"pages/{id}/{part}"
    budget, opened = box.table("book")["print"]["budget"], box.table("opened")
    if record not in opened:
        if len(opened) >= budget:
            raise ToolError(f"the {budget} parts that you may read are used up; those stay open")
        box.put("opened", record, {})  # counted even if the observation is cut: some of it is read
    box.saw(record)
    title = box.table("pages")[id]["title"]
    return {"title": title, "part": part, "of": parts, "text": book.text(place, part)}


@tool(writes=True)
def note(box: Box, line: str, value: str, source: str) -> Any:
    """Write a finding on a line of the worksheet, over what stood there; an empty value erases it.

    Args:
        line: Name of the line, for example K3.
        value: The finding: a name and nothing else.
        source: Where it was found, in your own words.
    """
    line, value = tidy(line).upper(), plain_name(value)
    for field, text, most in (
        ("line", line, MAX_LINE),
        ("value", value, MAX_VALUE),
        ("source", source, MAX_SOURCE),
    ):
        if len(text) > most:
            raise ToolError(f"{field} must have at most {most} characters, got {len(text)}")
    if not line:
        raise ToolError("line must not be empty")
    sheet = box.table("worksheet")
    if not value:
        if line in sheet:
            box.drop("worksheet", line)
        return {"line": line, "value": ""}
    if line not in sheet and len(sheet) >= MAX_LINES:
        raise ToolError(f"the worksheet has {MAX_LINES} lines, and all are filled; erase one first")
    box.put("worksheet", line, {"line": line, "value": value, "source": source})
    return {"line": line, "value": value}


TOOLS = (search, replace(open_page, name="open"), note)
