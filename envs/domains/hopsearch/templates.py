"""Six families of questions. Each function drafts one: the print, the steps, the checks, the clues.

What is said stands here by its id only; the sentences are those of ``sayings.json``. Every question
ends at the roll of a guild, with what is entered there for the warden: one of 8192 values, told
nowhere else. On the way the agent files what it has found on a worksheet. These lines are the
acting checks, so progress along the chain is verified work, and not evidence that anybody earns who
opens pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from headway.envs.domain import Template
from headway.envs.domains.hopsearch.clues import Node, Quest, Records, Tree, candidates
from headway.envs.domains.hopsearch.edition import POOL, PROSE, SIZES, SOURCES, Print, printed
from headway.envs.domains.hopsearch.tools import plain_name
from headway.envs.render import offered
from headway.envs.world import Action, Draft
from headway.verifiers import Check

LETTERS = "CDFGHJKLMNQRTVWXZ"


class Trail:
    """A draft with an encyclopaedia, and what the oracle has found in it so far.

    Attributes:
        draft: What is written on.
        book: The print.
        steps: The step that showed a record, by record.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        size = list(SIZES)[draft.knobs.distractors - 1]
        number, kind = draft.rng.below(2**53), draft.rng.choice(("number", "date"))
        self.book: Print = printed(draft.split, size, number, kind)
        for place, id in enumerate(self.book.ids):
            draft.put("pages", id, title=self.book.title(place))
        self.row = {"split": draft.split, "size": size, "number": number, "kind": kind}
        self.steps: dict[str, str] = {}
        self._found: set[str] = set()
        self._notes: list[tuple[str, str]] = []
        draft.distract(*(f"pages/{id}" for id in self.book.ids))
        what = "value_number" if kind == "number" else "value_date"
        draft.facts["value"] = self.phrase(what)
        low, high = self.book.shown(0), self.book.shown(POOL - 1)
        draft.facts["pool"] = f"{low} to {high}"

    def phrase(self, what: str, **parts: str) -> str:
        """A part of a sentence, in one of the wordings that the split may use."""
        words = PROSE[f"ask.{what}"]
        return self.draft.rng.choice(offered(words, self.draft.split)).format(**parts)

    def read(self, page: Node, part: int = 1, *, query: str, told: Sequence[str] = ()) -> str:
        """A step that finds a page and opens a part of it; returns the record that it shows.

        Args:
            page: Kind and number.
            part: Part of it.
            query: The oracle's words.
            told: Records that name the page; none if the question does.
        """
        id, record = self.book.id(*page), self.book.record(*page, part=part)
        actions = []
        if id not in self._found:
            sources = {"query": tuple(told)} if told else {}
            actions.append(Action("search", {"query": query}, sources, (f"pages/{id}",)))
            title = self.draft.tables["pages"][id]["title"]
            self.draft.referent(title, "pages", title=title)
            self._found.add(id)
        actions.append(Action("open", {"id": id, "part": part} if part > 1 else {"id": id}))
        step = f"read.{page[0]}.{id}.{part}"
        check = Check(step, "seen", {"records": [record]}, 0.25, evidence=True)
        earlier = [self.steps[r] for r in (*told, *self._before(id)) if r in self.steps]
        after = list(dict.fromkeys(earlier))
        self.steps[record] = self.draft.step(step, actions, check, after=after)
        return record

    def _before(self, id: str) -> list[str]:
        """The records of a page that were read already."""
        return [record for record in self.steps if record.startswith(f"pages/{id}/")]

    def name(self, node: Node) -> str:
        """How a province, town, river, guild, craft, scholar or work is called."""
        edition, (kind, n) = self.book.edition, node
        if kind == "town":
            return self.book.name(*edition.town(n))
        if kind == "river":
            return self.book.name(*edition.stream(n))
        if kind == "scholar":
            return self.book.name(*edition.scholar(n))
        return self.book.name("place" if kind == "province" else kind, n)

    def file(self, what: str, name: str, *told: str, hidden: bool = True) -> str:
        """A step that writes a finding on a line of the worksheet; returns the step.

        Args:
            what: Kind of finding, for which there is a saying ``note_<what>``.
            name: The finding.
            *told: Records from which it follows.
            hidden: Whether it has to be found; False if the question names it among others.
        """
        draft = self.draft
        fact = f"line_{what}"
        line = draft.facts[fact] = draft.unique(
            lambda: f"{draft.rng.choice(LETTERS)}{draft.rng.randint(2, 9)}"
        )
        titled = [
            f"pages/{id}" for id, row in draft.tables["pages"].items() if name in row["title"]
        ]
        pages = [record.rpartition("/")[0] for record in told]
        if hidden:
            places = tuple(dict.fromkeys((*pages, *titled)))
            draft.secret(what, name, *places, bits=math.log2(len(self.book.edition.guilds)))
        where = {"line": {"text": line}, "value": {"text": plain_name(name)}}
        check = Check(f"note.{what}", "rows", {"table": "worksheet", "where": where})
        self._notes.append((what, line))
        return draft.step(
            f"note.{what}",
            [self.entry(what, name, *told)],
            check,
            after=list(dict.fromkeys(self.steps[record] for record in told)),
            makes=True,
        )

    def entry(self, what: str, name: str, *told: str) -> Action:
        """The call that writes ``name`` on the line for ``what``."""
        fact = f"line_{what}"
        args = {"line": self.draft.facts[fact], "value": name, "source": "as the page says"}
        return Action("note", args, {"value": (fact, *told), "source": ()})

    def roll(self, guild: int, *told: str) -> str:
        """Reads the roll of a guild, files its warden and answers; returns the roll's record."""
        book, name = self.book, self.book.name("guild", guild)
        record = self.read(("guild", guild), 2, query=name, told=told)
        warden, former = book.edition.warden[guild], book.edition.former[guild]
        people = [book.name("person", n) for n in book.edition.members_of[guild]]
        entered = [book.shown(index) for index in book.roll(guild)]
        self.file("warden", people[warden], record, *told)
        place = f"pages/{book.id('guild', guild)}"
        self.draft.answer(entered[warden], (record,), bits=math.log2(POOL), places=(place,))
        if self.draft.knobs.traps:
            submit = Action("submit", {"answer": entered[former]})
            note = self.entry("warden", people[former])
            self.draft.naive("former warden", {"note.warden": [note], "answer": [submit]})
        return record

    def wrong_guild(self, trap: str, taken: int, **notes: str) -> None:
        """Declares the solution that takes another guild, and notes what follows from that."""
        book, warden = self.book, self.book.edition.warden[taken]
        person = book.name("person", book.edition.members_of[taken][warden])
        submit = Action("submit", {"answer": book.shown(book.roll(taken)[warden])})
        wrong = {"note.warden": [self.entry("warden", person)], "answer": [submit]}
        wrong |= {f"note.{what}": [self.entry(what, name)] for what, name in notes.items()}
        self.draft.naive(trap, wrong)

    def finish(self, quest: Quest, *rules: str) -> None:
        """Says what has to be said, counts the parts that may be read, works out the clues."""
        draft = self.draft
        reads = sum(a.tool == "open" for step in draft.steps for a in step.actions)
        budget = 2 * reads + 6
        draft.facts["budget"] = str(budget)
        draft.put("book", "print", **self.row, budget=budget)
        draft.candidates = candidates(self.book, quest)
        draft.say("question", announces=["answer"])
        for rule in rules:
            draft.say(rule, announces=[f"note.{what}" for what, _ in self._notes] + ["answer"])
        for what, _ in self._notes:
            draft.say(f"note_{what}", announces=[f"note.{what}"])
        draft.say("budget", announces=["answer"])

    # Ways to the place at which a question starts.

    def province(self, province: int) -> tuple[str, Records]:
        """Words for a province, harder with size, and the records that lead to it."""
        size, edition = self.draft.knobs.size, self.book.edition
        if size <= 3:
            return self.phrase("province", name=self.name(("province", province))), ()
        homes = [s for s in edition.scholars if edition.home[s] == province]
        if size == 4:
            scholar = self.draft.rng.choice(homes)
            person = self.name(("scholar", scholar))
            return self.phrase("home", person=person), (
                self.read(("scholar", scholar), query=person),
            )
        work = self.draft.rng.choice([w for w in edition.works if edition.author[w] in homes])
        title = self.name(("work", work))
        first = self.read(("work", work), query=title)
        author = ("scholar", edition.author[work])
        second = self.read(author, query=self.name(author), told=(first,))
        return self.phrase("home", person=self.phrase("author", work=title)), (first, second)

    def river(self, river: int, *, far: int, besides: Sequence[int]) -> tuple[str, Records]:
        """Words for a river, ``far`` hops away, and the records that lead to it and its page.

        Args:
            river: Which.
            far: 0 names it, 1 a town on it, 2 a work printed in such a town.
            besides: Towns that must not be named.
        """
        edition, rng, name = self.book.edition, self.draft.rng, self.name(("river", river))
        told: Records = ()
        if not far:
            words = self.phrase("river", name=name)
        else:
            towns = [t for t in edition.towns if edition.river[t] == river and t not in besides]
            works = [w for w in edition.works if edition.printed[w] in towns]
            work = rng.choice(works) if far == 2 else None
            town = rng.choice(towns) if work is None else edition.printed[work]
            if work is None:
                words = self.phrase(
                    "river_at", town=self.phrase("town", name=self.name(("town", town)))
                )
                told = (self.read(("town", town), query=f"{self.name(('town', town))} town"),)
            else:
                title = self.name(("work", work))
                words = self.phrase("river_at", town=self.phrase("press", work=title))
                first = self.read(("work", work), query=title)
                query = f"{self.name(('town', town))} town"
                told = (first, self.read(("town", town), query=query, told=(first,)))
        page = self.read(("river", river), query=f"{name} river", told=told[-1:])
        return words, (*told, page)

    def trade(self, craft: int, *, far: int) -> tuple[str, Records]:
        """Words for a craft, ``far`` hops away, and the records that lead to it and its page."""
        edition, name = self.book.edition, self.name(("craft", craft))
        told: Records = ()
        if not far:
            words = self.phrase("craft", name=name)
        else:
            learnt = [s for s in edition.scholars if edition.trade[s] == craft]
            scholar = ("scholar", self.draft.rng.choice(learnt))
            words = self.phrase("trade", person=self.name(scholar))
            told = (self.read(scholar, query=self.name(scholar)),)
        page = self.read(("craft", craft), query=name, told=told)
        return words, (*told, page)

    def register(self, node: Node, *told: str) -> str:
        """Reads the register of a province or town; returns the record."""
        return self.read(node, 2, query=f"{self.name(node)} {node[0]}", told=told)


