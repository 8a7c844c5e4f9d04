"""The encyclopaedia: laid out once per split and size, printed anew for every task.

An :class:`Edition` is everything that tasks share: who stands in which relation to whom, the
sentences that say so, and the search index. In it, names are places in word lists. A :class:`Print`
puts words into those places, ids onto the pages and numbers into the rolls, each by a permutation
of its own, so nothing that was read in one task is true in another. The index survives that, as
a permutation of words changes no word count: a query is translated into the edition's words.
"""

from __future__ import annotations

import importlib
import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from headway.envs.render import offered
from headway.envs.rng import Rng

WORDS, PROSE = (
    json.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    for name in ("words.json", "prose.json")
)

POOL = 8192
"""How many numbers, or dates, a roll can draw on: 13 bits."""

WIDTH = 20
"""Numbers set aside for one guild."""

MEMBERS = 8
"""Members of a guild."""

SIZES: Mapping[int, tuple[int, int, int]] = {
    200: (3, 4, 4),
    400: (3, 4, 4),
    700: (4, 4, 5),
    1200: (4, 4, 6),
    2000: (5, 4, 7),
}
"""Pages of an edition: its provinces, towns in each, guilds in each of these."""

FIRST_NUMBER = 10000
FIRST_DAY = date(1101, 1, 1)
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
SOURCES = ("annals", "almanac", "tales")
RIVERS, CRAFTS = 5, 8
MOST_HITS = 10
"""Hits that a search returns at most."""

KEPT = 1000
"""Queries whose hits a print remembers."""

TITLE_WEIGHT = 4
"""How often a title counts in the index, so that a page comes before those that mention it."""

_LISTS = {
    "place": ("head", "tail"),
    "person": ("given", "family"),
    "guild": ("colour", "beast"),
    "work": ("form", "quality", "thing"),
    "craft": ("craft",),
}
_NAMES = {
    "place": "{0}{1}",
    "person": "{0} {1}",
    "guild": "{0} {1} Guild",
    "work": "{0} on {1} {2}",
    "craft": "{0}",
}
_WORD = re.compile(r"[^\W\d_]+")

Piece = str | tuple[str, int] | tuple[str, int, int]
"""Words as they are, a name (kind, number), or something from a roll, which differs by print."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of an edition.

    Attributes:
        kind: What it is about.
        number: Which of that kind.
        title: Its title.
        parts: What each of its parts says.
    """

    kind: str
    number: int
    title: tuple[Piece, ...]
    parts: tuple[tuple[Piece, ...], ...]


