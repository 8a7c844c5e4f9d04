"""What a reward stack can be made to pay, and whether it changes the best policy: exact answers.

A stack is played out completely around the :class:`~headway.wrappers.miniature.Miniature`: every
action in every state at every turn, with every memory that its layers can then have. That is a
finite decision problem over (state, turn, memory), solved backwards. What is proved holds there
and is shown there by a play that can be repeated; :mod:`headway.agents.farmers` looks for farms in
the world that is really trained on.

**Dense** is all that the stack adds to the environment's own outcome, whoever adds it: what comes
from no channel stands under the name ``OUTSIDE``.

**A bound is broken** where some play pays a channel more, or less, than its layers declare: in the
discounted sum of an episode or in one turn. What is no finite number breaks any.

**The optimum is preserved** if every policy that is best with the stack is best without it, *for
every reward that the environment itself might pay*; that is what ``keeps_optimum`` claims, for a
learner's discount. Two problems are solved. In the first the environment pays the outcome. The best
actions with the stack have to be among the best without it in every state and turn that best play
with the stack reaches; the memory of the layers is no part of that state, as the environment does
not know it. In the second it pays nothing yet. There the dense reward must not prefer any action to
another; if it prefers one play to another by some gap, an environment that pays less than the gap
for the other has its optimum changed, and that environment is written down and solved too. So the
second decides, and the first says whether the plain outcome is already enough.

Episodes that are cut count as ended: nothing is bootstrapped. So shaping with
``on_truncation="keep"`` does not preserve the optimum here, and would under a learner that
bootstraps.

A layer that draws at random is judged draw by draw, as the state of its generator is part of its
memory: preserved means preserved whatever is drawn; not preserved is shown for the draws of its
seed. A layer that changes with training is judged as it is at the beginning, a schedule also as it
is at its end, and one that keeps something of an episode also after ``PRACTICE`` episodes.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from headway.arguments import number
from headway.verifiers import Record
from headway.verifiers.memory import with_state
from headway.wrappers.channel import OUTSIDE, Bound
from headway.wrappers.miniature import ACTIONS, CHANCE, LUCK, MINIATURE, Desk, Miniature
from headway.wrappers.schedule import set_progress
from headway.wrappers.stack import bounded, build, channels_of, keeps_optimum
from headway.wrappers.starc import starc
from headway.wrappers.transforms import AtEnd

TOLERANCE = 1e-10
"""Returns that differ by less are equal; rounding is far below it."""

GAP = 1e-8
"""Preferences of the dense reward that are smaller are rounding."""

FINISHED = 10**9
"""The learner's step at which every schedule is over."""

PRACTICE = 30
"""Episodes after which layers that keep something of an episode are judged again."""

WORLDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (4, tuple(ACTIONS)),
    (9, ("fill", "clear", "wait", "submit")),
)
"""Turns and actions: one world with everything, and a long one for what looks at late turns."""


SURE = ((True, 1.0),)
"""Luck and chance of what involves no risk."""

NOTHING = Bound(0.0, 0.0, 0.0, 0.0)
"""What is declared for what comes from no channel."""


class Branch(NamedTuple):
    """What an action may lead to.

    Attributes:
        lucky: Whether a signature succeeds in it.
        chance: How likely it is.
        base: The outcome that it pays.
        pays: What each channel pays for it.
        to: Index of the node that it leads to; None at the end of the episode.
    """

    lucky: bool
    chance: float
    base: float
    pays: tuple[float, ...]
    to: int | None


class Node(NamedTuple):
    """A state of the world at a turn, with a memory of the layers.

    Attributes:
        place: What the environment knows of it: the desk and the turn.
        edges: The branches of every action.
    """

    place: tuple[Desk, int]
    edges: dict[str, tuple[Branch, ...]]


Reward = Callable[[Node, str, Branch], float]
Way = tuple[tuple[str, bool], ...]
"""Actions from the reset, each with the luck that it had."""

Worth = list[dict[str, float]]
"""Of each node what each action is worth under best play afterwards."""


class Play(NamedTuple):
    """What somebody did in an episode; :func:`paid_for` repeats it.

    Attributes:
        task_id: Of the task.
        actions: From its reset.
        k: The learner's step, for schedules.
        practice: How many episodes of :func:`practise` came before.
    """

    task_id: str
    actions: tuple[str, ...]
    k: int = 0
    practice: int = 0


