"""What each part of a page rules out: the exact candidates of an answer, as data.

Every answer is what a guild's roll has for the guild's warden, and the places form a tree:
provinces, towns, guilds. A question selects one child at each level of it. Above
:attr:`Quest.top` it names the place; at ``top`` it selects in its own way, said by ``dead`` and
``alive``; below, the places' offices select. A page may tell the range in which all numbers of a
place lie, and nobody else's; it then says where that place belongs. From this follows what is
removed, and nothing more: the pool has more numbers than the guilds take, and a place that nobody
has read about may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from headway.envs.domains.hopsearch.edition import POOL, Print
from headway.verifiers import Candidates, Clue

Node = tuple[str, int]
Records = tuple[str, ...]
Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Quest:
    """How a question selects.

    Attributes:
        top: The place under which it selects in its own way; None stands for the whole realm.
        among: Children of ``top`` that can be it.
        dead: Per child that is not it, the sets of records any of which shows that.
        alive: Sets of records, each with the children that it leaves, when these are known to be
            all.
        office: The kind of page that names the guild of a town, ``"town"`` for its register.
    """

    top: Node | None
    among: tuple[Node, ...]
    dead: Mapping[Node, Sequence[Records]]
    alive: Sequence[tuple[Records, tuple[Node, ...]]]
    office: str


class Tree:
    """The places of a print, and which record tells what of them, for one quest."""

    def __init__(self, book: Print, office: str) -> None:
        self.book = book
        self.office = office

    def children(self, node: Node | None) -> list[Node]:
        """The places right below one."""
        edition = self.book.edition
        if node is None:
            return [("province", p) for p in edition.provinces]
        if node[0] == "province":
            return [("town", t) for t in edition.towns_of[node[1]]]
        return [("guild", g) for g in edition.guilds_of[node[1]]] if node[0] == "town" else []

    def parent(self, node: Node) -> Node | None:
        """The place right above one."""
        edition = self.book.edition
        if node[0] == "guild":
            return ("town", edition.town_of[node[1]])
        return ("province", edition.province_of[node[1]]) if node[0] == "town" else None

    def under(self, node: Node | None) -> Iterator[Node]:
        """A place and all below it."""
        if node is not None:
            yield node
        for child in self.children(node):
            yield from self.under(child)

    def page(self, node: Node) -> str:
        """The record of its register or roll."""
        return self.book.record(*node, part=2)

    def told(self, node: Node) -> str:
        """The record that names the child selected by its office."""
        if node[0] == "town" and self.office != "town":
            return self.book.record(self.office, node[1])
        return self.page(node)

    def selected(self, node: Node) -> Node:
        """The child selected by its office."""
        edition, (kind, n) = self.book.edition, node
        if kind == "province":
            return ("town", edition.chancery[n])
        if self.office == "town":
            return ("guild", edition.mill[n])
        return (
            "guild",
            edition.ferry[n] if self.office == "ferry" else edition.bell[n][self.office],
        )

    def block(self, node: Node) -> Ranges:
        """What its parent's register says that it holds."""
        return [self.book.blocks[node]]

    def listed(self, node: Node) -> Ranges:
        """What its own register or roll lists; registers list all that the place holds."""
        if node[0] != "guild":
            return self.block(node)
        return [(index, index + 1) for index in self.book.roll(node[1])]

    def views(self, node: Node) -> list[tuple[str, Ranges]]:
        """Records that show which numbers a place holds and where it lies, and the numbers."""
        out = [(self.page(node), self.listed(node))]
        if node[0] == "guild":
            book, edition = self.book, self.book.edition
            town = edition.town_of[node[1]]
            out.append((book.record(*node), self.block(node)))
            named = {"ferry": edition.ferry[town], **edition.bell[town]}
            out += [
                (book.record(kind, town), self.block(node))
                for kind, guild in named.items()
                if guild == node[1]
            ]
        return out

    def kept(self, node: Node) -> Ranges:
        """The part of it that its office leaves."""
        if node[0] != "guild":
            return self.block(self.selected(node))
        index = self.book.roll(node[1])[self.book.edition.warden[node[1]]]
        return [(index, index + 1)]