class Edition:
    """Relations, pages and index, all drawn from the stream of its split and size.

    Attributes:
        pages: All pages; a page's place here says nothing to an agent, as ids are permuted.
        at: Place of a page by kind and number.
        names: Per kind of name, the places in the word lists that make it.
        towns_of: Towns by province; ``guilds_of`` guilds by town; ``members_of`` people by guild.
        chancery: Town by province, ``mill`` guild by town, ``warden`` place on the roll by guild.
        former: Place on the roll of the warden before, by guild; only large editions tell it.
        river, ferry, old_ferry, bell: By town: river, guilds, and the guild that each of
            ``SOURCES`` names.
        craft, height: By guild.
        home, trade: Province and craft by scholar; ``author`` scholar by work, ``printed`` town.
    """

    def __init__(self, split: str, size: int) -> None:
        self.split, self.size = split, size
        self._rng = rng = Rng("HopSearch", "edition", split, size)
        provinces, towns, guilds = SIZES[size]
        self.provinces = range(provinces)
        self.towns = range(provinces * towns)
        self.guilds = range(provinces * towns * guilds)
        self.towns_of = [range(p * towns, (p + 1) * towns) for p in self.provinces]
        self.guilds_of = [range(t * guilds, (t + 1) * guilds) for t in self.towns]
        self.members_of = [range(g * MEMBERS, (g + 1) * MEMBERS) for g in self.guilds]
        self.province_of = [t // towns for t in self.towns]
        self.town_of = [g // guilds for g in self.guilds]
        self.chancery = [rng.choice(self.towns_of[p]) for p in self.provinces]
        self.mill = [rng.choice(self.guilds_of[t]) for t in self.towns]
        offices = [rng.sample(range(MEMBERS), 2) for _ in self.guilds]
        self.warden, self.former = ([pair[n] for pair in offices] for n in (0, 1))
        self.river = [r for p in self.provinces for r in rng.sample(range(RIVERS), towns)]
        self.craft = [c for t in self.towns for c in rng.sample(range(CRAFTS), guilds)]
        self.height = [h for t in self.towns for h in rng.sample(range(31, 99), guilds)]
        rights = [rng.sample(self.guilds_of[t], 2) for t in self.towns]
        self.ferry, self.old_ferry = ([pair[n] for pair in rights] for n in (0, 1))
        self.bell = [
            dict(zip(SOURCES, rng.sample(self.guilds_of[t], 3), strict=True)) for t in self.towns
        ]
        rest = size - len(self.towns) * (2 + len(SOURCES)) - len(self.guilds)
        rest -= provinces + RIVERS + CRAFTS
        self.scholars = range(rest * 2 // 5)
        self.works = range(rest - len(self.scholars))
        self.home = [rng.choice(self.provinces) for _ in self.scholars]
        self.trade = [rng.below(CRAFTS) for _ in self.scholars]
        self.author = [rng.choice(self.scholars) for _ in self.works]
        self.printed = [rng.choice(self.towns) for _ in self.works]
        people = len(self.guilds) * MEMBERS + len(self.scholars)
        counts = {
            "place": provinces + len(self.towns) + RIVERS,
            "person": people,
            "guild": len(self.guilds),
            "work": len(self.works),
            "craft": CRAFTS,
        }
        self.names = {kind: self._places(kind, count) for kind, count in counts.items()}
        self.pages = self._written()
        self.at = {(page.kind, page.number): n for n, page in enumerate(self.pages)}
        self._search = _index([self._tokens(page) for page in self.pages])

    def _places(self, kind: str, count: int) -> list[tuple[int, ...]]:
        """Different combinations of places in the word lists of a kind of name."""
        lengths = [len(WORDS[self.split][name]) for name in _LISTS[kind]]
        total = 1
        for length in lengths:
            total *= length
        found = []
        for number in self._rng.sample(range(total), count):
            places = []
            for length in lengths:
                number, place = divmod(number, length)
                places.append(place)
            found.append(tuple(places))
        return found

    def scholar(self, number: int) -> tuple[str, int]:
        """The name of a scholar; members of guilds come first in the list of people."""
        return ("person", len(self.guilds) * MEMBERS + number)

    def town(self, number: int) -> tuple[str, int]:
        """The name of a town; provinces come first in the list of places."""
        return ("place", len(self.provinces) + number)

    def stream(self, number: int) -> tuple[str, int]:
        """The name of a river."""
        return ("place", len(self.provinces) + len(self.towns) + number)

    def _at(self, town: int) -> list[Piece]:
        """A town and where it lies."""
        return [self.town(town), " in the province of ", ("place", self.province_of[town])]

    def _say(self, what: str, **names: Any) -> list[Piece]:
        """One sentence, in one of the wordings that the split may use."""
        text = self._rng.choice(offered(PROSE[what], self.split))
        out: list[Piece] = []
        for literal, name, _, _ in string.Formatter().parse(text):
            out += [literal] if literal else []
            if name is not None:
                value = names[name]
                out += value if isinstance(value, list) else [value]
        return [*out, " "]

    def _filler(self) -> list[Piece]:
        return [piece for _ in range(2) for piece in self._say("filler")]

    def _written(self) -> list[Page]:
        pages = [self._province(p) for p in self.provinces]
        for t in self.towns:
            pages += [self._town(t), self._ferry(t), *(self._source(t, s) for s in SOURCES)]
        pages += [self._guild(g) for g in self.guilds]
        for r in range(RIVERS):
            names = _listed([self.town(t) for t in self.towns if self.river[t] == r])
            text = self._say("along", river=self.stream(r), names=names)
            pages.append(
                Page("river", r, (self.stream(r), " (river)"), ((*text, *self._filler()),))
            )
        for c in range(CRAFTS):
            names = _listed([("guild", g) for g in self.guilds if self.craft[g] == c])
            text = self._say("guilds", craft=("craft", c), names=names)
            pages.append(Page("craft", c, (("craft", c), " (craft)"), ((*text, *self._filler()),)))
        for s in self.scholars:
            person = self.scholar(s)
            text = self._say("home", person=person, province=("place", self.home[s]))
            text += self._say("trade", craft=("craft", self.trade[s]))
            pages.append(Page("scholar", s, (person,), ((*text, *self._filler()),)))
        for w in self.works:
            text = self._say("author", work=("work", w), person=self.scholar(self.author[w]))
            text += self._say("printed", town=self.town(self.printed[w]))
            pages.append(Page("work", w, (("work", w),), ((*text, *self._filler()),)))
        return pages

    def _province(self, p: int) -> Page:
        name = ("place", p)
        register = self._say("register", place=["the province of ", name])
        register += self._say("chancery", town=self.town(self.chancery[p]))
        for t in self.towns_of[p]:
            register += self._say("entries", name=self.town(t), block=("block town", t))
        text = self._say("province", province=name) + self._filler()
        return Page("province", p, (name, " (province)"), (tuple(text), tuple(register)))

    def _town(self, t: int) -> Page:
        name, province = self.town(t), ("place", self.province_of[t])
        text = self._say("town", town=name, province=province)
        text += self._say("river", river=self.stream(self.river[t]))
        year = str(self._rng.randint(1301, 1340))
        text += self._say("old_ferry", year=year, guild=("guild", self.old_ferry[t]))
        place = ["the town of ", name, " in the province of ", province]
        register = self._say("register", place=place)
        register += self._say("mill", guild=("guild", self.mill[t]))
        for g in self.guilds_of[t]:
            entry = ["the ", ("guild", g)]
            register += self._say("entries", name=entry, block=("block guild", g))
        return Page("town", t, (name, " (town)"), ((*text, *self._filler()), tuple(register)))

    def _ferry(self, t: int) -> Page:
        year = str(self._rng.randint(1360, 1399))
        guild = self.ferry[t]
        text = self._say("ferry", year=year, town=self._at(t), guild=("guild", guild))
        text += self._say("there", block=("block guild", guild))
        return Page("ferry", t, ("Ferry of ", self.town(t)), ((*text, *self._filler()),))

    def _source(self, t: int, source: str) -> Page:
        guild = self.bell[t][source]
        text = self._say("bell", town=self._at(t), guild=("guild", guild))
        text += self._say("there", block=("block guild", guild))
        title = (f"{source.capitalize()} of ", self.town(t))
        return Page(source, t, title, ((*text, *self._filler()),))

    def _guild(self, g: int) -> Page:
        name, town = ("guild", g), self.town_of[g]
        text = self._say("guild", guild=name, town=self._at(town))
        text += self._say("craft", craft=("craft", self.craft[g]))
        text += self._say("height", height=str(self.height[g]))
        text += self._say("range", block=("block guild", g))
        province = ("place", self.province_of[town])
        roll = self._say("roll", guild=name, town=self.town(town), province=province)
        people = self.members_of[g]
        roll += self._say("warden", person=("person", people[self.warden[g]]))
        if self.size >= 700:
            roll += self._say("former", person=("person", people[self.former[g]]))
        for n, person in enumerate(people):
            roll += self._say("member", person=("person", person), value=("value", g, n))
        return Page("guild", g, (name,), ((*text, *self._filler()), tuple(roll)))

    def _tokens(self, page: Page) -> list[str]:
        """The words of a page for the index, names by their places in the lists."""
        title = self._index_words(page.title)
        body = [word for part in page.parts for word in self._index_words(part)]
        return title * TITLE_WEIGHT + body

    def _index_words(self, pieces: Sequence[Piece]) -> list[str]:
        out = []
        for piece in pieces:
            if isinstance(piece, str):
                out += _WORD.findall(piece.lower())
            elif piece[0] in self.names:
                places = self.names[piece[0]][piece[1]]
                out += slots(piece[0], places)
                out += ["guild"] if piece[0] == "guild" else []
        return out

    def scores(self, words: list[str]) -> Any:
        """The BM25 score of every page for words of the index, as an array."""
        return self._search.get_scores(words)


def slots(kind: str, places: Sequence[int]) -> list[str]:
    """The index's words for a name: one for each word of it, whatever a print puts there."""
    if kind == "place":
        return [f"@place{'.'.join(map(str, places))}"]
    return [f"@{name}{n}" for name, n in zip(_LISTS[kind], places, strict=True)]


def _listed(names: Sequence[Piece]) -> list[Piece]:
    out: list[Piece] = []
    for n, name in enumerate(names):
        out += [", "] * (n > 0) + [name]
    return out


def _index(documents: Sequence[Sequence[str]]) -> Any:
    index = importlib.import_module("bm25s").BM25()  # late: listing the worlds needs no index
    index.index(documents, show_progress=False)
    return index


@cache
def edition(split: str, size: int) -> Edition:
    """The edition of a split and size; laid out once a process."""
    return Edition(split, size)


class Print:
    """An edition with its words, ids and numbers filled in.

    Args:
        edition: What is printed.
        number: Of the print; decides every permutation.
        kind: What the rolls hold: ``"number"`` or ``"date"``.

    Attributes:
        ids: Id by place of the page in the edition; ``place_of`` the reverse.
        blocks: Per ``("province" | "town" | "guild", number)`` the range of indices into the pool
            in which all numbers of its members lie, and nobody else's.
    """

    def __init__(self, edition: Edition, number: int, kind: str) -> None:
        self.edition, self.number, self.kind = edition, number, kind
        rng = Rng("HopSearch", "print", edition.split, edition.size, number)
        words = WORDS[edition.split]
        self._words = {n: rng.shuffled(words[n]) for lists in _LISTS.values() for n in lists}
        order = rng.shuffled(range(edition.size))
        self.ids = [f"p{n + 1}" for n in order]
        self.place_of = {id: place for place, id in enumerate(self.ids)}
        self.blocks = self._blocks(rng)
        self._rank = np.array(order)
        self._found: dict[str, list[int]] = {}
        self._rolls: dict[int, list[int]] = {}
        self._texts: dict[tuple[int, int], str] = {}
        self._slots: dict[str, str] = {}
        for kind_of_name, lists in _LISTS.items():
            if kind_of_name == "place":
                heads, tails = (self._words[name] for name in lists)
                for a, head in enumerate(heads):
                    for b, tail in enumerate(tails):
                        self._slots[f"{head}{tail}".lower()] = slots("place", (a, b))[0]
            else:
                for name in lists:
                    for n, word in enumerate(self._words[name]):
                        self._slots[word.lower()] = f"@{name}{n}"

    def _blocks(self, rng: Rng) -> dict[tuple[str, int], tuple[int, int]]:
        book, blocks = self.edition, dict[tuple[str, int], tuple[int, int]]()
        spare = POOL - WIDTH * len(book.guilds)
        cuts = sorted(rng.below(spare) for _ in book.provinces)
        used = 0
        for cut, p in zip(cuts, rng.shuffled(book.provinces), strict=True):
            start = cut + used
            at = start
            for t in rng.shuffled(book.towns_of[p]):
                first = at
                for g in rng.shuffled(book.guilds_of[t]):
                    blocks["guild", g] = (at, at + WIDTH)
                    at += WIDTH
                blocks["town", t] = (first, at)
            blocks["province", p] = (start, at)
            used += at - start
        return blocks

    def name(self, kind: str, number: int) -> str:
        """A name as it is printed."""
        places = self.edition.names[kind][number]
        words = [self._words[n][p] for n, p in zip(_LISTS[kind], places, strict=True)]
        return _NAMES[kind].format(*words)

    def id(self, kind: str, number: int) -> str:
        """The id of a page."""
        return self.ids[self.edition.at[kind, number]]

    def record(self, kind: str, number: int, part: int = 1) -> str:
        """The record that whoever reads a part of a page has seen."""
        return f"pages/{self.id(kind, number)}/{part}"

    def title(self, place: int) -> str:
        """The title of a page."""
        return self._text(self.edition.pages[place].title)

    def text(self, place: int, part: int) -> str:
        """What a part of a page says; parts count from 1."""
        if (place, part) not in self._texts:
            pieces = self.edition.pages[place].parts[part - 1]
            self._texts[place, part] = self._text(pieces).strip()
        return self._texts[place, part]

    def _text(self, pieces: Sequence[Piece]) -> str:
        out = ""
        for piece in pieces:
            if isinstance(piece, str):
                out += piece
            elif piece[0] == "value":
                out += self.shown(self.roll(piece[1])[piece[2]])  # type: ignore[misc]
            elif piece[0].startswith("block"):
                first, past = self.blocks[piece[0].removeprefix("block "), piece[1]]
                out += f"{self.shown(first)} to {self.shown(past - 1)}"
            else:
                out += self.name(piece[0], piece[1])
        return out

    def roll(self, guild: int) -> list[int]:
        """What the members of a guild are entered with, as indices into the pool."""
        if guild not in self._rolls:
            book = self.edition
            rng = Rng("HopSearch", "roll", book.split, book.size, self.number, guild)
            self._rolls[guild] = rng.sample(range(*self.blocks["guild", guild]), MEMBERS)
        return self._rolls[guild]

    def shown(self, index: int) -> str:
        """A number or date of the pool as pages write it."""
        if self.kind == "number":
            return str(FIRST_NUMBER + index)
        day = FIRST_DAY + timedelta(days=index)
        return f"{day.day} {MONTHS[day.month - 1]} {day.year}"

    def search(self, query: str, count: int) -> list[int]:
        """Places of the ``count`` best pages; equal scores in the order of the ids."""
        words = list(dict.fromkeys(_WORD.findall(query.lower())))
        key = " ".join(words)
        if key not in self._found:
            if len(self._found) >= KEPT:
                del self._found[next(iter(self._found))]
            self._found[key] = self._ranked([self._slots.get(word, word) for word in words])
        return self._found[key][:count]

    def _ranked(self, words: list[str]) -> list[int]:
        if not words:
            return []
        scores = self.edition.scores(words).round(4)
        best = np.lexsort((self._rank, -scores))[:MOST_HITS]
        return [int(place) for place in best if scores[place] > 0]


@lru_cache(maxsize=128)
def printed(split: str, size: int, number: int, kind: str) -> Print:
    """A print of an edition; a pure function of its arguments, so keeping a few is safe."""
    return Print(edition(split, size), number, kind)
