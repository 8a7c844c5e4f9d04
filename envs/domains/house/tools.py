"""The state of a house and what one hand can do in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headway.envs.box import Box
from headway.envs.tools import ToolError, tool
from headway.envs.wording import near
from headway.verifiers import Row

TABLES = ("rooms", "places", "devices", "things", "notes")
"""``rooms``: locked, fits (the key). ``places``: room, lid (``"none"``, ``"open"``, ``"closed"``).
``devices``: room, use. ``things``: kind, look, sort, place, clean, temp, cut, gone. ``notes``:
text, room (of a label ``""``: it is on the thing of that name).

Where the agent stands is no part of the world: it is kept in a table of its own, ``body``, so
walking about is neither progress nor damage.
"""

HAND = "hand"
"""The place that is in no room."""

USES = {"wash": "dish", "heat": "food", "cool": "food", "slice": "food"}
"""What a device is good for, and the sort of thing that it takes."""


def room_of(box: Box) -> str:
    """Where the agent stands; at first in the room that the others open into."""
    body = box.table("body").get("me")
    return entrance(box) if body is None else str(body["room"])


def entrance(box: Box) -> str:
    """The room from which all others are reached."""
    return next(iter(box.table("rooms")))


def held(box: Box) -> str | None:
    """What the hand holds."""
    for name, row in box.table("things").items():
        if row["place"] == HAND and not row["gone"]:
            return name
    return None


def in_sight(box: Box, row: Row, room: str) -> bool:
    """Whether a thing is in the hand, or lies openly in ``room``."""
    if row["gone"]:
        return False
    if row["place"] == HAND:
        return True
    place = box.table("places").get(row["place"])
    return place is not None and place["room"] == room and place["lid"] != "closed"


def described(name: str, row: Row) -> str:
    """A thing with all that can be seen of it: ``blue mug (dirty)``."""
    marks = [] if row["clean"] else ["dirty"]
    marks += [] if row["temp"] == "plain" else [row["temp"]]
    marks += ["cut"] if row["cut"] else []
    return f"{name} ({', '.join(marks)})" if marks else name


def _name(text: str) -> str:
    """What a text names, whatever its case and with or without "the"."""
    return " ".join(text.casefold().split()).removeprefix("the ")


def _room(box: Box, text: str) -> str:
    """A room; all of them are known from the start."""
    name, rooms = _name(text), box.table("rooms")
    if name in rooms:
        return name
    raise ToolError(f"there is no room {text[:60]!r} in this house{near(name, rooms)}")


def _seen(box: Box, text: str, names: Iterable[str]) -> str:
    """The one of the names in sight that a text says.

    What is elsewhere is refused as what is nowhere, and names in sight alone are proposed: to ask
    is no way to find out what a house holds.
    """
    name, known = _name(text), list(names)
    if name in known:
        return name
    raise ToolError(f"no {name[:60]} can be seen in the {room_of(box)}{near(name, known)}")


def _things(box: Box) -> list[str]:
    """The things in sight."""
    room = room_of(box)
    return [name for name, row in box.table("things").items() if in_sight(box, row, room)]


def _thing(box: Box, text: str) -> tuple[str, Row]:
    """A thing that can be reached."""
    name = _seen(box, text, _things(box))
    return name, box.table("things")[name]


def _holding(box: Box, text: str) -> tuple[str, Row]:
    """The thing in the hand, if it is this one."""
    name, row = _thing(box, text)
    if row["place"] != HAND:
        raise ToolError(f"take the {name} first")
    return name, row


def _place(box: Box, text: str) -> tuple[str, Row]:
    """A place in this room."""
    room, places = room_of(box), box.table("places")
    name = _seen(box, text, (name for name, row in places.items() if row["room"] == room))
    return name, places[name]


def _view(box: Box) -> str:
    """What can be seen from where the agent stands."""
    room = room_of(box)
    places = {name: p["lid"] for name, p in box.table("places").items() if p["room"] == room}
    lying: dict[str, list[str]] = {name: [] for name in (*places, HAND)}
    for name, row in box.table("things").items():
        if row["place"] in lying and not row["gone"]:
            lying[row["place"]].append(described(name, row))
    lines = [f"You are in the {room}."]
    for name, lid in places.items():
        if lid == "closed":
            lines.append(f"The {name} is closed.")
        else:
            where = "On" if lid == "none" else "In"
            lines.append(f"{where} the {name}: {', '.join(lying[name]) or 'nothing'}.")
    here = [
        f"{name} (to {d['use']})" for name, d in box.table("devices").items() if d["room"] == room
    ]
    here += [f"{name} (to read)" for name, n in box.table("notes").items() if n["room"] == room]
    if here:
        lines.append(f"Here is: {', '.join(here)}.")
    doors = [f"{r} (locked)" if row["locked"] else r for r, row in box.table("rooms").items()]
    lines.append(f"Rooms: {', '.join(doors)}.")
    lines.append(f"In your hand: {lying[HAND][0] if lying[HAND] else 'nothing'}.")
    return "\n".join(lines)


@tool
def look(box: Box) -> str:
    """Look around: what lies in this room, what can be used or read here, what you hold."""
    return _view(box)


@tool(writes=True)
def go(box: Box, room: str) -> str:
    """Go to a room and look around there; all doors open into one room.

    Args:
        room: Its name.
    """
    name = _room(box, room)
    if box.table("rooms")[name]["locked"]:
        raise ToolError(f"the {name} is locked; it can be unlocked from the {entrance(box)}")
    if name != room_of(box):
        box.put("body", "me", {"room": name})
    return _view(box)


@tool(writes=True)
def take(box: Box, thing: str) -> str:
    """Take a thing that lies openly in this room; the hand holds one.

    Args:
        thing: Its name, for example blue mug.
    """
    name, row = _thing(box, thing)
    holds = held(box)
    if holds is not None:
        raise ToolError(f"your hand holds the {holds}; put it somewhere first")
    box.edit("things", name, place=HAND)
    return f"You hold the {described(name, row)}."


@tool(writes=True)
def put(box: Box, thing: str, place: str) -> str:
    """Put what you hold on or into a place in this room.

    Args:
        thing: What you hold.
        place: On a surface, or into something that is open.
    """
    name, _ = _holding(box, thing)
    where, row = _place(box, place)
    if row["lid"] == "closed":
        raise ToolError(f"the {where} is closed")
    box.edit("things", name, place=where)
    return f"The {name} is {'on' if row['lid'] == 'none' else 'in'} the {where}."


@tool(writes=True)
def open_lid(box: Box, place: str) -> str:
    """Open something that can be closed.

    Args:
        place: Its name, for example oak chest.
    """
    name, row = _place(box, place)
    if row["lid"] == "none":
        raise ToolError(f"the {name} cannot be opened")
    box.edit("places", name, lid="open")
    things = box.table("things").items()
    inside = [described(t, r) for t, r in things if r["place"] == name and not r["gone"]]
    return f"In the {name}: {', '.join(inside) or 'nothing'}."


@tool(writes=True)
def close_lid(box: Box, place: str) -> str:
    """Close it again.

    Args:
        place: Its name.
    """
    name, row = _place(box, place)
    if row["lid"] == "none":
        raise ToolError(f"the {name} cannot be closed")
    box.edit("places", name, lid="closed")
    return f"The {name} is closed."


@tool(writes=True)
def unlock(box: Box, room: str, key: str) -> str:
    """Unlock a room for good, from the room that all doors open into, with the key in your hand.

    Args:
        room: The locked room.
        key: The key that you hold.
    """
    door = _room(box, room)
    name, _ = _holding(box, key)
    if room_of(box) != entrance(box):
        raise ToolError(f"go to the {entrance(box)} first")
    if not box.table("rooms")[door]["locked"]:
        raise ToolError(f"the {door} is not locked")
    if box.table("rooms")[door]["fits"] != name:
        raise ToolError(f"the {name} does not fit the {door}")
    box.edit("rooms", door, locked=False)
    return f"The {door} is unlocked."


def _used(box: Box, use: str, thing: str) -> tuple[str, Row]:
    """The thing in the hand, where there is a device for that use which takes it."""
    name, row = _holding(box, thing)
    room = room_of(box)
    if not any(d["use"] == use and d["room"] == room for d in box.table("devices").values()):
        raise ToolError(f"there is nothing to {use} with in the {room}")
    if row["sort"] != USES[use]:
        raise ToolError(f"the {name} is nothing to {use}")
    return name, row


@tool(writes=True)
def wash(box: Box, thing: str) -> str:
    """Wash a dish that you hold, where there is something to wash with.

    Args:
        thing: What you hold.
    """
    name, _ = _used(box, "wash", thing)
    box.edit("things", name, clean=True)
    return f"The {name} is clean."


@tool(writes=True, idempotent=False)
def heat(box: Box, thing: str) -> str:
    """Heat food that you hold, where there is something to heat with; what is hot already burns.

    Args:
        thing: What you hold.
    """
    name, row = _used(box, "heat", thing)
    temp = "burnt" if row["temp"] in ("hot", "burnt") else "hot"
    box.edit("things", name, temp=temp)
    return f"The {name} is {temp}."


@tool(writes=True)
def cool(box: Box, thing: str) -> str:
    """Cool food that you hold, where there is something to cool with.

    Args:
        thing: What you hold.
    """
    name, row = _used(box, "cool", thing)
    if row["temp"] == "burnt":
        raise ToolError(f"the {name} is burnt and stays so")
    box.edit("things", name, temp="cold")
    return f"The {name} is cold."


@tool(writes=True)
def slice_thing(box: Box, thing: str) -> str:
    """Cut food that you hold into slices, where there is something to slice on.

    Args:
        thing: What you hold.
    """
    name, _ = _used(box, "slice", thing)
    box.edit("things", name, cut=True)
    return f"The {name} is cut."


@tool
def read(box: Box, note: str) -> str:
    """Read a note in this room, or the label of a thing.

    Args:
        note: Name of the note or of the thing.
    """
    notes, room = box.table("notes"), room_of(box)
    here = [name for name, row in notes.items() if row["room"] == room]
    name = _seen(box, note, (*_things(box), *here))
    row = notes.get(name)
    if row is None:
        raise ToolError(f"nothing is written on the {name}")
    box.saw(f"notes/{name}")
    return str(row["text"])


@tool(writes=True)
def discard(box: Box, thing: str) -> str:
    """Throw a thing away for good.

    Args:
        thing: Its name.
    """
    name, _ = _thing(box, thing)
    box.edit("things", name, gone=True)
    return f"The {name} is gone."


TOOLS = (
    go,
    look,
    take,
    put,
    replace(open_lid, name="open"),
    replace(close_lid, name="close"),
    unlock,
    wash,
    heat,
    cool,
    replace(slice_thing, name="slice"),
    read,
    discard,
)