@dataclass(frozen=True)
class Preference:
    """Why the optimum is not preserved.

    Attributes:
        chosen: A play that is best with the stack and not without it.
        instead: One that is best without it.
        gap: By how much the stack makes the first worth more, in expectation and discounted; 0.0
            where it makes both worth the same.
        outcome: Whether the environment's plain outcome is enough to show it; else it takes an
            environment that pays for the other play, and less than ``gap``.
    """

    chosen: Play
    instead: Play
    gap: float
    outcome: bool


@dataclass(frozen=True)
class Game:
    """A stack played out around a miniature.

    Attributes:
        nodes: In the order of their turns; the first is the reset.
        channels: Names of what ``Branch.pays`` holds, ``OUTSIDE`` last.
        turns: How many an episode may take.
        gamma: The learner's discount per turn.
        k: The learner's step.
        practice: How many episodes came before.
        wild: For channels that paid what is no finite number, a play whose last turn did; in
            ``Branch.pays`` 0.0 stands for it.
    """

    nodes: tuple[Node, ...]
    channels: tuple[str, ...]
    turns: int
    gamma: float
    k: int = 0
    practice: int = 0
    wild: Mapping[str, Play] = field(default_factory=dict)

    def solve(self, reward: Reward, among: Worth | None = None) -> Worth:
        """Solves the game backwards for a reward, among the best actions of another if one says."""
        best = [0.0] * len(self.nodes)
        worth: Worth = [{} for _ in self.nodes]
        for at in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[at]
            for action, branches in node.edges.items():
                value = 0.0
                for branch in branches:
                    later = 0.0 if branch.to is None else self.gamma * best[branch.to]
                    value += branch.chance * (reward(node, action, branch) + later)
                worth[at][action] = value
            allowed = worth[at] if among is None else best_of(among[at])
            best[at] = max(worth[at][action] for action in allowed)
        return worth

    def extreme(self, channel: str, most: bool) -> tuple[float, Play]:
        """The most (or least) that a channel can pay in an episode, with luck, and a play of it."""
        index, sign = self.channels.index(channel), 1.0 if most else -1.0
        best: dict[int, tuple[float, str, Branch]] = {}
        for at in range(len(self.nodes) - 1, -1, -1):
            options = (
                (
                    sign * branch.pays[index]
                    + (0.0 if branch.to is None else self.gamma * best[branch.to][0]),
                    action,
                    branch,
                )
                for action, branches in self.nodes[at].edges.items()
                for branch in branches
            )
            best[at] = max(options, key=itemgetter(0))
        way: list[tuple[str, bool]] = []
        to: int | None = 0
        while to is not None:
            _, action, branch = best[to]
            way.append((action, branch.lucky))
            to = branch.to
        return sign * best[0][0] + 0.0, self._play(way)

    def extreme_turn(self, channel: str, most: bool) -> tuple[float, Play]:
        """The most (or least) that a channel can pay in a turn, and a way there that ends in it."""
        index, sign = self.channels.index(channel), 1.0 if most else -1.0
        paid = [
            (sign * branch.pays[index], (*way, (action, branch.lucky)))
            for at, way, _ in self._reached(lambda at: self.nodes[at].edges)
            for action, branches in self.nodes[at].edges.items()
            for branch in branches
        ]
        amount, way = max(paid, key=itemgetter(0))
        return sign * amount + 0.0, self._play(way)

    def preference(self) -> Preference | None:
        """Why the optimum is not preserved; None where it is, whatever the environment pays."""
        return self._stray(_outcome) or self._prized()

    def _stray(self, paid: Reward) -> Preference | None:
        """Best play with the stack up to an action that is not among the best without it.

        Args:
            paid: What the environment itself pays.
        """

        def total(node: Node, action: str, branch: Branch) -> float:
            return paid(node, action, branch) + sum(branch.pays)

        base, both = self.solve(paid), self.solve(total)
        for at, way, _ in self._best_play(both):
            right = best_of(base[at])
            for action in best_of(both[at]):
                if action not in right:
                    held = self.solve(total, among=base)
                    best = max(right, key=held[at].__getitem__)
                    return Preference(
                        chosen=self._finish((*way, (action, True)), both),
                        instead=self._finish((*way, (best, True)), held, among=base),
                        gap=both[at][action] - held[at][best],
                        outcome=paid is _outcome,
                    )
        return None

    def _prized(self) -> Preference | None:
        """The same for an environment that pays for a play which the dense reward likes less."""
        dense = self.solve(_dense)
        gap, way, at, action = max(
            (weight * (max(dense[at].values()) - value), way, at, action)
            for at, way, weight in self._best_play(dense)
            for action, value in dense[at].items()
        )
        if gap <= GAP:
            return None
        choice = dict(zip(self._nodes_on(way), (taken for taken, _ in way), strict=False))
        choice[at] = action
        route = set(self._route(choice, dense))
        # At most half of the gap in all, so the stack still prefers its own play.
        prize = gap / (2 * self.turns)
        found = self._stray(lambda node, action, _: prize * ((node.place, action) in route))
        assert found is not None  # who is paid for all of the route plays nothing else
        return replace(found, gap=gap)

    def _best_play(self, worth: Worth) -> Iterator[tuple[int, Way, float]]:
        """The nodes that best play may reach: index, a way there, its chance and discount."""
        return self._reached(lambda at: best_of(worth[at]))

    def _reached(self, actions: Callable[[int], Iterable[str]]) -> Iterator[tuple[int, Way, float]]:
        """The nodes that these actions may reach."""
        found: dict[int, tuple[Way, float]] = {0: ((), 1.0)}
        queue = [0]
        for at in queue:  # it grows while it is read
            way, weight = found[at]
            yield at, way, weight
            for action in actions(at):
                for branch in self.nodes[at].edges[action]:
                    if branch.to is not None and branch.to not in found:
                        there = (*way, (action, branch.lucky))
                        found[branch.to] = (there, weight * branch.chance * self.gamma)
                        queue.append(branch.to)

    def _route(self, choice: Mapping[int, str], worth: Worth) -> Iterator[tuple[Any, str]]:
        """Places and actions of the policy that plays ``choice`` and else what is worth most."""
        queue: list[int] = [0]
        for at in queue:  # it grows while it is read
            action = choice.get(at) or best_of(worth[at])[0]
            yield self.nodes[at].place, action
            queue += [b.to for b in self.nodes[at].edges[action] if b.to is not None]

    def _nodes_on(self, way: Way) -> Iterator[int]:
        """The nodes from the reset to the end of a way."""
        at: int | None = 0
        for action, lucky in way:
            assert at is not None
            yield at
            at = self._branch(at, action, lucky).to
        if at is not None:
            yield at

    def _branch(self, at: int, action: str, lucky: bool) -> Branch:
        branches = self.nodes[at].edges[action]
        return next((branch for branch in branches if branch.lucky is lucky), branches[0])

    def _finish(self, way: Way, worth: Worth, among: Worth | None = None) -> Play:
        """The way and best play from there to the end, with luck unless it had none."""
        lucky = all(luck for _, luck in way)
        at = list(self._nodes_on(way))
        while len(at) > len(way):
            here = worth[at[-1]]
            action = max(best_of((among or worth)[at[-1]]), key=here.__getitem__)
            branch = self._branch(at[-1], action, lucky)
            way = (*way, (action, branch.lucky))
            if branch.to is not None:
                at.append(branch.to)
        return self._play(way)

    def _play(self, way: Sequence[tuple[str, bool]]) -> Play:
        return _told(way, self.turns, self.k, self.practice)


