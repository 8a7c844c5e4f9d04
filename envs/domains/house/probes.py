"""What the contract tries on every task of this world: guesses, looks, damage, honest variants."""

from __future__ import annotations

from collections.abc import Sequence

from headway.envs.box import Box
from headway.envs.domains.house.tools import HAND, USES, held, in_sight, room_of
from headway.envs.rng import Rng
from headway.envs.world import Action, LatentWorld, Step


def guess(box: Box, rng: Rng) -> Action:
    """A call that is possible here, each kind of it as likely as the next."""
    room, holds = room_of(box), held(box)
    things, places = box.table("things"), box.table("places")
    doors = [r for r, row in box.table("rooms").items() if not row["locked"] and r != room]
    here = {name: row for name, row in places.items() if row["room"] == room}
    seen = [n for n, row in things.items() if row["place"] != HAND and in_sight(box, row, room)]
    kinds = [[Action("look", {})], [Action("go", {"room": r}) for r in doors]]
    if holds is None:
        kinds.append([Action("take", {"thing": name}) for name in seen])
    else:
        on = [name for name, row in here.items() if row["lid"] != "closed"]
        kinds.append([Action("put", {"thing": holds, "place": name}) for name in on])
        uses = [d["use"] for d in box.table("devices").values() if d["room"] == room]
        fits = [use for use in uses if USES[use] == things[holds]["sort"]]
        kinds.append([Action(use, {"thing": holds}) for use in fits])
        shut = [r for r, row in box.table("rooms").items() if row["locked"]]
        kinds.append([Action("unlock", {"room": r, "key": holds}) for r in shut])
    kinds.append([Action("discard", {"thing": name}) for name in seen])
    for tool, lid in (("open", "closed"), ("close", "open")):
        kinds.append([Action(tool, {"place": n}) for n, row in here.items() if row["lid"] == lid])
    notes = box.table("notes").items()
    kinds.append([Action("read", {"note": n}) for n, row in notes if row["room"] == room])
    return rng.choice(rng.choice([calls for calls in kinds if calls]))


def look(box: Box) -> list[Action]:
    """The calls that see every room, look into everything and read everything; lids are closed."""
    calls = [Action("look", {})]
    notes, things, places = box.table("notes"), box.table("things"), box.table("places")
    for room in box.table("rooms"):
        calls.append(Action("go", {"room": room}))
        calls += [
            Action("read", {"note": name}) for name, row in notes.items() if row["room"] == room
        ]
        for place, row in places.items():
            if row["room"] != room:
                continue
            calls += [Action("open", {"place": place})] * (row["lid"] == "closed")
            inside = [name for name, thing in things.items() if thing["place"] == place]
            calls += [Action("read", {"note": name}) for name in inside]
            calls += [Action("close", {"place": place})] * (row["lid"] == "closed")
    return calls


def stray(world: LatentWorld, rng: Rng) -> list[Action]:
    """Calls that damage something outside any footprint, from where the agent stands at first."""
    hall = next(iter(world.tables["rooms"]))
    used = [
        call.args["place"] for step in world.steps for call in step.actions if call.tool == "open"
    ]
    lids = [
        name
        for name, row in world.tables["places"].items()
        if row["room"] == hall and row["lid"] == "closed" and name not in used
    ]
    idle = next(iter(world.tables["things"]))
    return [
        Action("discard", {"thing": idle}),
        Action("take", {"thing": idle}),
        *(Action("open", {"place": name}) for name in lids),
    ]


def _calls(plan: Sequence[Step]) -> list[Action]:
    return [action for step in plan for action in step.actions]


def put_down(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """Whatever is taken is put back once and taken again."""
    out = []
    for call in _calls(plan):
        out.append(call)
        if call.tool == "take":
            place = world.tables["things"][call.args["thing"]]["place"]
            out += [Action("put", {"thing": call.args["thing"], "place": place}), call]
    return out


def detours(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """By way of another room, and with a look around."""
    out = []
    rooms = list(world.tables["rooms"])
    for call in _calls(plan):
        if call.tool == "go":
            out += [Action("go", {"room": rng.choice(rooms)}), Action("look", {})]
        out.append(call)
    return out


def wrong_thing_first(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """What nobody asked for is taken out of its room, and brought back."""
    name, row = next(iter(world.tables["things"].items()))
    rooms = list(world.tables["rooms"])
    return [
        Action("take", {"thing": name}),
        Action("go", {"room": rng.choice(rooms)}),
        Action("go", {"room": rooms[0]}),
        Action("put", {"thing": name, "place": row["place"]}),
        *_calls(plan),
    ]


def lids_tried(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action] | None:
    """Everything that is closed is opened and closed before the work; locked rooms are left."""
    closed = [(n, row) for n, row in world.tables["places"].items() if row["lid"] == "closed"]
    if not closed:
        return None
    out = []
    for name, row in closed:
        out.append(Action("go", {"room": row["room"]}))
        if not world.tables["rooms"][row["room"]]["locked"]:
            out += [Action("open", {"place": name}), Action("close", {"place": name})]
    return out + _calls(plan)


def two_trips(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action] | None:
    """Things are brought to their place as they are, and only then fetched for treatment."""
    out, other = [], False
    for step in plan:
        calls = list(step.actions)
        uses = [n for n, call in enumerate(calls) if call.tool in USES]
        if uses:
            other = True
            there, end = calls[-2:]
            first = uses[0] - 1  # the way to the first device
            out += [*calls[:first], there, end, Action("take", {"thing": end.args["thing"]})]
            calls = calls[first:]
        out += calls
    return out if other else None


def misnamed(world: LatentWorld, plan: Sequence[Step], rng: Rng) -> list[Action]:
    """Names with an article, in capitals."""
    return [
        Action(call.tool, {name: f"The {text.upper()}" for name, text in call.args.items()})
        for call in _calls(plan)
    ]


VARIANTS = {
    "put down and taken again": put_down,
    "detours and looks": detours,
    "a wrong thing brought back": wrong_thing_first,
    "lids tried and closed": lids_tried,
    "brought first, treated later": two_trips,
    "names with an article": misnamed,
}