def _start(trail: Trail, office: str) -> tuple[str, int, Records, Quest]:
    """Words for a town, the town, the records that lead to it, and how the question selects.

    Up to size 2 the town is named, then its province, then a scholar from there, then a work.
    """
    draft, edition = trail.draft, trail.book.edition
    tree = Tree(trail.book, office)
    if draft.knobs.size <= 2:
        town = draft.rng.choice(edition.towns)
        node = ("town", town)
        return trail.phrase("town", name=trail.name(node)), town, (), _by_office(tree, node)
    province = draft.rng.choice(edition.provinces)
    words, hops = trail.province(province)
    node = ("province", province)
    town = edition.chancery[province]
    register = trail.register(node, *hops[-1:])
    trail.file("town", trail.name(("town", town)), register, *hops)
    if hops:
        every = tuple(tree.children(None))
        dead = {child: [hops] for child in every if child != node}
        quest = Quest(None, every, dead, [(hops, (node,))], office)
    else:
        quest = _by_office(tree, node)
    return trail.phrase("chancery", province=words), town, (*hops, register), quest


def _by_office(tree: Tree, node: Node) -> Quest:
    """The question names ``node``, and its office selects below it."""
    children, right = tuple(tree.children(node)), tree.selected(node)
    told = (tree.told(node),)
    dead = {child: [told] for child in children if child != right}
    return Quest(node, children, dead, [(told, (right,))], tree.office)