def _told(way: Sequence[tuple[str, bool]], turns: int, k: int, practice: int) -> Play:
    """A way as a play."""
    luck = "lucky" if all(lucky for _, lucky in way) else "unlucky"
    return Play(f"{MINIATURE}/{turns}/{luck}", tuple(action for action, _ in way), k, practice)


def _outcome(node: Node, action: str, branch: Branch) -> float:
    return branch.base


def _dense(node: Node, action: str, branch: Branch) -> float:
    return sum(branch.pays)


def best_of(worth: Mapping[str, float]) -> list[str]:
    """The actions that are worth most."""
    most = max(worth.values()) - TOLERANCE
    return [action for action, value in worth.items() if value >= most]


def explore(
    stack: str,
    *,
    gamma: float,
    on_truncation: AtEnd = "zero",
    k: int = 0,
    practice: int = 0,
    turns: int = 4,
    actions: Sequence[str] = tuple(ACTIONS),
) -> Game:
    """Plays a stack out around a miniature.

    Args:
        stack: Written as :func:`headway.wrappers.stack.build` takes it.
        gamma: The learner's discount per turn, in (0, 1].
        on_truncation: For the layers that take it.
        k: The learner's step, for schedules.
        practice: How many episodes of :func:`practise` come before.
        turns: How many an episode may take, at least 1.
        actions: What may be done in each of them.

    Raises:
        ValueError: ``stack`` cannot be built, or a layer raises something or keeps a memory that is
            no plain data.
        TypeError: A layer has no state to put it back into.
    """
    world = Miniature(turns)
    env = staged(world, stack, gamma=gamma, on_truncation=on_truncation)
    set_progress(env, k)
    practise(env, practice)
    begin(env, options={"task_id": f"{MINIATURE}/{turns}/lucky"})
    layers = list(with_state(env))
    channels = (*(channel.name for channel, _ in channels_of(env)), OUTSIDE)
    first = _states(layers)
    states, known, nodes = [first], {memory_of(first): 0}, []
    ways: list[Way] = [()]
    wild: dict[str, Play] = {}
    for state, way in zip(states, ways, strict=True):  # they grow while they are read
        _put(layers, state)
        node = Node(world.place, {})
        for action in actions:
            branches = []
            risky = action == "sign" and node.place[0].form == "filled"
            for lucky, chance in ((True, CHANCE), (False, 1.0 - CHANCE)) if risky else SURE:
                _put(layers, state)
                world.lucky = lucky
                reward, over, info = turn(env, action)
                there = (*way, (action, lucky))
                paid = amounts(env, reward, info["headway"])
                pays = [float(paid[name]) for name in channels]
                for n in (n for n, amount in enumerate(pays) if not math.isfinite(amount)):
                    wild.setdefault(channels[n], _told(there, turns, k, practice))
                    pays[n] = 0.0
                to = None
                if not over:
                    after = _states(layers)
                    to = known.setdefault(memory_of(after), len(states))
                    if to == len(states):
                        states.append(after)
                        ways.append(there)
                branches.append(Branch(lucky, chance, world.outcome, tuple(pays), to))
            node.edges[action] = tuple(branches)
        nodes.append(node)
    return Game(tuple(nodes), channels, turns, gamma, k, practice, wild)


