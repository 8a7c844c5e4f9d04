"""Episodes of many tasks at once, played by a policy and kept token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from headway.agents.engine import Engine, Stream, Written
from headway.agents.policy import Policy
from headway.agents.probe import Live, Probe, looking, shifted
from headway.agents.trajectory import TEMPERATURES, Trajectory, Turn, told
from headway.arguments import number, whole
from headway.envs.box import SandboxDied
from headway.envs.fork import fork
from headway.envs.spaces import CUT, Cut
from headway.verifiers import Look, Verdict
from headway.verifiers.likelihood import blanked
from headway.verifiers.signal import told as heard
from headway.wrappers.channel import grader_of, measure
from headway.wrappers.information import Gain

T = TypeVar("T")

Teacher = Callable[[gym.Env[Any, Any], str, int], str]
"""``teacher(env, obs, turn)`` is what is to be written in turn ``turn``, counted from 0."""

Task = int | Mapping[str, Any]
"""A seed, or the keywords of ``reset``."""

Told = Callable[[int, int], None]
"""``told(done, of)`` hears how many trajectories are whole."""

WORTH = 1.0
"""Observations are fed once they have so many tokens for each lane that is writing: fewer would
cost a forward pass that is mostly overhead, and more would let lanes wait."""


@dataclass(slots=True)
class Rollout:
    """Episodes and what they cost.

    Attributes:
        trajectories: Those of each group side by side, groups in the order of the tasks.
        values: Per trajectory, shape (turns + 1,): mean outcome of the continuations from the state
            at reset and after each turn, NaN where there is none. At reset it is the mean outcome
            of the others of the group, at the end the own. Empty unless continuations were asked
            for.
        tokens: ``policy`` were sampled, ``prefill`` read, ``scorer`` put through to measure what is
            known, ``continuations`` sampled in those.
        seconds: ``policy``, ``scorer``, ``continuations``, and ``checks`` for the environments.
        shared: Tokens of prompts that were copied from a lane that had read them.
    """

    trajectories: list[Trajectory]
    values: list[NDArray[np.float64]]
    tokens: dict[str, int]
    seconds: dict[str, float]
    shared: int


@dataclass(slots=True, eq=False)
class _Episode:
    """One that is being played.

    Attributes:
        at: Group and number in it; of a continuation, trajectory and turn.
        start: Key of the present state.
        verdict: The last that there was.
        progress: Verified last.
        began: Verified progress at reset.
        ended: How the last turn ended it.
        asked: What is put behind the context to see what is known, see :meth:`Probe.spelt`.
        known: What was known of the answer when it was measured last.
        cut: Whether the last turn was a cut from outside, whose reply nobody reads.
        unread: The last reply, where the episode is over and nobody has read it.
        blank: The last turn with its reply, in which there is nothing to read.
        lost: Whether such a reply did not fit.
    """

    at: tuple[int, int]
    env: gym.Env[Any, Any]
    stream: Stream
    task_id: str
    prompt: str
    start: Hashable
    verdict: Verdict
    began: float
    progress: float
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    ended: str = "no"
    spent: int = 0
    gain: Gain | None = None
    look: Look | None = None
    asked: Sequence[tuple[list[int], int]] = ()
    known: Sequence[Sequence[float]] = ()
    cut: bool = False
    unread: Sequence[int] = ()
    blank: Sequence[int] = ()
    lost: bool = False

    def add(self, ids: Sequence[int], logp: Sequence[float] | None = None) -> None:
        """Tokens that were sampled, with their log-probabilities, or read."""
        self.ids += ids
        self.mask += [logp is not None] * len(ids)
        self.logp += [0.0] * len(ids) if logp is None else logp
        self.turn += [-1 if logp is None else len(self.turns)] * len(ids)
        self.spent += 0 if logp is None else len(ids)

    def whole(self) -> Trajectory:
        """What is kept of it."""
        return Trajectory(
            task_id=self.task_id,
            group=self.at[0],
            prompt=self.prompt,
            ids=np.array(self.ids, np.int32),
            mask=np.array(self.mask, np.bool_),
            logp=np.array(self.logp, np.float32),
            turn=np.array(self.turn, np.int32),
            turns=self.turns,
            progress=self.began,
            success=self.ended != "died" and self.verdict.status == "ok" and self.verdict.success,
            ended=self.ended,
        )


def collect(
    player: Engine | Policy,
    tasks: Sequence[Task],
    make: Callable[[], gym.Env[Any, Any]],
    *,
    key: Sequence[int | str],
    group: int = 1,
    turn_tokens: int = 64,
    episode_tokens: int | None = None,
    temperature: float = 1.0,
    greedy: bool = False,
    probe: Probe | None = None,
    continuations: int = 0,
    teacher: Teacher | None = None,
    observe: Told = lambda done, of: None,
    clock: Callable[[], float] = perf_counter,
) -> Rollout:
    """Plays each task ``group`` times, all from one start.

    What becomes of a trajectory depends on ``key``, its task and its number, and on no neighbour:
    not on lanes or order, up to the rounding of matrix products.

    A turn that reaches ``turn_tokens`` goes to the environment as it is, flagged as cut. Where the
    context is full or ``episode_tokens`` are spent the environment gets ``headway.CUT``, which ends
    the episode: instead of the text that was cut short, or as a turn without any token where what
    was observed leaves no room to answer.

    Args:
        player: An engine, whose lanes are emptied; a policy is given one.
        tasks: One a group.
        make: Makes the environment with its reward layers; called once a group, then forked.
        key: Names the streams that tokens are drawn from, for example seed and update.
        group: Trajectories of a task, at least 1.
        turn_tokens: Most tokens of a turn, at least 1.
        episode_tokens: Most tokens that an episode samples, at least 1; None for what fits.
        temperature: In [0.001, 1000].
        greedy: Take the likeliest token always.
        probe: Adds a channel that pays information gain.
        continuations: How often the rest of an episode is played from each state on its way, to
            estimate what the state is worth; at least 0. Until the episodes themselves are over,
            so many copies of the environment wait for each of their turns.
        teacher: Writes the turns in place of the policy, which only says how likely they are.
        observe: Hears how many trajectories are whole.
        clock: What seconds are counted by.

    Raises:
        ValueError: An argument is outside its range, or a first observation fills the context.
        TypeError: The environment reports no ``info["headway"]``, or offers no ``grade()``.
        FloatingPointError: The policy's logits are no numbers.
    """
    engine = Engine(player) if isinstance(player, Policy) else player
    run = _Run(
        engine,
        key=tuple(key),
        turn_tokens=whole("turn_tokens", turn_tokens, 1),
        episode_tokens=whole(
            "episode_tokens", engine.context if episode_tokens is None else episode_tokens, 1
        ),
        temperature=number("temperature", temperature, TEMPERATURES),
        greedy=greedy,
        probe=probe,
        continuations=whole("continuations", continuations, 0),
        teacher=teacher,
        clock=clock,
    )
    group = whole("group", group, 1)
    began = clock()
    found = run.main(list(tasks), make, group, observe)
    run.seconds["policy"] = clock() - began - sum(run.seconds.values())
    values: list[NDArray[np.float64]] = []
    if continuations:
        began, checks = clock(), run.seconds["checks"]
        values = run.values(found)
        run.seconds["continuations"] = clock() - began - (run.seconds["checks"] - checks)
    return Rollout(
        trajectories=found,
        values=values,
        tokens={
            "policy": sum(one.sampled for one in found),
            "prefill": engine.fed,
            "scorer": engine.scored + run.reread,
            "continuations": run.continued,
        },
        seconds=run.seconds,
        shared=engine.shared,
    )


class _Run:
    """The state of one :func:`collect`."""

    def __init__(
        self,
        engine: Engine,
        *,
        key: tuple[int | str, ...],
        turn_tokens: int,
        episode_tokens: int,
        temperature: float,
        greedy: bool,
        probe: Probe | None,
        continuations: int,
        teacher: Teacher | None,
        clock: Callable[[], float],
    ) -> None:
        self.engine, self.key = engine, key
        # No turn can be longer than the context, and a number is drawn for each of its tokens.
        self.turn_tokens = min(turn_tokens, engine.context)
        self.episode_tokens = episode_tokens
        self.temperature, self.greedy = temperature, greedy
        self.probe, self.continuations = probe, continuations
        self.teacher, self.clock = teacher, clock
        self.template = engine.policy.template
        self.shadow = engine.twin() if probe is not None and probe.control else None
        self.seconds = dict.fromkeys(("policy", "scorer", "continuations", "checks"), 0.0)
        self.lanes: dict[int, _Episode] = {}
        self.stems: list[_Episode] = []
        self.branches: list[_Episode] = []
        self.known: dict[int, Sequence[Sequence[float]]] = {}
        self.continued = self.reread = 0
        self.group = 1
        engine.fed = engine.shared = engine.scored = 0

    def main(
        self,
        tasks: Sequence[Task],
        make: Callable[[], gym.Env[Any, Any]],
        group: int,
        observe: Told,
    ) -> list[Trajectory]:
        """Plays the trajectories themselves."""
        self.group = group
        found: dict[tuple[int, int], Trajectory] = {}

        def over(at: tuple[int, int], made: Trajectory) -> None:
            found[at] = made
            observe(len(found), group * len(tasks))

        try:
            self.play(self._siblings(tasks, make, over), over)
        except BaseException:
            self._drop()
            raise
        if self.shadow is not None:
            self.reread = self.shadow.fed + self.shadow.scored
        return [found[at] for at in sorted(found)]

    def values(self, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        """Plays what was forked to its end; see :class:`Rollout`."""
        outcomes: dict[tuple[int, int], list[bool]] = {}
        groups: dict[int, list[bool]] = {}

        def over(at: tuple[int, int], made: Trajectory) -> None:
            self.continued += int((made.turn >= at[1]).sum())
            if made.scored:
                outcomes.setdefault(at, []).append(made.success)

        self.probe, self.shadow, self.continuations = None, None, 0
        self.branches.reverse()
        try:
            self.play((self.branches.pop() for _ in range(len(self.branches))), over)
        finally:
            self._drop()
        for one in trajectories:
            if one.scored:
                groups.setdefault(one.group, []).append(one.success)
        found = []
        for place, one in enumerate(trajectories):
            last = [one.success] if one.scored else []
            others = list(groups.get(one.group, ()))
            if last:
                others.remove(one.success)  # or its own luck would count on both sides
            values = [_mean(others)]
            for turn in range(1, len(one.turns)):
                # A turn without a token is a cut: there was one way to go on, and it was taken.
                only = last if not (one.turn == turn).any() else []
                values.append(_mean(outcomes.get((place, turn), only)))
            found.append(np.array([*values, *([_mean(last)] if one.turns else [])]))
        return found

    def play(
        self,
        queue: Iterator[_Episode],
        over: Callable[[tuple[int, int], Trajectory], None],
    ) -> None:
        """Plays episodes to their ends, as many at once as there are lanes."""
        engine = self.engine
        for one in (engine, self.shadow):
            if one is not None:
                one.clear()
        free = list(range(len(engine)))[::-1]
        starting: dict[int, list[int]] = {}
        waiting: dict[int, list[int]] = {}
        try:
            while True:
                while free and (episode := next(queue, None)) is not None:
                    lane = free.pop()
                    self.lanes[lane], starting[lane] = episode, list(episode.ids)
                new = sum(map(len, (*starting.values(), *waiting.values())))
                if new and new >= WORTH * engine.writing:
                    self._feed(starting, waiting)
                    starting, waiting = {}, {}
                if not engine.writing:
                    return
                done = engine.step(temperature=self.temperature, greedy=self.greedy)
                replies = {lane: self._answered(lane, turn) for lane, turn in done.items()}
                ended = [lane for lane, reply in replies.items() if not reply]
                waiting |= {lane: reply for lane, reply in replies.items() if reply}
                self._measure([lane for lane in ended if self.lanes[lane].ended != "died"])
                for lane in ended:
                    episode = self.lanes.pop(lane)
                    self._timed(episode.env.close)
                    over(episode.at, episode.whole())
                free += ended
        finally:
            for episode in (*self.lanes.values(), *self.stems):
                episode.env.close()
            self.lanes.clear()

    def _drop(self) -> None:
        """Closes what was forked and not played."""
        for episode in self.branches:
            episode.env.close()
        self.branches.clear()

    def _siblings(
        self,
        tasks: Sequence[Task],
        make: Callable[[], gym.Env[Any, Any]],
        over: Callable[[tuple[int, int], Trajectory], None],
    ) -> Iterator[_Episode]:
        """The trajectories of each task, each from a copy of one environment."""
        stems: Iterable[_Episode | None] = (
            self._stem(place, task, make) for place, task in enumerate(tasks)
        )
        golds: Sequence[Sequence[str] | None] = [None] * len(tasks)
        if self.probe is not None and self.probe.mismatch:
            stems = list(stems)  # other tasks' answers are known only when these have begun
            looks = [_deaf if stem is None else stem.env.get_wrapper_attr for stem in stems]
            golds = shifted([heard(look, "gold") for look in looks])
        for place, stem in enumerate(stems):
            for index in range(self.group):
                at = (place, index)
                last = index == self.group - 1
                twin = None if stem is None else self._twin(stem, at, self.key, last=last)
                if stem is None or twin is None:
                    over(at, _dead(stem, place))
                    continue
                if self.probe is not None:
                    twin.gain = self.probe.channel()
                    twin.look = looking(twin.env.get_wrapper_attr, golds[place])
                    twin.gain.hear(None, twin.prompt, {}, twin.look)
                    answers = _live(twin.gain).answers
                    twin.asked = self.probe.spelt(self.template, answers, twin.look)
                yield twin

    def _stem(
        self, number: int, task: Task, make: Callable[[], gym.Env[Any, Any]]
    ) -> _Episode | None:
        """A task that has begun; None where the machine died of it."""
        env = make()
        given = {"seed": task} if isinstance(task, int) else dict(task)
        try:
            obs, info = self._timed(lambda: env.reset(**given))
            if "headway" not in info:
                raise TypeError(
                    f"the environment must report info['headway'], got {sorted(info)} from {env}; "
                    "give it a reward layer, or wrap it in a subclass of headway.wrappers.Graded"
                )
            verdict = self._timed(lambda: measure(info["headway"], grader_of(env)))
        except SandboxDied:
            env.close()
            return None
        except BaseException:
            env.close()
            raise
        ids = self.template.head(obs)
        if len(ids) >= self.engine.context:
            env.close()
            raise ValueError(
                f"context must be more than the {len(ids)} tokens of the first observation of "
                f"{info.get('task_id', given)!r}, got {self.engine.context}"
            )
        stem = _Episode(
            at=(number, 0),
            env=env,
            stream=Stream(*self.key),
            task_id=info.get("task_id", ""),
            prompt=obs,
            start=_anchor(env, verdict),
            verdict=verdict,
            began=verdict.progress,
            progress=verdict.progress,
        )
        stem.add(ids)
        self.stems.append(stem)
        return stem

    def _twin(
        self, stem: _Episode, at: tuple[int, int], key: tuple[int | str, ...], *, last: bool
    ) -> _Episode | None:
        """A copy with a stream of its own; the last takes the environment itself.

        None where the machine died of it.
        """
        if last:
            self.stems.remove(stem)
        try:
            env = stem.env if last else self._timed(lambda: fork(stem.env))
        except SandboxDied:
            return None
        twin = replace(stem, at=at, env=env, stream=Stream(*key, *at))
        for name in ("ids", "mask", "logp", "turn", "turns"):
            setattr(twin, name, list(getattr(stem, name)))
        return twin

    def _feed(self, starting: Mapping[int, list[int]], waiting: Mapping[int, list[int]]) -> None:
        """Feeds what lanes have read, measures what they know now, and lets them write."""
        self.engine.start(starting)
        self.engine.feed(waiting)
        lanes = [*starting, *waiting]
        if self.shadow is not None:
            self._timed(partial(self._feed_blanked, starting, waiting), "scorer")
        self._measure(lanes)
        for lane in lanes:
            episode = self.lanes[lane]
            left = self.episode_tokens - episode.spent
            most = min(self.turn_tokens, left, self.engine.room(lane))
            # As many numbers a turn, whatever there is room for: the next turn has its own.
            luck = episode.stream.draw(self.turn_tokens)[:most]
            self.engine.write(lane, luck, self._taught(episode)[:most])

    def _feed_blanked(
        self, starting: Mapping[int, list[int]], waiting: Mapping[int, list[int]]
    ) -> None:
        """The same for the contexts in which no reply can be read."""
        assert self.shadow is not None
        self.shadow.start(starting)
        blank = {lane: self.lanes[lane].blank for lane in waiting}
        for lane, ids in list(blank.items()):
            if len(ids) > self.shadow.room(lane) or self.lanes[lane].lost:
                self.lanes[lane].lost = True
                del blank[lane]
        self.shadow.feed(blank)

    def _taught(self, episode: _Episode) -> list[int]:
        """What a teacher wants written; nothing where there is none."""
        if self.teacher is None:
            return []
        obs = episode.turns[-1].observation if episode.turns else episode.prompt
        return self.template.turn(self.teacher(episode.env, obs, len(episode.turns)))

    def _answered(self, lane: int, turn: Written) -> list[int]:
        """What a turn was answered with, as ids; none where the episode is over."""
        episode = self.lanes[lane]
        # A turn that was not ended by the policy, nor by its own limit, was ended by another one.
        out = not turn.stopped and len(turn.ids) < self.turn_tokens
        episode.add(turn.ids, turn.logp)
        action = CUT if out else self.template.text(turn.ids)
        obs = self._step(episode, action, not turn.stopped)
        if episode.ended == "died":
            return []
        reply = self.template.reply(obs, turn.stopped)
        episode.unread = reply if episode.ended != "no" else []
        if self.shadow is not None and episode.gain is not None:
            hidden = blanked(obs, _live(episode.gain).words)
            episode.blank = [*turn.ids, *self.template.reply(hidden, turn.stopped)]
        if episode.ended != "no":
            return []
        if len(reply) >= self.engine.room(lane) or episode.spent >= self.episode_tokens:
            self._pay(episode)  # what does not fit was not read: what is known is what it was
            self._step(episode, CUT, True)
            return []
        episode.add(reply)
        self._fork(episode)
        return reply

    def _step(self, episode: _Episode, action: str | Cut, cut: bool) -> str:
        """Plays a turn and writes it down; what the environment said."""
        env, text = episode.env, action if isinstance(action, str) else ""
        episode.cut = action is CUT
        turn = Turn(text, "", 0.0, {}, episode.progress, start=episode.start, cut=cut)
        try:
            obs, _, terminated, truncated, info = self._timed(lambda: env.step(action))
            record = info["headway"]
            episode.ended = "terminated" if terminated else "truncated" if truncated else "no"
            if episode.ended != "no":
                self._timed(lambda: measure(record, grader_of(env)))
            episode.verdict = record["verdict"] or episode.verdict
            episode.start = self._timed(lambda: _anchor(env, episode.verdict))
        except SandboxDied as death:
            episode.ended = "died"
            turn = replace(turn, status="no_verdict", unmeasured=f"died: {death}"[:200])
            episode.turns.append(turn)
            return ""
        calls = info.get("calls", ())
        turn = replace(
            turn,
            observation=str(obs),
            calls=len(calls),
            refused=sum(bool(call["error"]) for call in calls),
            **told(record, episode.progress),
        )
        episode.progress = turn.progress
        episode.turns.append(turn)
        if episode.gain is not None and episode.look is not None:
            episode.gain.hear(action, obs, info, episode.look)
        return turn.observation

    def _fork(self, episode: _Episode) -> None:
        """Keeps copies that are played to their end later."""
        place = episode.at[0] * self.group + episode.at[1]
        at = (place, len(episode.turns))
        for copy in range(self.continuations):
            twin = self._twin(episode, at, (*self.key, "value", copy), last=False)
            if twin is not None:
                self.branches.append(replace(twin, gain=None))

    def _measure(self, lanes: Sequence[int]) -> None:
        """Asks what is known in lanes that have begun, or read a reply, or are cut off by one."""
        if self.probe is None:
            return
        self._timed(partial(self._measured, lanes), "scorer")

    def _measured(self, lanes: Sequence[int]) -> None:
        new = {lane: self.lanes[lane] for lane in lanes}
        ask = [
            lane
            for lane, one in new.items()
            if one.asked and not one.cut and one.ended != "terminated"
        ]
        groups = {one.at[0]: lane for lane, one in new.items() if not one.turns}
        # Siblings begin alike: one of them is asked, and once.
        ask = [
            lane
            for lane in ask
            if new[lane].turns
            or (new[lane].at[0] not in self.known and groups[new[lane].at[0]] == lane)
        ]
        found = self._scores(ask)
        for lane in ask:
            scores = new[lane].known = found.get(lane, ())
            if not new[lane].turns:
                self.known[new[lane].at[0]] = scores
        for episode in new.values():
            if not episode.turns:
                episode.known = self.known.get(episode.at[0], ())
            self._pay(episode)

    def _scores(self, lanes: Sequence[int]) -> dict[int, list[list[float]]]:
        """For each context that is asked for, the mean log-probabilities of the answers.

        Nothing for a lane where one of them does not fit.
        """
        assert self.probe is not None
        kinds = {None: [False], "blank": [True], "subtract": [False, True]}[self.probe.control]
        found: dict[int, list[list[float]]] = {lane: [[] for _ in kinds] for lane in lanes}
        rounds = max((len(self.lanes[lane].asked) for lane in lanes), default=0)
        for answer in range(rounds):
            for place, hidden in enumerate(kinds):
                engine = self.shadow if hidden else self.engine
                assert engine is not None
                parts = {}
                for lane in lanes:
                    episode = self.lanes[lane]
                    if answer >= len(episode.asked) or lane not in found:
                        continue
                    ids, first = episode.asked[answer]
                    before = episode.unread
                    if hidden and before:
                        before = episode.blank
                    if (hidden and episode.lost) or len(before) + len(ids) > engine.spare(lane):
                        del found[lane]
                        continue
                    parts[lane] = ([*before, *ids], len(before) + first)
                for lane, score in engine.score(parts).items():
                    found[lane][place].append(score)
        return found

    def _pay(self, episode: _Episode) -> None:
        """Writes what the last turn was worth, by what is known now."""
        gain = episode.gain
        if gain is None:
            return
        _live(gain).scores = list(episode.known)
        if not episode.turns:
            gain.begin(episode.verdict)
            return
        ended: Any = episode.ended
        amount = gain.step(episode.verdict, episode.verdict, ended)
        last = episode.turns[-1]
        failed = [f"{gain.name}: {gain.failed}"] if gain.failed else []
        episode.turns[-1] = replace(
            last,
            channels={**last.channels, gain.name: amount},
            unmeasured="; ".join([*filter(None, [last.unmeasured]), *failed]),
        )

    def _timed(self, act: Callable[[], T], kind: str = "checks") -> T:
        """What ``act`` returns; its time is counted, also where it raises."""
        began = self.clock()
        try:
            return act()
        finally:
            self.seconds[kind] += self.clock() - began


def _anchor(env: gym.Env[Any, Any], verdict: Verdict) -> Hashable:
    """Key of a state: what the environment says, else which checks count."""
    try:
        anchor = env.get_wrapper_attr("anchor")
    except AttributeError:
        return frozenset(name for name, holds in verdict.ok.items() if holds)
    found: Hashable = anchor()
    return found


def _deaf(name: str) -> Any:
    """An environment that is not there tells nothing."""
    raise AttributeError(name)


def _dead(stem: _Episode | None, group: int) -> Trajectory:
    """A trajectory whose machine died before its first turn."""
    none = np.zeros(0, np.int32)
    return Trajectory(
        task_id="" if stem is None else stem.task_id,
        group=group,
        prompt="" if stem is None else stem.prompt,
        ids=none,
        mask=none.astype(np.bool_),
        logp=none.astype(np.float32),
        turn=none,
        ended="died",
    )


def _live(gain: Gain) -> Live:
    """The potential of a channel that a :class:`Probe` made."""
    assert isinstance(gain.signal, Live)
    return gain.signal


def _mean(outcomes: Sequence[bool]) -> float:
    return sum(outcomes) / len(outcomes) if outcomes else math.nan