def candidates(book: Print, quest: Quest) -> Candidates:
    """The candidates of the answer to ``quest``: all of the pool, and every clue there is."""
    tree = Tree(book, quest.office)
    removed: dict[Records, list[tuple[int, int]]] = {}
    for records, ranges in _all(tree, quest):
        if ranges:
            removed.setdefault(tuple(sorted(set(records))), []).extend(ranges)
    clues = (Clue(records, tuple(joined(ranges))) for records, ranges in removed.items())
    return Candidates(POOL, tuple(clues))


def _all(tree: Tree, quest: Quest) -> Iterator[tuple[Iterable[str], Ranges]]:
    """Records, and what they rule out; the same records may come again."""
    top = quest.top
    yield from _beside(tree, quest)
    for child in tree.children(top):
        below = list(tree.under(child))
        if child not in quest.among:
            yield from (((view,), held) for node in below for view, held in tree.views(node))
            continue
        for records in quest.dead.get(child, ()):
            yield from (
                ((*records, view), held) for node in below for view, held in tree.views(node)
            )
            if top is not None:
                yield (*records, tree.page(top)), tree.block(child)
        for node in below:
            yield from _offices(tree, node, child)
    for records, left in quest.alive:
        shown = [tree.views(node) for node in left]
        for views in product(*([v for v in some if v[0] in records] or some for some in shown)):
            held = [r for _, ranges in views for r in ranges]
            yield (*records, *(view for view, _ in views)), without([(0, POOL)], held)


def _beside(tree: Tree, quest: Quest) -> Iterator[tuple[Iterable[str], Ranges]]:
    """What pages say that lie at the top, above it, or elsewhere."""
    if quest.top is None:
        return
    toward, above = {quest.top: list(quest.among)}, tree.parent(quest.top)
    if above is not None:
        toward[above] = [quest.top]
    inside = set(tree.under(quest.top))
    for node in tree.under(None):
        if node in toward:
            held = [r for child in toward[node] for r in tree.block(child)]
            yield (tree.page(node),), without([(0, POOL)], held)
        elif node not in inside:
            yield from (((view,), held) for view, held in tree.views(node))


def _offices(tree: Tree, node: Node, child: Node) -> Iterator[tuple[Iterable[str], Ranges]]:
    """What the offices below a child of the top rule out, whether or not that child is it."""
    page = tree.page(node)
    yield (page, tree.told(node)), without(tree.listed(node), tree.kept(node))
    rest, above = without(tree.block(node), tree.listed(node)), tree.parent(node)
    yield from (((page, view), rest) for view, held in tree.views(node) if view != page)
    if above is not None:
        yield (page, tree.page(above)), rest
        yield from _followed(tree, node, (tree.page(above),))
    here = node
    while here != child:
        here, below = tree.parent(here) or child, here
        if tree.selected(here) != below:
            yield from (((tree.told(here), view), held) for view, held in tree.views(node))


def _followed(tree: Tree, node: Node, told: Records) -> Iterator[tuple[Iterable[str], Ranges]]:
    """Of the range of a place, only what lies in the place to which its offices lead can be it."""
    block = tree.block(node)
    while node[0] != "guild":
        told, node = (*told, tree.told(node)), tree.selected(node)
        yield from (((*told, view), without(block, held)) for view, held in tree.views(node))


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few ranges as possible, in order."""
    out: list[tuple[int, int]] = []
    for first, past in sorted(ranges):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(past, out[-1][1]))
        else:
            out.append((first, past))
    return out


def without(ranges: Ranges, held: Ranges) -> list[tuple[int, int]]:
    """What ``ranges`` have and ``held`` have not."""
    out: list[tuple[int, int]] = []
    gaps = joined(held)
    for first, past in joined(ranges):
        for start, end in gaps:
            if start < past and end > first:
                if start > first:
                    out.append((first, start))
                first = max(first, end)
        if first < past:
            out.append((first, past))
    return out