def chain(draft: Draft) -> None:
    """From a work or scholar to a province, its town, the town's mill guild and its warden.

    Trap: the roll also names the warden before.
    """
    trail, rng = Trail(draft), draft.rng
    if draft.knobs.size == 1:
        guild = rng.choice(trail.book.edition.guilds)
        town = ("town", trail.book.edition.town_of[guild])
        node = ("guild", guild)
        at = trail.phrase("town", name=trail.name(town))
        draft.facts["guild"] = trail.phrase("guild_at", guild=trail.name(node), town=at)
        trail.roll(guild)
        trail.finish(Quest(town, (node,), {}, [((), (node,))], "town"))
        return
    words, town_number, told, quest = _start(trail, "town")
    guild = trail.book.edition.mill[town_number]
    draft.facts["guild"] = trail.phrase("mill", town=words)
    register = trail.register(("town", town_number), *told[-1:])
    trail.file("guild", trail.book.name("guild", guild), register, *told)
    trail.roll(guild, register)
    trail.finish(quest)


def superseded(draft: Draft) -> None:
    """The guild that has a right today; the page of its town still tells who had it once.

    Trap: the older account.
    """
    trail = Trail(draft)
    words, town, told, quest = _start(trail, "ferry")
    edition, book = trail.book.edition, trail.book
    draft.facts["guild"] = trail.phrase("ferry", town=words)
    name = trail.name(("town", town))
    page = trail.read(("ferry", town), query=f"ferry {name}", told=told[-1:])
    trail.file("guild", book.name("guild", edition.ferry[town]), page, *told)
    old = edition.old_ferry[town]
    if draft.knobs.size >= 2:
        account = trail.read(("town", town), query=f"{name} town", told=told[-1:])
        trail.file("former", book.name("guild", old), account, *told)
    trail.roll(edition.ferry[town], page)
    trail.wrong_guild("older account", old, guild=book.name("guild", old))
    trail.finish(quest, "later")


