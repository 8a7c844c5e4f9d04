"""A house in numbers, for classic RL: what can be done here, and the whole state.

The text view shows one room at a time; this one shows the whole house, and which things are meant
once words, labels and cards are understood. So it asks for no reading and no memory, and the same
worlds, checks and rewards serve a policy that has neither.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.envs.box import Box
from headway.envs.domain import Numeric, Slot
from headway.envs.domains.house.templates import MOST_ROOMS, MOST_THINGS, TREATED
from headway.envs.domains.house.tools import HAND, USES, held, in_sight, room_of
from headway.envs.world import LatentWorld
from headway.verifiers import Row, Table

SPOTS = ("surface", "container")
"""A room has one of the first and at most one of the second."""

SLOTS = (
    *(f"go to room {n}" for n in range(1, MOST_ROOMS + 1)),
    *(f"take thing {n}" for n in range(1, MOST_THINGS + 1)),
    *(f"put it on the {spot}" for spot in SPOTS),
    "open or close the container",
    "unlock",
    *USES,
)

STATES = ("dirty", "hot", "cold", "burnt", "cut")
SORTS = ("dish", "food", "key")
OPEN, LOCKED, HERE = range(1 + len(USES), 4 + len(USES))
PER_ROOM = 4 + len(USES)
PER_THING = 2 * MOST_ROOMS + 2 * len(SPOTS) + 1 + len(STATES) + len(SORTS) + len(TREATED) + 1
SIZE = PER_ROOM * MOST_ROOMS + PER_THING * MOST_THINGS

NO_PUT = [False] * len(SPOTS)
NO_USE = [False] * len(USES)


class HouseView:
    """One world's slots: its rooms in order, and its things, those that are asked for first.

    Args:
        world: The world.
    """

    def __init__(self, world: LatentWorld) -> None:
        self.rooms = list(world.tables["rooms"])
        self.goal: dict[str, str] = {}
        self.wants: dict[str, list[str]] = {}
        for check in (check for step in world.steps for check in step.checks):
            how, key = check.id.partition(".")[0], check.args.get("key", "")
            if how in ("place", "back"):
                self.goal[key] = check.args["where"]["place"]
            elif how in TREATED:
                self.wants.setdefault(key, []).append(how)
        things = list(world.tables["things"])
        self.things = sorted(things, key=lambda name: name not in self.goal)
        self.spot: dict[str, tuple[int, int]] = {}
        self.spots: dict[str, list[str]] = {room: [""] * len(SPOTS) for room in self.rooms}
        for name, row in world.tables["places"].items():
            n = int(row["lid"] != "none")
            self.spots[row["room"]][n] = name
            self.spot[name] = (self.rooms.index(row["room"]), n)
        self.devices = [
            [
                any(d["use"] == use and d["room"] == room for d in world.tables["devices"].values())
                for use in USES
            ]
            for room in self.rooms
        ]
        self._calls: dict[tuple[str, ...], Slot] = {}
        self._go = [self._call("go", room=room) for room in _padded(self.rooms, MOST_ROOMS)]
        self._take = [self._call("take", thing=t) for t in _padded(self.things, MOST_THINGS)]
        self._fixed = [
            PER_ROOM * n + at
            for n, room in enumerate(self.rooms)
            for at, true in enumerate((bool(self.spots[room][1]), *self.devices[n]))
            if true
        ]
        self._last: tuple[Table, NDArray[np.float32]] | None = None

    def _call(self, tool: str, **args: str) -> Slot:
        """The one slot that makes this call."""
        key = (tool, *args.values())
        slot = self._calls.get(key)
        if slot is None:
            slot = self._calls[key] = Slot(tool, args)
        return slot

    def actions(self, box: Box) -> list[Slot]:
        """A call for every slot; one that is not possible here is answered with an error."""
        thing, room = held(box) or "", room_of(box)
        container = self.spots[room][1]
        closed = container and box.table("places")[container]["lid"] == "closed"
        locked = [r for r, row in box.table("rooms").items() if row["locked"]] or [""]
        call = self._call
        return [
            *self._go,
            *self._take,
            *[call("put", thing=thing, place=place) for place in self.spots[room]],
            call("open" if closed else "close", place=container),
            call("unlock", room=locked[0], key=thing),
            *[call(use, thing=thing) for use in USES],
        ]

    def mask(self, box: Box) -> list[bool]:
        """Which of them are possible; to stay in a room is no way to go."""
        thing, room = held(box), room_of(box)
        rooms, things, places = box.table("rooms"), box.table("things"), box.table("places")
        container = self.spots[room][1]
        lid = places[container]["lid"] if container else "none"
        go = [name != room and not rooms[name]["locked"] for name in self.rooms]
        if thing is None:
            take = [in_sight(box, things[name], room) for name in self.things]
            put, unlock, use = NO_PUT, False, NO_USE
        else:
            take = [False] * len(self.things)
            put = [True, lid == "open"]
            unlock = room == self.rooms[0] and any(
                door["locked"] and door["fits"] == thing for door in rooms.values()
            )
            row, devices = things[thing], self.devices[self.rooms.index(room)]
            use = [
                here and fit == row["sort"] and not (name == "cool" and row["temp"] == "burnt")
                for here, (name, fit) in zip(devices, USES.items(), strict=True)
            ]
        return [
            *go,
            *[False] * (MOST_ROOMS - len(go)),
            *take,
            *[False] * (MOST_THINGS - len(take)),
            *put,
            bool(container),
            unlock,
            *use,
        ]

    def features(self, box: Box, out: NDArray[np.float32]) -> None:
        """The whole state, and of each thing what is left to do; 0 or 1, shape (SIZE,).

        Per room: whether it has a container, the devices, whether that is open, the room is locked,
        the agent is there. Per thing: room and spot where it is, whether in the hand; states;
        sorts; and, as long as it is not so yet, whether it is still to be carried, room and spot
        where it has to end, what it has to become.
        """
        places = box.table("places")
        out[self._fixed] = 1.0
        for n, (name, row) in enumerate(box.table("rooms").items()):
            container = self.spots[name][1]
            if container and places[container]["lid"] == "open":
                out[PER_ROOM * n + OPEN] = 1.0
            if row["locked"]:
                out[PER_ROOM * n + LOCKED] = 1.0
        out[PER_ROOM * self.rooms.index(room_of(box)) + HERE] = 1.0
        out[PER_ROOM * MOST_ROOMS :] = self._of_things(box.table("things"))

    def _of_things(self, things: Table) -> NDArray[np.float32]:
        """The part about things, made anew only when their table was replaced."""
        if self._last is None or self._last[0] is not things:
            out = np.zeros(PER_THING * MOST_THINGS, np.float32)
            for n, name in enumerate(self.things):
                for at in self._ones(name, things[name]):
                    out[n * PER_THING + at] = 1.0
            self._last = (things, out)
        return self._last[1]

    def _ones(self, name: str, row: Row) -> list[int]:
        """Which features of a thing are 1; none of one that is gone."""
        if row["gone"]:
            return []
        ones = self._where(row["place"])
        at = MOST_ROOMS + len(SPOTS)
        ones += [at] * (row["place"] == HAND)
        marks = (not row["clean"], *(row["temp"] == t for t in STATES[1:4]), row["cut"])
        sorts = (row["sort"] == sort for sort in SORTS)
        ones += [at + 1 + n for n, true in enumerate((*marks, *sorts)) if true]
        at += 1 + len(STATES) + len(SORTS)
        goal = self.goal.get(name)
        wants = self.wants.get(name, ())
        todo = [any(row[f] != v for f, v in TREATED[w][1].items()) and w in wants for w in TREATED]
        if goal is not None and (row["place"] != goal or any(todo)):
            ones += [at, *(at + 1 + n for n in self._where(goal))]
            at += 1 + MOST_ROOMS + len(SPOTS)
            ones += [at + n for n, true in enumerate(todo) if true]
        return ones

    def _where(self, place: str) -> list[int]:
        if place not in self.spot:
            return []
        room, spot = self.spot[place]
        return [room, MOST_ROOMS + spot]


def _padded(names: list[str], length: int) -> list[str]:
    return names + [""] * (length - len(names))


VIEW = Numeric(slots=SLOTS, size=SIZE, read=HouseView)