def staged(
    world: gym.Env[Any, Any], stack: str, *, gamma: float, on_truncation: AtEnd
) -> gym.Env[Any, Any]:
    """``world`` in the stack, whatever it may pay: judging that is what an audit is for."""
    return build(world, stack, gamma=gamma, on_truncation=on_truncation, allow_dominance=True)


def practise(env: gym.Env[Any, Any], episodes: int) -> None:
    """Plays a stack around a miniature for a while, for layers that keep something of it.

    Args:
        env: The stack.
        episodes: How many; the n-th begins with the n-th action of ``ACTIONS``, going round.
    """
    actions = list(ACTIONS)
    for episode in range(episodes):
        begin(env, options={"task_id": f"{MINIATURE}/4/{list(LUCK)[episode % 2]}"})
        over, at = False, episode
        while not over:
            _, over, _ = turn(env, actions[at % len(actions)])
            at += 1


def paid_for(env: gym.Env[Any, Any], play: Play, gamma: float) -> dict[str, float]:
    """What a stack pays for a play: the discounted sums of ``"base"`` and of every channel.

    Args:
        env: A new stack around the world that the play is of.
        play: What is done.
        gamma: The learner's discount per turn, in (0, 1].

    Raises:
        ValueError: The episode ends before the play does, or a layer raises something.
    """
    set_progress(env, play.k)
    practise(env, play.practice)
    begin(env, options={"task_id": play.task_id})
    sums: dict[str, float] = {}
    over = False
    for t, action in enumerate(play.actions):
        if over:
            raise ValueError(
                f"the episode of play must last {len(play.actions)} turns, it ended after {t}"
            )
        reward, over, info = turn(env, action)
        for name, amount in amounts(env, reward, info["headway"]).items():
            sums[name] = sums.get(name, 0.0) + gamma**t * amount
    return sums


