"""Seven families of housework. Each function drafts one world: state, workflow, checks, sayings.

One hand carries everything, so a workflow is a set of errands that can be run in any order: each
begins by going somewhere and ends with an empty hand. What is said stands here by its id only; the
sentences are those of ``sayings.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.envs.domain import Template
from headway.envs.domains.house.tools import USES
from headway.envs.world import Action, Draft
from headway.verifiers import Allow, Check

MOST_THINGS = 10
MOST_ROOMS = 5
"""Things and rooms in a house: as many as the numeric view has slots."""

TREATED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "clean": ("wash", {"clean": True}),
    "hot": ("heat", {"temp": "hot"}),
    "cold": ("cool", {"temp": "cold"}),
    "cut": ("slice", {"cut": True}),
}
"""What a thing can be asked to be: the tool that does it, and the fields that it sets."""

PLAIN = {"clean": True, "temp": "plain", "cut": False, "gone": False}


def slug(name: str) -> str:
    """A name as a part of an id."""
    return name.replace(" ", "_")


def row(id: str, table: str, key: str, weight: float, /, **where: Any) -> Check:
    """The row of that key meets the conditions."""
    return Check(id, "rows", {"table": table, "key": key, "where": where}, weight)


@dataclass(frozen=True)
class House:
    """What a draft has built so far.

    Attributes:
        draft: What it is written on.
        rooms: Names; the first is the one that all doors open into.
        surface: Of each room, the open place in it.
        chest: Of some rooms, the closed place in it.
        device: Of each use, the room to do it in.
        alone: Kinds of which no more things are put anywhere by chance.
    """

    draft: Draft
    rooms: Sequence[str]
    surface: Mapping[str, str]
    chest: Mapping[str, str]
    device: Mapping[str, str]
    alone: list[str] = field(default_factory=list)

    def room(self, place: str) -> str:
        """Where a place is."""
        return str(self.draft.tables["places"][place]["room"])

    def thing(self, sort: str, place: str, *, kind: str | None = None, **state: Any) -> str:
        """Puts a thing somewhere and returns its name."""
        draft = self.draft
        kinds = [kind] if kind else [k for k in draft.words[sort] if k not in self.alone]
        looks = draft.words["metal" if sort == "key" else "look"]
        look, kind = draft.unique(lambda: (draft.rng.choice(looks), draft.rng.choice(kinds)))
        name = f"{look} {kind}"
        fields = {"kind": kind, "look": look, "sort": sort, "place": place}
        draft.put("things", name, **fields, **{**PLAIN, **state})
        return name

    def lone(self, sort: str, place: str, **state: Any) -> str:
        """A thing whose kind alone will tell which one is meant, but for a twin."""
        name = self.thing(sort, place, **state)
        self.alone.append(str(self.draft.tables["things"][name]["kind"]))
        return name

    def carry(self, name: str, wants: Sequence[str], place: str, told: Sources) -> list[Action]:
        """The calls that fetch a thing, treat it and put it where it belongs.

        Args:
            name: The thing.
            wants: What it has to become, of :data:`TREATED`.
            place: Where it ends.
            told: From which facts and records thing and place are known.
        """
        draft, start = self.draft, str(self.draft.tables["things"][name]["place"])
        which = {"thing": told.thing}
        calls = [Action("go", {"room": self.room(start)})]
        calls += [Action("open", {"place": start})] * self.lidded(start)
        calls += [Action("take", {"thing": name}, which)]
        calls += [Action("close", {"place": start})] * self.lidded(start)
        for want in draft.rng.shuffled(wants):
            use, _ = TREATED[want]
            calls += [Action("go", {"room": self.device[use]}), Action(use, {"thing": name}, which)]
        end = Action("put", {"thing": name, "place": place}, {**which, "place": told.place})
        return [*calls, Action("go", {"room": self.room(place)}), end]

    def lidded(self, place: str) -> bool:
        """Whether a place has to be opened and closed."""
        return bool(self.draft.tables["places"][place]["lid"] != "none")


@dataclass(frozen=True)
class Sources:
    """From which facts and records an errand is known."""

    thing: tuple[str, ...] = ("things",)
    place: tuple[str, ...] = ("place",)


TOLD = Sources()


def build(draft: Draft, *, alike: bool = False) -> House:
    """Rooms, places and devices, and one thing in the first room that nobody asked for.

    Args:
        draft: What to write on.
        alike: Whether the open places are all of one kind.
    """
    rng, words, size = draft.rng, draft.words, draft.knobs.size
    count = MOST_ROOMS if size > 2 else MOST_ROOMS - 1
    rooms = [rng.choice(words["entry"]), *rng.sample(words["room"], count - 1)]
    for room in rooms:
        draft.put("rooms", room, locked=False, fits="")
    draft.facts["rooms"] = ", ".join(rooms)
    surface, chest = {}, {}
    kinds = [rng.choice(words["surface"])] if alike else words["surface"]
    for room in rooms:
        surface[room] = _place(draft, room, kinds, "none")
    for room in rng.sample(rooms, min(count, size)) if size > 1 else ():
        chest[room] = _place(draft, room, words["chest"], "closed")
    device = dict(zip(USES, [*rng.sample(rooms[1:], 3), rng.choice(rooms[1:])], strict=True))
    for use in rng.shuffled(list(USES)):
        draft.put("devices", rng.choice(words[use]), room=device[use], use=use)
    house = House(draft, rooms, surface, chest, device)
    house.thing("other", surface[rooms[0]])
    return house


def _place(draft: Draft, room: str, kinds: Sequence[str], lid: str) -> str:
    finish = draft.unique(lambda: draft.rng.choice(draft.words["finish"]))
    name = f"{finish} {draft.rng.choice(kinds)}"
    draft.put("places", name, room=room, lid=lid)
    return name


def distract(house: House, *, but: Sequence[str] = ()) -> None:
    """More things that nobody asked for, anywhere but in some rooms."""
    rng = house.draft.rng
    rooms = [room for room in house.rooms if room not in but]
    for _ in range(house.draft.knobs.distractors - 1):
        dirty, hot = rng.below(2) == 0, rng.below(2) == 0
        sort = rng.choice(["dish", "food", "other"])
        clean, temp = sort != "dish" or not dirty, "hot" if hot and sort == "food" else "plain"
        house.thing(sort, house.surface[rng.choice(rooms)], clean=clean, temp=temp)


def starts(house: House, count: int, end: str, *, but: Sequence[str] = ()) -> list[str]:
    """Places for ``count`` things to lie in, none in the room of ``end``; half of them closed."""
    rng = house.draft.rng
    rooms = [r for r in house.rooms if r != house.room(end) and r not in but]
    closed = [house.chest[room] for room in rng.shuffled(rooms) if room in house.chest]
    hidden = closed[: count // 2]
    open_ = [house.surface[rng.choice(rooms)] for _ in range(count - len(hidden))]
    return rng.shuffled(hidden + open_)


def errand(
    house: House,
    name: str,
    wants: Sequence[str],
    place: str,
    *,
    told: Sources = TOLD,
    after: Sequence[str] = (),
) -> str:
    """Adds the step that brings a thing, in the wanted state, to its place; returns its id."""
    draft, id = house.draft, slug(name)
    start = str(draft.tables["things"][name]["place"])
    first = "out" if not wants else wants[0]
    away = row(f"out.{id}", "things", name, 0.25, place={"not": start})
    treated = [row(f"{want}.{id}", "things", name, 0.5, **TREATED[want][1]) for want in wants]
    checks = treated or [away]
    writes = [Allow("things", (name,), ("place", *(f for w in wants for f in TREATED[w][1])))]
    if house.lidded(start):
        shut = Check(
            f"shut.{id}",
            "rows",
            {"table": "places", "key": start, "where": {"lid": "closed"}},
            0.25,
            needs=(f"{first}.{id}",),
        )
        checks.append(shut)
        writes.append(Allow("places", (start,), ("lid",)))
    end = {"table": "things", "key": name, "where": {"place": place}}
    needs = tuple(check.id for check in treated)
    checks += [Check(f"place.{id}", "rows", end, 1.0, needs=needs)]
    calls = house.carry(name, wants, place, told)
    step = draft.step(f"bring.{id}", calls, *checks, after=after, writes=writes)
    other = draft.rng.choice([p for p in house.surface.values() if p not in (place, start)])
    draft.naive("another place", {step: house.carry(name, wants, other, told)})
    return step


def marks(house: House, *steps: str, starting: Sequence[str] = ()) -> list[str]:
    """Ids of the checks of steps, or of those that start in one of the given ways."""
    return [
        check.id
        for step in house.draft.steps
        if step.id in steps
        for check in step.checks
        if not starting or check.id.partition(".")[0] in starting
    ]


def say_rest(house: House, *steps: str) -> None:
    """What every template has to say: the rooms there are, and that lids are closed again."""
    house.draft.say("rooms", announces=marks(house, *steps, starting=("out", "place")))
    shut = marks(house, *steps, starting=("shut",))
    if shut:
        house.draft.say("shut", announces=shut)


def target(house: House, *, but: Sequence[str] = ()) -> str:
    """The place where things have to end, and the fact that names it."""
    rooms = [room for room in house.rooms if room not in but]
    place = house.surface[house.draft.rng.choice(rooms)]
    house.draft.facts["place"] = place
    return place


Made = Callable[[int, str], tuple[str, Sequence[str]]]
"""``made(n, place)`` puts the n-th thing of a task somewhere and says what it has to become."""


def errands(house: House, made: Made, count: int, **where: Any) -> tuple[list[str], list[str], str]:
    """``count`` errands to one place: the things, the steps, the place; names the facts."""
    place = target(house, **where)
    names, steps = [], []
    for n, start in enumerate(starts(house, count, place, **where)):
        name, wants = made(n, start)
        names.append(name)
        steps.append(errand(house, name, wants, place))
    house.draft.facts["things"] = ", ".join(names)
    return names, steps, place


def twin(
    house: House, name: str, *, fact: str = "things", but: Sequence[str] = (), **state: Any
) -> None:
    """Trap: a second thing of the kind, in another state, while only the kind is named.

    Args:
        house: Where it is put.
        name: The thing that is meant.
        fact: Where it is named.
        but: Rooms in which the other one does not lie.
        **state: How the other one differs.
    """
    draft = house.draft
    step = next(s for s in draft.steps if s.id == f"bring.{slug(name)}")
    place = str(step.actions[-1].args["place"])
    mine = draft.tables["things"][name]
    rooms = [r for r in house.rooms if r != house.room(place) and r not in but]
    where = house.surface[draft.rng.choice(rooms)]
    same = {field: mine[field] for field in PLAIN} | state
    other = house.thing(str(mine["sort"]), where, kind=str(mine["kind"]), **same)
    ((part, value),) = [(f, mine[f]) for f in PLAIN if mine[f] != same[f]]
    draft.facts["twin"] = str(mine["kind"])
    draft.facts["mark"] = _mark(part, value)
    draft.facts[fact] = draft.facts[fact].replace(name, str(mine["kind"]))
    phrase = f"the {draft.facts['mark']} {mine['kind']}"
    draft.referent(phrase, "things", kind=mine["kind"], **{part: value})
    wants = [c.id.partition(".")[0] for c in step.checks]
    treat = [want for want in wants if want in TREATED]
    draft.naive("twin", {step.id: house.carry(other, treat, place, TOLD)})
    draft.say("twin", announces=[c.id for c in step.checks])


def _mark(field: str, value: Any) -> str:
    """How a state is called."""
    words = {"clean": ("dirty", "clean"), "cut": ("whole", "cut")}
    if field == "temp":
        return {"plain": "lukewarm"}.get(str(value), str(value))
    return words[field][bool(value)]


def refer(house: House, names: Sequence[str]) -> None:
    """Every name selects one thing."""
    for name in names:
        mine = house.draft.tables["things"][name]
        house.draft.referent(name, "things", kind=mine["kind"], look=mine["look"])


def fetch(draft: Draft) -> None:
    """Bring things to a place as they are. Traps: a twin; a place of the same kind in each room."""
    house = build(draft, alike=draft.knobs.traps > 1)
    rng, knobs = draft.rng, draft.knobs

    def made(n: int, start: str) -> tuple[str, Sequence[str]]:
        if n == 0 and knobs.traps:
            return house.lone("dish", start, clean=False), ()
        return house.thing(rng.choice(["dish", "food", "other"]), start), ()

    names, steps, place = errands(house, made, knobs.size)
    draft.say("fetch", announces=marks(house, *steps))
    distract(house)
    if knobs.traps:
        twin(house, names[0], clean=True)
    if knobs.traps > 1:
        alike = rng.choice([p for p in house.surface.values() if p != place])
        draft.naive("place of the same kind", {steps[1]: house.carry(names[1], (), alike, TOLD)})
    refer(house, names)
    say_rest(house, *steps)


def clean(draft: Draft) -> None:
    """Bring clean dishes to a place. Traps: a clean twin; a dish that is clean but put away."""
    house = build(draft)
    knobs = draft.knobs

    def made(n: int, start: str) -> tuple[str, Sequence[str]]:
        ready = n == 1 and knobs.traps > 1
        make = house.lone if n == 0 else house.thing
        return make("dish", start, clean=ready), () if ready else ("clean",)

    names, steps, _ = errands(house, made, knobs.size)
    draft.say("clean", announces=marks(house, *steps))
    distract(house)
    if knobs.traps:
        twin(house, names[0], clean=True)
    if knobs.traps > 1:
        draft.naive("clean already", {steps[1]: []})
    refer(house, names)
    say_rest(house, *steps)


def serve(draft: Draft) -> None:
    """Bring hot food to a place. Traps: what is hot already burns; a cold twin."""
    house = build(draft)
    knobs = draft.knobs

    def made(n: int, start: str) -> tuple[str, Sequence[str]]:
        ready = n == 1 and knobs.traps > 0
        temp = "hot" if ready else "plain"
        make = house.lone if n == 0 else house.thing
        return make("food", start, temp=temp), () if ready else ("hot",)

    names, steps, place = errands(house, made, knobs.size)
    draft.say("serve", announces=marks(house, *steps))
    distract(house)
    if knobs.traps:
        draft.naive("hot already", {steps[1]: house.carry(names[1], ("hot",), place, TOLD)})
    if knobs.traps > 1:
        twin(house, names[0], temp="cold")
    refer(house, names)
    say_rest(house, *steps)


def locked(draft: Draft) -> None:
    """Fetch things from a locked room. Traps: a key that does not fit; a twin outside."""
    house = build(draft)
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    hall = house.rooms[0]
    inside = rng.choice(house.rooms[1:])
    place = target(house, but=[inside])
    keeps = [house.surface[r] for r in house.rooms if r != inside]
    start = rng.choice(keeps)
    key = house.thing("key", start)
    draft.put("rooms", inside, locked=True, fits=key)
    tag = draft.facts["tag"] = rng.choice(words["tag"])
    lines = [f"{inside} is locked: {key}, kept on the {start}."]
    if knobs.traps:
        wrong = house.thing("key", rng.choice(keeps))
        lines.append(f"Not in use any more: {wrong}.")
    draft.put("notes", tag, room=hall, text=" ".join(lines))
    record = f"notes/{tag}"
    told = draft.step(
        "tag",
        [Action("go", {"room": hall}), Action("read", {"note": tag})],
        Check("read.tag", "seen", {"records": [record]}, 0.25, evidence=True),
    )

    def turn(key: str, start: str, end: str) -> list[Action]:
        read = (record,)
        return [
            Action("go", {"room": house.room(start)}),
            Action("take", {"thing": key}, {"thing": read}),
            Action("go", {"room": hall}),
            Action("unlock", {"room": inside, "key": key}, {"room": read, "key": read}),
            Action("go", {"room": house.room(end)}),
            Action("put", {"thing": key, "place": end}, {"thing": read, "place": read}),
        ]

    back = {"table": "things", "key": key, "where": {"place": start}}
    opened = draft.step(
        "unlock",
        turn(key, start, start),
        row("unlock", "rooms", inside, 0.5, locked=False),
        Check("back", "rows", back, 0.25, needs=("unlock",)),
        after=[told],
        writes=[Allow("rooms", (inside,), ("locked",)), Allow("things", (key,), ("place",))],
    )
    names, steps = [], []
    for n in range(knobs.size):
        dirty = n == 0 and knobs.traps > 1
        sort = "dish" if dirty else rng.choice(["dish", "food", "other"])
        make = house.lone if dirty else house.thing
        name = make(sort, house.surface[inside], clean=not dirty)
        names.append(name)
        steps.append(errand(house, name, (), place, after=[opened]))
    draft.facts["things"] = ", ".join(names)
    draft.say("locked", announces=marks(house, *steps))
    draft.say("key", announces=["unlock", "back", "read.tag"])
    distract(house, but=[inside])
    if knobs.traps:
        where = str(draft.tables["things"][wrong]["place"])
        draft.naive("wrong key", {opened: turn(wrong, where, where)})
    elsewhere = rng.choice([p for p in keeps if p != start])
    draft.naive("key left elsewhere", {opened: turn(key, start, elsewhere)})
    if knobs.traps > 1:
        twin(house, names[0], but=[inside], clean=True)
    refer(house, [*names, key])
    say_rest(house, *steps)


def chores(draft: Draft) -> None:
    """Several things, each to its own end. Traps: a twin; food that is hot already."""
    house = build(draft)
    rng, knobs = draft.rng, draft.knobs
    place = target(house)
    kinds = {"carry": ("other", ()), "wash": ("dish", ("clean",)), "warm": ("food", ("hot",))}
    kinds |= {"chill": ("food", ("cold",)), "slice": ("food", ("cut",))} if knobs.size > 2 else {}
    first = ["wash", "warm"] if knobs.traps > 1 else ["wash"] if knobs.traps else []
    rest = knobs.size - len(first)
    jobs = [*first, *(rng.choice(list(kinds)) for _ in range(rest))]
    lists: dict[str, list[tuple[str, str]]] = {}
    for n, (job, start) in enumerate(zip(jobs, starts(house, knobs.size, place), strict=True)):
        sort, wants = kinds[job]
        ready = job == "warm" and n == 1 and knobs.traps > 1
        make = house.lone if job == "wash" and n == 0 else house.thing
        name = make(sort, start, clean=job != "wash", temp="hot" if ready else "plain")
        told = Sources(thing=(job,))
        step = errand(house, name, () if ready else wants, place, told=told)
        lists.setdefault(job, []).append((name, step))
        if ready:
            draft.naive("hot already", {step: house.carry(name, wants, place, told)})
    for job, entries in lists.items():
        draft.facts[job] = ", ".join(name for name, _ in entries)
        draft.say(job, announces=marks(house, *(step for _, step in entries)))
    distract(house)
    names = [name for entries in lists.values() for name, _ in entries]
    if knobs.traps:
        twin(house, lists["wash"][0][0], fact="wash", clean=True)
    refer(house, names)
    say_rest(house, *(step for entries in lists.values() for _, step in entries))


def recipe(draft: Draft) -> None:
    """Prepare what a card says, which a menu names. Traps: an old card; a twin of an ingredient."""
    house = build(draft)
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    place = target(house)
    menu = draft.facts["menu"] = rng.choice(words["menu"])
    meals = rng.sample(words["meal"], 2)
    cards = [f"{meal} card" for meal in meals]
    steps, lines, old = [], [], []
    hall, kitchen = house.rooms[0], rng.choice(house.rooms[1:])
    records = ("notes/" + menu, "notes/" + cards[0])
    told = Sources(thing=records)
    draft.put("notes", menu, room=hall, text=f"Today: {cards[0]}. Another day: {cards[1]}.")
    look = draft.step(
        "menu",
        [Action("go", {"room": hall}), Action("read", {"note": menu})],
        Check("read.menu", "seen", {"records": [records[0]]}, 0.25, evidence=True),
    )
    study = draft.step(
        "card",
        [
            Action("go", {"room": kitchen}),
            Action("read", {"note": cards[0]}, {"note": records[:1]}),
        ],
        Check("read.card", "seen", {"records": [records[1]]}, 0.25, evidence=True),
        after=[look],
    )
    names = []
    for start in starts(house, knobs.size, place):
        name = house.thing("food", start)
        names.append(name)
        want, other = rng.sample(["hot", "cold", "cut"], 2)
        step = errand(house, name, (want,), place, told=told, after=[study])
        steps.append(step)
        lines.append(f"{name}: {TREATED[want][0]}.")
        old.append(f"{name}: {TREATED[other][0]}.")
        if knobs.traps and name == names[0]:
            draft.naive("old card", {step: house.carry(name, (other,), place, told)})
    draft.put("notes", cards[0], room=kitchen, text=" ".join(lines))
    draft.put("notes", cards[1], room=kitchen, text=" ".join(old[:1]))
    if knobs.traps:
        draft.put("notes", f"old {cards[0]}", room=kitchen, text=" ".join(old))
    draft.say("recipe", announces=[*marks(house, *steps), "read.menu", "read.card"])
    distract(house)
    if knobs.traps > 1:
        _half_done(house, names[-1], steps[-1], place, told)
    refer(house, names)
    say_rest(house, *steps)


def _half_done(house: House, name: str, step: str, place: str, told: Sources) -> None:
    """Trap: the ingredient lies there once more, in another colour and treated already."""
    draft = house.draft
    mine = draft.tables["things"][name]
    rooms = [r for r in house.rooms if r != house.room(place)]
    where = house.surface[draft.rng.choice(rooms)]
    other = house.thing("food", where, kind=str(mine["kind"]), temp="hot", cut=True)
    draft.naive("another one of the kind", {step: house.carry(other, (), place, told)})


def delivery(draft: Draft) -> None:
    """Take parcels where the board says their people's post goes. Traps: people who are away."""
    house = build(draft)
    rng, words, knobs = draft.rng, draft.words, draft.knobs
    hall = house.rooms[0]
    board = draft.facts["board"] = rng.choice(words["board"])
    people = rng.sample(words["person"], knobs.size + 1)
    homes = {who: house.surface[rng.choice(house.rooms)] for who in people}
    lines = [f"Post for {who}: {homes[who]}." for who in rng.shuffled(people)]
    draft.put("notes", board, room=hall, text=" ".join(lines))
    reads, records, ends = [Action("read", {"note": board})], [f"notes/{board}"], dict(homes)
    if knobs.traps:
        slip = draft.facts["slip"] = rng.choice(words["slip"])
        away = people[: knobs.traps]
        for who in away:
            others = [place for place in house.surface.values() if place != homes[who]]
            ends[who] = rng.choice(others)
        text = " ".join(f"{who} is away: post for {who} goes to the {ends[who]}." for who in away)
        draft.put("notes", slip, room=hall, text=text)
        reads.append(Action("read", {"note": slip}))
        records.append(f"notes/{slip}")
    look = draft.step(
        "board",
        [Action("go", {"room": hall}), *reads],
        Check("read.board", "seen", {"records": records}, 0.25, evidence=True),
    )
    names, steps = [], []
    for n, who in enumerate(people[: knobs.size]):
        rooms = [r for r in house.rooms if house.surface[r] not in (ends[who], homes[who])]
        start = house.surface[rng.choice(rooms)]
        name = house.thing("parcel", start)
        label = f"notes/{name}"
        draft.put("notes", name, room="", text=f"For {who}.")
        names.append(name)
        seen = draft.step(
            f"label.{slug(name)}",
            [Action("go", {"room": house.room(start)}), Action("read", {"note": name})],
            Check(f"read.{slug(name)}", "seen", {"records": [label]}, 0.25, evidence=True),
        )
        told = Sources(place=(*records, label))
        step = errand(house, name, (), ends[who], told=told, after=[look, seen])
        steps.append(step)
        if n < knobs.traps:
            draft.naive("away", {step: house.carry(name, (), homes[who], told)})
    draft.facts["things"] = ", ".join(names)
    draft.say("delivery", announces=[*marks(house, *steps), "read.board"])
    if knobs.traps:
        draft.say("slip", announces=marks(house, *steps, starting=("place",)))
    distract(house)
    refer(house, names)
    say_rest(house, *steps)


TEMPLATES = (
    Template("fetch", fetch),
    Template("clean", clean),
    Template("serve", serve),
    Template("locked", locked),
    Template("chores", chores),
    Template("recipe", recipe),
    Template("delivery", delivery, held_out=True),
)