def conflict(draft: Draft) -> None:
    """Three sources name three guilds; the question says which source outranks which.

    Trap: the source of the second rank.
    """
    trail, rng = Trail(draft), draft.rng
    ranks = rng.shuffled(SOURCES)
    draft.facts |= dict(zip(("first", "second", "third"), ranks, strict=True))
    words, town, told, quest = _start(trail, ranks[0])
    bell, book = trail.book.edition.bell[town], trail.book
    draft.facts["guild"] = trail.phrase("bell", town=words)
    name = trail.name(("town", town))
    page = trail.read((ranks[0], town), query=f"{ranks[0]} {name}", told=told[-1:])
    trail.file("guild", book.name("guild", bell[ranks[0]]), page, *told)
    other = bell[ranks[1]]
    if draft.knobs.size >= 2:
        second = trail.read((ranks[1], town), query=f"{ranks[1]} {name}", told=told[-1:])
        trail.file("second", book.name("guild", other), second, *told)
    trail.roll(bell[ranks[0]], page)
    trail.wrong_guild("source of lower rank", other, guild=book.name("guild", other))
    trail.finish(quest, "rank")


def comparison(draft: Draft) -> None:
    """Of some guilds of a town, the one with the tallest or the lowest hall.

    Trap: the other end of the scale.
    """
    trail, rng = Trail(draft), draft.rng
    edition = trail.book.edition
    town = rng.choice(edition.towns)
    guilds = rng.sample(edition.guilds_of[town], max(2, draft.knobs.size + (draft.knobs.size > 1)))
    which = rng.choice(("tallest", "lowest"))
    sign = 1 if which == "tallest" else -1
    ranked = sorted(guilds, key=lambda g: sign * edition.height[g])
    names = [trail.book.name("guild", g) for g in guilds]
    at = trail.phrase("town", name=trail.name(("town", town)))
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    draft.facts["guild"] = trail.phrase(which, guilds=listed, town=at)
    halls = {g: trail.read(("guild", g), query=trail.book.name("guild", g)) for g in guilds}
    best = ranked[-1]
    trail.file("guild", trail.book.name("guild", best), *halls.values(), hidden=False)
    trail.roll(best, *halls.values())
    worst = ranked[0]
    trail.wrong_guild("other end", worst, guild=trail.book.name("guild", worst))
    dead = {
        ("guild", g): [(halls[g], halls[h]) for h in ranked[n + 1 :]] for n, g in enumerate(ranked)
    }
    alive: list[tuple[Records, tuple[Node, ...]]] = []
    for chosen in range(1 << len(ranked)):
        known = [g for n, g in enumerate(ranked) if chosen >> n & 1]
        if len(known) != 1:
            left = [g for g in ranked if g not in known[:-1]]
            alive.append((tuple(halls[g] for g in known), tuple(("guild", g) for g in left)))
    among = tuple(("guild", g) for g in guilds)
    trail.finish(Quest(("town", town), among, dead, alive, "town"))


def _above(trail: Trail, draw: Callable[[int], int]) -> tuple[Node, list[Node]]:
    """The place below which the question selects, and what it selects among."""
    edition = trail.book.edition
    if trail.draft.knobs.size <= 2:
        town = draw(len(edition.towns))
        return ("town", town), [("guild", g) for g in edition.guilds_of[town]]
    province = draw(len(edition.provinces))
    return ("province", province), [("town", t) for t in edition.towns_of[province]]


