"""Who tries to be paid for nothing: scripted farmers, and a search for loops that pay.

A *loop* is a way from a state of the world back to the same state, none of whose own states comes
twice. What the task says is no change (a payment that was refunded) makes no other state.

One more repetition is worth to a channel what it pays, plus what it makes of the rest of the
episode: ``pays + gamma**k * rest_after - rest_before``, discounted from the repetition's own
beginning, for some way to end the episode. Shaping that gives back is worth nothing by that
measure, whatever it pays on the way; a gate that withholds to the last turn is worth what it adds
there. A loop is a *farm* if repeating it is worth something without end, and comes to more than
nothing in all. Whether it ends is read off the later repetitions: they have to be worth something
regularly, and their worth must not run out, see :func:`endless`. So a quiet start hides nothing.
Chance, new best values, first visits and amounts that fall like 1/n**2 are no farms, and a count's
1/sqrt(n) is one. Where the layers remember the same after a repetition as before, it
is proved that this goes on; else it is taken to go on unless the layers declare a finite bound for
undiscounted sums, which is then held against what the loop has paid. An episode may end by handing
in, by a solution, or by idling until it is cut.

Loops are tried through the whole stack on forks of one episode, so whatever the layers remember is
as it would be. In a miniature the search is complete for loops of up to three actions, and for two
by turns that have up to three together. In a world of tools it tries, at every state of a solution
and after some reading, what is likely: to do nothing, to look, to take the next step or a wrong
one, to take back what was just done, and by turns two actions that change nothing.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym

from headway.agents.scripted import hand_in, own
from headway.envs.actions import BadCall, parse_action
from headway.envs.fork import fork
from headway.envs.rng import Rng
from headway.envs.tool_env import ToolEnv
from headway.verifiers import changes
from headway.verifiers.kinds.tables import where
from headway.wrappers.audit import Play, amounts, memory_of, turn
from headway.wrappers.channel import layers_of
from headway.wrappers.miniature import ACTIONS, Miniature

IDLE = "Nothing to do."
"""No call: it costs a turn and changes nothing."""

STILL = "Still nothing to do."
"""The same in other words."""

HOSTILE = (
    "",
    "{",
    '{"tool": "submit"',
    '{"tool": "no_such_tool", "args": {}}',
    '{"tool": 7, "args": []}',
    "\x00\ud800\u202e" * 40,
    "[" * 5000,
    "9" * 5000,
    '{"tool": "submit", "args": {"answer": NaN}}',
)
"""What may crash a parser or a grader."""

LOOP = "repeat a loop"
"""The farmer who does."""

RECITE, SILENCE = "recite", "say nothing"
"""Who says what may be the answer and neither looks nor acts, and who does not even say that."""

SAID = 10_000
"""Numbers that are recited at most."""

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
"""What dates are written with."""

TINY = 1e-9
"""What pays less pays nothing."""

REPETITIONS = 16
"""How often a loop is repeated at most; in a long episode several times count as one."""

UNDO = "(take it back)"
"""In a loop, the call that takes back what the action before it did."""

OUT = "(idle until the episode is cut)"
"""At the end of what is done, as many idle turns as the episode still has."""


@dataclass(frozen=True)
class Farm:
    """A way to be paid for nothing.

    Attributes:
        channel: Which pays.
        farmer: Who found it.
        play: The whole of it.
        loop: The actions that are repeated; empty where it is no loop.
        rate: What an action of the later repetitions is worth.
    """

    channel: str
    farmer: str
    play: Play
    loop: tuple[str, ...] = ()
    rate: float = 0.0


@dataclass(frozen=True)
class Harvest:
    """What a farmer's episode came to.

    Attributes:
        farmer: Who played.
        play: What was done.
        sums: Discounted sums of ``"base"`` and of every channel.
        turns: The least and the most of a turn, by channel.
        success: Whether the episode ended well.
        over: Whether it ended at all.
        graded: Whether every turn had a verdict.
    """

    farmer: str
    play: Play
    sums: Mapping[str, float]
    turns: Mapping[str, tuple[float, float]]
    success: bool
    over: bool
    graded: bool

    @property
    def total(self) -> float:
        """The discounted return."""
        return sum(self.sums.values())


def endless(paid: Sequence[float]) -> bool:
    """Whether repetitions that paid so will pay without end.

    Args:
        paid: What each repetition paid, in order.

    Returns:
        True if there are four at least, they pay regularly, and the last quarter together pays no
        less than the one before, or little enough less: amounts that fall like ``(m + n)**-p`` have
        an endless sum exactly if their reciprocals do not bend upwards, whatever ``m`` is. So it
        does not matter how many turns came before. To pay regularly is to pay more than ``TINY``
        every time from the second on; of sixteen at least, also in all of the last half while
        nothing costs anything in the quarter before, or no less each time at intervals that differ
        by one at most.
    """
    size = len(paid) // 4
    tail = paid[len(paid) - 3 * size :]
    early, late, last = (sum(tail[n * size : (n + 1) * size]) for n in range(3))
    steady = size > 0 and min(paid[1:]) > TINY
    quiet = size > 3 and min(tail) >= -TINY and min(tail[size:]) > TINY
    if not (steady or quiet or (size > 3 and _regular(paid))):
        return False
    if last >= late * (1.0 - TINY):
        return True
    return early > TINY and 2.0 / late * (1.0 + TINY) >= 1.0 / early + 1.0 / last


def _regular(paid: Sequence[float]) -> bool:
    """Whether nothing costs, and payments do not fall and come at intervals that are the same."""
    hits = [n for n, amount in enumerate(paid) if amount > TINY]
    gaps = [later - hit for hit, later in pairwise(hits)]
    if len(hits) < 4 or min(paid) < -TINY or max(gaps) - min(gaps) > 1:
        return False
    through = hits[0] < max(gaps) and len(paid) - hits[-1] <= max(gaps)
    return through and all(paid[b] >= paid[a] * (1.0 - TINY) for a, b in pairwise(hits))


def play(env: gym.Env[Any, Any], farmer: str, begun: Play, gamma: float) -> Harvest:
    """Plays an episode on a fork.

    Args:
        env: A stack that was just reset to the task of the play; it stays as it is.
        farmer: Who plays.
        begun: What to do; what comes after the end of the episode is left out.
        gamma: The learner's discount per turn.
    """
    twin = fork(env)
    world = twin.unwrapped
    if isinstance(world, Miniature):
        world.turns = int(begun.task_id.split("/")[1])
    sums: dict[str, float] = {}
    turns: dict[str, tuple[float, float]] = {}
    taken: list[str] = []
    over, graded, success = False, True, False
    for t, action in enumerate(begun.actions):
        reward, over, info = turn(twin, action)
        taken.append(action)
        record = info["headway"]
        graded = graded and record["status"] != "no_verdict"
        for name, amount in amounts(twin, reward, record).items():
            sums[name] = sums.get(name, 0.0) + gamma**t * amount
            low, high = turns.get(name, (amount, amount))
            turns[name] = min(low, amount), max(high, amount)
        if over:
            success = record["verdict"] is not None and record["verdict"].success
            break
    done = begun._replace(actions=tuple(taken))
    return Harvest(farmer, done, sums, turns, success, over, graded)


# Scripted farmers.


def scripts(world: ToolEnv) -> Iterator[tuple[str, list[str]]]:
    """What the farmers do in the task that ``world`` was just reset to, with their names.

    An episode ends where the world ends it; scripts that repeat are as long as it can be.
    """
    last = world.instance.task.max_turns
    solution, looks = world.solution(), _looks(world)
    end = hand_in(world)
    ripe = _ripe(world, solution)
    yield "solve", solution
    yield "solve at the last moment", [IDLE] * (last - len(solution)) + solution
    yield "read everything, then solve", looks[: last - len(solution)] + solution
    yield "submit at once", [end]
    yield "do nothing", [IDLE] * last
    yield RECITE, [recital(world.instance.task.instruction), end]
    yield SILENCE, [IDLE, end]
    yield "read everything", [*looks[: last - 1], end]
    yield "hover near the end", [*ripe, *[IDLE] * last]
    yield "hover, then submit", [*ripe, *[IDLE] * (last - len(ripe) - 1), end]
    yield "stop near the end", [*ripe, end]
    for number, wrong in enumerate(_wrong(world)):
        name = "grab, then lose"
        yield name, [*ripe, wrong, *[IDLE] * last]
        yield name, [*ripe, *_wrong(world)[: number + 1], end]
    for number, action in enumerate(solution[:-1]):
        yield "repeat a step", [*solution[:number], *[action] * last]
    for actions in _back_and_forth(world, ripe):
        yield "do and undo", actions
    for look in looks[:2]:
        yield "read again and again", [look] * last
    yield "read by turns", looks[:2] * last
    yield "do nothing by turns", [IDLE, STILL] * last
    yield "crash the grader", [*HOSTILE, *[end]]
    yield "crash the grader", [*ripe, *HOSTILE, *[IDLE] * last]


def recital(instruction: str) -> str:
    """What an instruction lets one think of as an answer, without a call.

    Its own words; and if it names a month, every day of the year, in turn of the years from the
    least to the greatest in it; else the whole numbers in between, at most ``SAID`` of them.
    """
    words = re.findall(r"\w+", instruction)
    numbers = [int(word) for word in words if re.fullmatch("[0-9]{1,9}", word)] or [0]
    years = [year for year in numbers if year > 31]
    if years and not set(MONTHS).isdisjoint(words):
        days = [f"{day} {month}" for month in MONTHS for day in range(1, 32)]
        said = list(map(" ".join, zip(days, cycle(map(str, range(min(years), max(years) + 1))))))
    else:
        values = range(min(numbers), max(numbers) + 1)
        said = [str(value) for value in values[:: -(-len(values) // SAID)]]
    return ", ".join([*dict.fromkeys(words), *said])


def _looks(world: ToolEnv) -> list[str]:
    return [world.format(look.tool, look.args) for look in world.instance.look(world.box)]


def _wrong(world: ToolEnv) -> list[str]:
    """Some calls that do damage, those that can be taken back among them."""
    rng = Rng("agents.farmers", world.instance.task.id)
    strays = world.domain.stray(world.instance.world, rng)
    some = [*strays[:2], *(stray for stray in strays if stray.tool in world.domain.undo)]
    return list(dict.fromkeys(world.format(stray.tool, stray.args) for stray in some))


def _back_and_forth(world: ToolEnv, ripe: Sequence[str]) -> Iterator[list[str]]:
    """After the ripe part, each action that can be taken back, done and undone to the end."""
    for action in (*_wrong(world), *world.solution()[:-1]):
        twin, taken = copy.deepcopy(world), list(ripe)
        for text in ripe:
            twin.step(text)
        undo, over = _undo(twin, action), False
        while undo is not None and not over:
            for text in (action, undo):
                if not over:
                    taken.append(text)
                    _, _, terminated, truncated, _ = twin.step(text)
                    over = terminated or truncated
            undo = None if over else _undo(twin, action)
        if len(taken) > len(ripe):
            yield taken


def _ripe(world: ToolEnv, solution: Sequence[str]) -> list[str]:
    """The part of the solution after which progress is greatest without being a success."""
    twin, best, ripe = copy.deepcopy(world), 0.0, 0
    for number, action in enumerate(solution[:-1], 1):
        twin.step(action)
        found = twin.grade()
        if found.status == "ok" and not found.success and found.progress >= best:
            best, ripe = found.progress, number
    return list(solution[:ripe])


# Loops.

World = Miniature | ToolEnv


def loops(world: World, longest: int) -> Iterator[tuple[str, ...]]:
    """The loops that begin in the present state, shortest first; ``UNDO`` may stand in them.

    Args:
        world: Stays as it is.
        longest: How many actions a loop may have.
    """
    start = place(world)
    begun: list[tuple[tuple[str, ...], World, frozenset[str], str | None]] = [
        ((), world, frozenset({start}), None)
    ]
    for done, at, seen, undo in begun:  # it grows while it is read
        for action in _options(at, undo):
            text = undo if action == UNDO and undo is not None else action
            twin, back = copy.deepcopy(at), _undo(at, text)
            _, _, terminated, truncated, _ = twin.step(text)
            if terminated or truncated:
                continue
            here = place(twin)
            if here == start:
                yield (*done, action)
            elif here not in seen and len(done) + 1 < longest:
                begun.append(((*done, action), twin, seen | {here}, back))


def by_turns(found: Sequence[tuple[str, ...]], longest: int) -> Iterator[tuple[str, ...]]:
    """Two loops from one state, one after the other, where they have so many actions together.

    Args:
        found: The loops, shortest first.
        longest: How many actions both may have.
    """
    for one, other in combinations(found, 2):
        if len(one) + len(other) <= longest:
            yield (*one, *other)


def place(world: World) -> str:
    """Equal in equal states, rows that the task takes for no change left out."""
    if isinstance(world, Miniature):
        return world.anchor()
    box, task = world.box, world.instance.task
    voids = {name: where(conditions) for name, conditions in task.acceptance.voids.items()}
    found = [
        [change.table, change.key, change.kind, change.row]
        for name in (*box.names(), "seen", "submission")
        for change in changes(name, box.start.table(name), box.table(name))
        if not (change.kind == "new" and name in voids and voids[name](change.row))
    ]
    return json.dumps(sorted(found, key=lambda row: row[:3]), sort_keys=True)


def _options(world: World, undo: str | None) -> list[str]:
    """What may be done next, first of all taking back what was just done."""
    if isinstance(world, Miniature):
        return [action for action in ACTIONS if action != "submit"]
    rng = Rng("agents.farmers", world.instance.task.id, "loops")
    some = [world.domain.guess(world.box, rng.sub(number)) for number in range(2)]
    guesses = [world.format(guess.tool, guess.args) for guess in some]
    first = [] if undo is None else [UNDO]
    tried = [
        *first,
        IDLE,
        STILL,
        *_looks(world)[:2],
        *guesses,
        *_wrong(world),
        *world.solution()[:-1],
    ]
    return list(dict.fromkeys(tried))


def _undo(world: World, action: str) -> str | None:
    """The call that would take back an action; None where the domain knows none."""
    if isinstance(world, Miniature):
        return None
    call = parse_action(action, world.action_format, world.instance.toolbox)[0]
    if isinstance(call, BadCall) or call.tool not in world.domain.undo:
        return None
    reply = world.box.fork().call(call.tool, call.args)
    if reply.error:
        return None
    back = world.domain.undo[call.tool](reply.value)
    return world.format(back.tool, back.args)


def farms(
    env: gym.Env[Any, Any],
    begun: Play,
    gamma: float,
    limited: Mapping[str, float] = MappingProxyType({}),
) -> tuple[list[Farm], list[Harvest]]:
    """The loops that pay, and the episodes in which loops paid most.

    Args:
        env: A stack that was just reset to the task of ``begun``; it stays as it is.
        begun: Without any action yet.
        gamma: The learner's discount per turn.
        limited: Channels with a finite bound for undiscounted sums, and that bound. A channel that
            stays below it has no farm, as whatever it pays comes to an end.

    Returns:
        For each channel that has a farm the one that is worth most an action; and for each channel
        the episode with a repeated loop that paid it most.

    Raises:
        TypeError: The world in ``env`` is neither a miniature nor one of tools.
    """
    world = _world(env)
    longest = 3 if isinstance(world, Miniature) else 2
    found: dict[str, Farm] = {}
    most: dict[str, tuple[float, Play]] = {}
    for way, endings in _states(world):
        at = fork(env)
        for action in way:
            turn(at, action)
        here = copy.deepcopy(_world(at))
        simple = list(loops(here, longest))
        for loop in (*simple, *by_turns(simple, longest)):
            pumped = _Pumped(at, loop, endings, gamma)
            for channel, ending, worth, paid in pumped.channels():
                rank = paid if math.isfinite(paid) else math.inf
                if channel not in most or rank > most[channel][0] + TINY:
                    most[channel] = rank, _whole(begun, here, way, pumped, ending)
                most_of_all = limited.get(channel, -math.inf) + TINY
                kept = pumped.undiscounted(channel, ending) <= most_of_all
                if not pumped.goes_on(channel, worth, paid, kept):
                    continue
                late = worth[len(worth) // 2 :]
                rate = sum(late) / (len(late) * pumped.length)
                if channel not in found or rate > found[channel].rate + TINY:
                    longer = _Pumped(at, loop, endings, gamma, settled=REPETITIONS)
                    whole = _whole(begun, here, way, longer, ending)
                    found[channel] = Farm(channel, LOOP, whole, pumped.texts, rate)
    return list(found.values()), [play(env, LOOP, whole, gamma) for _, whole in most.values()]


def _whole(begun: Play, world: World, way: Sequence[str], pumped: _Pumped, ending: int) -> Play:
    """The way and what comes after it; a miniature that is cut has episodes of that length."""
    whole = begun._replace(actions=(*way, *pumped.actions(ending)))
    if isinstance(world, Miniature) and OUT in pumped.endings[ending]:
        name, _, luck = begun.task_id.split("/")
        return whole._replace(task_id=f"{name}/{len(whole.actions)}/{luck}")
    return whole


def _world(env: gym.Env[Any, Any]) -> World:
    base = env.unwrapped
    return base if isinstance(base, Miniature) else own(env)


def _states(world: World) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Where loops are looked for: the way there, and how the episode may end from there."""
    if isinstance(world, ToolEnv):
        solution, looks = tuple(world.solution()), tuple(_looks(world)[:2])
        for number in range(len(solution)):
            yield solution[:number], [(hand_in(world),), solution[number:], (OUT,)]
        yield looks, [(hand_in(world),), solution, (OUT,)]
        return
    known = {world.anchor()}
    queue: list[tuple[tuple[str, ...], Miniature]] = [((), copy.deepcopy(world))]
    for way, at in queue:  # it grows while it is read
        yield way, [("submit",), ("fill", "sign", "submit"), (OUT,)]
        for action in _options(world, None):
            twin = copy.deepcopy(at)
            twin.step(action)
            if twin.anchor() not in known:
                known.add(twin.anchor())
                queue.append(((*way, action), twin))