def amounts(env: gym.Env[Any, Any], reward: float, record: Record) -> dict[str, float]:
    """What a turn paid: ``"base"``, every channel, and ``OUTSIDE`` what comes from none.

    What a wrapper that is no layer adds to the outcome stands in the record's base.
    """
    outcome = getattr(env.unwrapped, "outcome", None)
    base = record["base"] if outcome is None else outcome
    known = {channel.name for channel, _ in channels_of(env)}
    channels = {name: amount for name, amount in record["channels"].items() if name in known}
    outside = reward - base - sum(channels.values())
    if not all(map(math.isfinite, channels.values())):
        outside = 0.0  # what cannot be told is none
    return {"base": base, **channels, OUTSIDE: outside}


def begin(env: gym.Env[Any, Any], **reset: Any) -> dict[str, Any]:
    """Resets a stack; the info.

    Raises:
        ValueError: A layer raises something.
    """
    with _blaming(env):
        _, info = env.reset(**reset)
    return info


def turn(env: gym.Env[Any, Any], action: str) -> tuple[float, bool, dict[str, Any]]:
    """Plays a turn of a stack: the reward, whether the episode is over, and the info.

    Raises:
        ValueError: A layer raises something.
    """
    with _blaming(env):
        _, reward, terminated, truncated, info = env.step(action)
        return float(reward), bool(terminated or truncated), info


@contextmanager
def _blaming(env: gym.Env[Any, Any]) -> Iterator[None]:
    """Makes what a layer raises a fault of the stack; what the world raises stays what it is."""
    try:
        yield
    except Exception as error:  # a layer may be anybody's
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if any(frame.f_locals.get("self") is env.unwrapped for frame in frames):
            raise
        code = frames[-1].f_code
        raise ValueError(
            f"the layers of stack must raise nothing, got {type(error).__name__}: {error} from "
            f"{code.co_qualname}"
        ) from error


def _states(layers: Sequence[Any]) -> list[Any]:
    with _blaming(layers[-1]):
        return [layer.get_state() for layer in layers]


def _put(layers: Sequence[Any], state: Sequence[Any]) -> None:
    for layer, part in zip(layers, state, strict=True):
        layer.set_state(part)


def memory_of(state: Sequence[Any]) -> str:
    """Equal for equal memories.

    Raises:
        ValueError: They are no plain data.
    """
    try:
        return json.dumps(state, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the layers of stack must remember plain data, as JSON has it, got: {error}; keep a "
            "list instead of an array"
        ) from error


@dataclass(frozen=True)
class Paid:
    """What one channel can pay, as declared and as found in the miniature.

    Attributes:
        name: Of the channel.
        bound: What its layers declare together.
        seen: The least and the most of an episode, discounted; NaN where one was not finite.
        turn: The least and the most of a turn.
        broken: A play that does not keep the bound, of a turn by its last one; None if all do.
    """

    name: str
    bound: Bound
    seen: tuple[float, float]
    turn: tuple[float, float]
    broken: Play | None


@dataclass(frozen=True)
class Proof:
    """What is true of a stack in the miniature.

    Attributes:
        channels: Of the stack, from the inside out, and ``OUTSIDE`` where something comes from it.
        claimed: Whether the stack's layers claim to preserve the optimum.
        preference: Why they do not, what is not finite taken for 0; None where they do.
        distance: STARC distance between the environment's reward and that of the stack, in the
            first world and with new layers; None where the stack pays by more than the state, the
            turn and the action.
    """

    channels: tuple[Paid, ...]
    claimed: bool
    preference: Preference | None
    distance: float | None

    @property
    def preserved(self) -> bool:
        """Whether the optimum is preserved; it is not where some amount is not finite."""
        finite = all(map(math.isfinite, (amount for paid in self.channels for amount in paid.seen)))
        return finite and self.preference is None


def prove(stack: str, *, gamma: float, on_truncation: AtEnd = "zero") -> Proof:
    """Judges a stack in the worlds of ``WORLDS``, at the beginning of training and at its end.

    Args:
        stack: Written as :func:`headway.wrappers.stack.build` takes it.
        gamma: The learner's discount per turn, in (0, 1].
        on_truncation: For the layers that take it.

    Raises:
        ValueError: An argument is outside its range, or ``stack`` cannot be built.
        TypeError: A layer has no state to put it back into.
    """
    gamma = number("gamma", gamma, "(0, 1]")
    env = staged(Miniature(), stack, gamma=gamma, on_truncation=on_truncation)
    games = [
        explore(
            stack,
            gamma=gamma,
            on_truncation=on_truncation,
            k=k,
            practice=practice,
            turns=turns,
            actions=actions,
        )
        for k, practice in moments(env)
        for turns, actions in WORLDS
    ]
    declared = bounds(env, gamma)
    channels = [_paid(name, declared.get(name, NOTHING), games) for name in games[0].channels]
    if max(map(abs, channels[-1].turn)) <= TOLERANCE:  # not where it is NaN
        channels.pop()
    return Proof(
        channels=tuple(channels),
        claimed=claims(env, gamma),
        preference=next(filter(None, (game.preference() for game in games)), None),
        distance=distance(games[0]),
    )