def _below(trail: Trail, node: Node, *told: str) -> None:
    """From what was selected to the answer: a guild, or a town and its mill guild."""
    if node[0] == "guild":
        trail.file("guild", trail.name(node), *told)
        trail.roll(node[1], *told)
        return
    trail.file("town", trail.name(node), *told)
    guild = trail.book.edition.mill[node[1]]
    register = trail.register(node, *told)
    trail.file("guild", trail.book.name("guild", guild), register, *told)
    trail.roll(guild, register)


def _guild_of(trail: Trail, node: Node) -> int:
    return node[1] if node[0] == "guild" else trail.book.edition.mill[node[1]]


def intersection(draft: Draft) -> None:
    """The guild of a town that is of a craft; the town of a province that lies on a river.

    Trap: one that meets only the first condition.
    """
    trail, rng, size = Trail(draft), draft.rng, draft.knobs.size
    edition, book = trail.book.edition, trail.book
    top, children = _above(trail, rng.below)
    right = rng.choice(children)
    if top[0] == "town":
        group = edition.craft
        which, hops = trail.trade(group[right[1]], far=size - 1)
        at = trail.phrase("town", name=trail.name(top))
        draft.facts["guild"] = trail.phrase("of_craft", craft=which, town=at)
    else:
        group = edition.river
        which, hops = trail.river(group[right[1]], far=size - 3, besides=edition.towns_of[top[1]])
        at = trail.phrase("province", name=trail.name(top))
        town = trail.phrase("on_river", river=which, province=at)
        draft.facts["guild"] = trail.phrase("mill", town=town)
    register = trail.register(top)
    _below(trail, right, register, *hops)
    other = rng.choice([child for child in children if child != right])
    guild = _guild_of(trail, other)
    notes = {"guild": book.name("guild", guild)}
    trail.wrong_guild(
        "one condition only",
        guild,
        **(notes if top[0] == "town" else {**notes, "town": trail.name(other)}),
    )
    *far, _ = hops
    cross = "craft" if top[0] == "town" else "river"

    def shows(child: Node) -> list[str]:
        return [book.record(cross, group[child[1]]), book.record(*child)]

    dead = {
        child: [(*far, r) for r in (*shows(right), *shows(child))]
        for child in children
        if child != right
    }
    alive = [((*far, r), (right,)) for r in shows(right)]
    trail.finish(Quest(top, tuple(children), dead, alive, "town"))


def count(draft: Draft) -> None:
    """A river passes n towns: the guild, or town, at place n of a register.

    Trap: counting from nought.
    """
    trail, rng, size = Trail(draft), draft.rng, draft.knobs.size
    edition, book = trail.book.edition, trail.book
    top, children = _above(trail, rng.below)
    inside = [top[1]] if top[0] == "town" else list(edition.towns_of[top[1]])
    outside = [edition.river[t] for t in edition.towns if t not in inside]
    river = rng.choice([r for r in outside if edition.river.count(r) <= len(children)])
    n = edition.river.count(river)
    words, hops = trail.river(river, far=size - 1 if size <= 2 else size - 3, besides=inside)
    if top[0] == "town":
        at = trail.phrase("town", name=trail.name(top))
        draft.facts["guild"] = trail.phrase("nth_guild", town=at, river=words)
    else:
        at = trail.phrase("province", name=trail.name(top))
        town = trail.phrase("nth_town", province=at, river=words)
        draft.facts["guild"] = trail.phrase("mill", town=town)
    register = trail.register(top)
    right = children[n - 1]
    _below(trail, right, register, *hops)
    other = children[n % len(children)]
    guild = _guild_of(trail, other)
    notes = {"guild": book.name("guild", guild)}
    trail.wrong_guild(
        "counted from nought",
        guild,
        **(notes if top[0] == "town" else {**notes, "town": trail.name(other)}),
    )
    told = (*hops, register)
    dead = {child: [told] for child in children if child != right}
    trail.finish(Quest(top, tuple(children), dead, [(told, (right,))], "town"), "order")


TEMPLATES = (
    Template("chain", chain),
    Template("comparison", comparison),
    Template("intersection", intersection),
    Template("superseded", superseded),
    Template("count", count),
    Template("conflict", conflict, held_out=True),
)