class _Pumped:
    """A loop repeated, with the episode ended in several ways before and after each repetition.

    Args:
        at: A stack in the state where the loop begins; stays as it is.
        loop: What is repeated.
        endings: How the episode may be ended.
        gamma: The learner's discount per turn.
        settled: After so many repetitions one that left all memory as it was ends the trial: the
            world is where it was, so the next one pays the same.

    Attributes:
        texts: The loop as it was first played.
        length: Actions of what counts as one repetition: where layers remember something else after
            each, the loop as often as it takes to fill a long episode with ``REPETITIONS``.
        endings: How the episode may be ended.
        same: Whether the layers remember the same after the last repetition as before it.
    """

    def __init__(
        self,
        at: gym.Env[Any, Any],
        loop: Sequence[str],
        endings: Sequence[Sequence[str]],
        gamma: float,
        *,
        settled: int = 2,
    ) -> None:
        self.gamma, self.endings = gamma, endings
        self.rests: list[list[_Turns]] = []
        stages = self._repeat(at, loop, settled)
        if not self.same:
            spare = _left(_world(at)) - max(map(len, endings))
            often = max(1, spare // (REPETITIONS * len(loop)))
            stages = self._repeat(at, [*loop] * often, REPETITIONS)
        self.texts = tuple(self.taken[: len(loop)])
        if self.same and all(amount <= TINY for amount in _dense(self.paid[-1])):
            return  # then waiting for the rest of the episode is all that a repetition does
        for stage in stages:
            self.rests.append([_turns(fork(stage), ending, gamma) for ending in endings])

    def _repeat(
        self, at: gym.Env[Any, Any], loop: Sequence[str], most: int
    ) -> list[gym.Env[Any, Any]]:
        """Repeats a loop up to ``most`` times; the stages before, in between and after."""
        self.length, self.same = len(loop), False
        self.taken: list[str] = []
        self.paid: list[dict[str, float]] = []
        self.plain: list[dict[str, float]] = []
        stages = [fork(at)]
        while len(self.paid) < most:
            twin = fork(stages[-1])
            once = _turns(twin, loop, self.gamma)
            if once.over:
                break
            stages.append(twin)
            self.same = _memory(twin) == _memory(stages[-2])
            self.paid.append(once.sums)
            self.plain.append(once.plain)
            self.taken += once.texts
        return stages

    def channels(self) -> Iterator[tuple[str, int, list[float], float]]:
        """Of each channel and ending: the worth of each repetition, and what all is paid."""
        step = self.gamma**self.length
        for name in self.paid[0] if self.paid and self.rests else ():
            for ending in range(len(self.rests[0]) if name != "base" else 0):
                rest = [rests[ending].sums.get(name, 0.0) for rests in self.rests]
                worth = [
                    sums.get(name, 0.0) + step * after - before
                    for sums, (before, after) in zip(self.paid, pairwise(rest), strict=True)
                ]
                paid = sum(step**n * sums.get(name, 0.0) for n, sums in enumerate(self.paid))
                total = paid + step ** len(self.paid) * rest[-1]
                yield name, ending, worth, total

    def undiscounted(self, channel: str, ending: int) -> float:
        """What all repetitions and an ending paid, undiscounted."""
        rest = self.rests[-1][ending].plain.get(channel, 0.0) if self.rests else 0.0
        return sum(plain.get(channel, 0.0) for plain in self.plain) + rest

    def actions(self, ending: int) -> tuple[str, ...]:
        """All repetitions and an ending."""
        rest = self.rests[-1][ending].texts if self.rests else ()
        return (*self.taken, *rest)

    def goes_on(self, channel: str, worth: Sequence[float], paid: float, limited: bool) -> bool:
        """Whether repetitions of such worth are a farm; putting a price off is none.

        Args:
            channel: Whose they are.
            worth: Of each repetition.
            paid: What all of them and the ending paid.
            limited: Whether the channel declares a finite bound for undiscounted sums, and has kept
                it here.
        """
        if len(worth) < 2:
            return False
        if self.same:
            return self.paid[-1].get(channel, 0.0) > TINY and worth[-1] > TINY
        return paid > TINY and not limited and endless(worth)


class _Turns(NamedTuple):
    """Some turns of an episode.

    Attributes:
        sums: Discounted, of ``"base"`` and every channel.
        plain: Undiscounted, likewise.
        texts: What was played.
        over: Whether the episode is over.
    """

    sums: dict[str, float]
    plain: dict[str, float]
    texts: tuple[str, ...]
    over: bool


def _dense(sums: Mapping[str, float]) -> list[float]:
    return [amount for name, amount in sums.items() if name != "base"]


def _memory(env: gym.Env[Any, Any]) -> str:
    return memory_of([layer.get_state() for layer in layers_of(env)])


def _left(world: World) -> int:
    """How many turns the episode has left at most."""
    if isinstance(world, Miniature):
        return world.turns - world.place[1]
    return world.instance.task.max_turns - int(world.get_state()["turn"])


def _turns(env: gym.Env[Any, Any], actions: Sequence[str], gamma: float) -> _Turns:
    """Plays turns, up to the end of the episode if that comes first.

    A miniature is cut at the first idle turn of ``OUT``: its episodes may be of any length.
    """
    sums: dict[str, float] = {}
    plain: dict[str, float] = {}
    texts: list[str] = []
    undo: str | None = None
    queue = list(actions)
    for t, action in enumerate(queue):  # it grows while it is read
        text = undo if action == UNDO and undo is not None else action
        undo = _undo(_world(env), text) if UNDO in actions else None
        if action == OUT:
            text = IDLE
            queue.append(OUT)
            if isinstance(env.unwrapped, Miniature):
                env.unwrapped.turns = env.unwrapped.place[1] + 1
        reward, over, info = turn(env, text)
        texts.append(text)
        for name, amount in amounts(env, reward, info["headway"]).items():
            sums[name] = sums.get(name, 0.0) + gamma**t * amount
            plain[name] = plain.get(name, 0.0) + amount
        if over:
            return _Turns(sums, plain, tuple(texts), True)
    return _Turns(sums, plain, tuple(texts), False)