def steps_of(env: gym.Env[Any, Any]) -> tuple[int, ...]:
    """The learner's steps at which a stack is judged: the first, and one after all schedules."""
    return (0, FINISHED) if set_progress(env, 0) else (0,)


def moments(env: gym.Env[Any, Any]) -> Iterator[tuple[int, int]]:
    """Steps and episodes of practice; no practice for layers that keep nothing of an episode."""
    yield from ((k, 0) for k in steps_of(env))
    layers = list(with_state(env))[:-1]
    begin(env)
    new = memory_of([layer.get_state() for layer in layers])
    practise(env, PRACTICE)
    begin(env, options={"task_id": f"{MINIATURE}/4/lucky"})
    if memory_of([layer.get_state() for layer in layers]) != new:
        yield 0, PRACTICE


def bounds(env: gym.Env[Any, Any], gamma: float) -> dict[str, Bound]:
    """What each channel of a stack can pay with the filters around it, as they declare."""
    return {channel.name: bounded(channel, filters, gamma) for channel, filters in channels_of(env)}


def claims(env: gym.Env[Any, Any], gamma: float) -> bool:
    """Whether a stack claims to preserve the optimum: every channel and the filters around it."""
    return all(keeps_optimum(*layers, gamma) for layers in channels_of(env))


def _paid(name: str, bound: Bound, games: Sequence[Game]) -> Paid:
    amount = itemgetter(0)
    low = min((game.extreme(name, False) for game in games), key=amount)
    high = max((game.extreme(name, True) for game in games), key=amount)
    least = min((game.extreme_turn(name, False) for game in games), key=amount)
    most = max((game.extreme_turn(name, True) for game in games), key=amount)
    wild = next((game.wild[name] for game in games if name in game.wild), None)
    if wild is not None:
        return Paid(name, bound, (math.nan, math.nan), (math.nan, math.nan), wild)
    found = (low, high, least, most)
    beyond = (
        bound.low - low[0],
        high[0] - bound.high,
        bound.least - least[0],
        most[0] - bound.most,
    )
    broken = next(
        (play for (_, play), by in zip(found, beyond, strict=True) if not by <= GAP), None
    )
    return Paid(name, bound, (low[0], high[0]), (least[0], most[0]), broken)


def distance(game: Game) -> float | None:
    """:func:`starc` between the environment's own reward and that of the stack.

    None where some amount is not finite, and where the stack pays by more than the state, the turn
    and the action: then its reward is none on these states.
    """
    if game.wild:
        return None
    places = {place: i for i, place in enumerate(dict.fromkeys(n.place for n in game.nodes))}
    end, actions = len(places), list(game.nodes[0].edges)
    shape = (end + 1, len(actions), end + 1)
    chances, rewards = np.zeros(shape), np.zeros((2, *shape))
    chances[end, :, end] = 1.0
    known: dict[tuple[int, int], list[tuple[float, float, float, int]]] = {}
    for node in game.nodes:
        for a, action in enumerate(actions):
            s = places[node.place]
            found = [
                (
                    branch.chance,
                    branch.base,
                    sum(branch.pays),
                    end if branch.to is None else places[game.nodes[branch.to].place],
                )
                for branch in node.edges[action]
            ]
            before = known.setdefault((s, a), found)
            if not np.allclose(before, found, rtol=0.0, atol=TOLERANCE):
                return None
            for *_, to in found:
                chances[s, a, to] = sum(chance for chance, *_, there in found if there == to)
            base = sum(chance * paid for chance, paid, *_ in found)
            dense = sum(chance * paid for chance, _, paid, _ in found)
            rewards[0, s, a], rewards[1, s, a] = base, base + dense
    return starc(rewards[0], rewards[1], chances, game.gamma)
