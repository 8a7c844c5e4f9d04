"""The turn loop: text in, tool calls run, the state graded, an observation out. Nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from headway.arguments import one_of, whole
from headway.envs.actions import (
    FORMATS,
    NO_TOOLS,
    BadCall,
    ToolCall,
    format_calls,
    parse_action,
)
from headway.envs.box import Box, Reply, SandboxDied
from headway.envs.contract import Certificate, certify
from headway.envs.domain import Domain, Numeric, Reader, Slot, load
from headway.envs.render import Instance
from headway.envs.rng import Rng
from headway.envs.spaces import CUT, Cut, TextSpace
from headway.envs.task import DIFFICULTIES, SPLITS, TaskKey, digest_of
from headway.envs.tools import describe
from headway.envs.wording import cut
from headway.verifiers import UNFINISHED, Checks, Grader, Verdict, blank
from headway.verifiers.check import changes

KEEP = 64
"""Certified tasks an environment remembers, so that siblings of a group are proved once."""

OVER = "The episode is over."

UNSEEN = "The reply is not shown."
"""What every reply of a tool says in a blind episode."""

LEAST = 80
"""Characters that every reply of a turn gets, however much the ones before it took."""

STATE = ("task_id", "turn", "ended", "box", "np_random")

OPTIONS = ("task_id", "template", "difficulty", "rendering", "split")


class ToolEnv(gym.Env[str, str | Cut]):
    """A world of one domain, played by tool calls as text.

    Action: text that holds tool calls in the chosen format (see ``headway.envs.tools``), or
    ``headway.CUT``, which ends the episode from outside (a context is full, a budget is spent).
    Observation: at reset the instruction, the tools and the turns left; then what the calls
    returned, one reply a call and in their order, and the turns left.
    Reward: 1.0 on a successful end, else 0.0. Wrappers add the dense rewards.
    Ends: terminated by ``submit``, successful or not, and by success on the last turn; else
    truncated on the last turn or a cut. The turn limit is the task's own.
    Errors: a bad call is answered in the observation and costs the turn; ``step`` raises on no
    text. ``SandboxDied`` is the machine's failure and leaves the episode without a result.

    Args:
        domain: A :class:`Domain` or ``"module:attribute"``.
        difficulty: 1 to 5.
        template: Name of a template; None draws one for each seed.
        rendering: One of ``domain.renderings``, see ``headway.envs.render``.
        split: ``"train"``, ``"dev"`` or ``"test"``.
        action_format: ``"json"``, ``"hermes"`` or ``"command"``, see
            :func:`headway.envs.actions.parse_action`.
        ends_on: ``"submit"``, which tells nothing about the checks, or ``"success"``, which also
            ends the episode on the first successful state (classic RL).
        seeds: ``(first, count)``: unseeded resets draw from these seeds only, and the environment
            remembers their proofs, for learners that need many short episodes. None draws from all.
        blind: Replies are replaced by a fixed text and nothing counts as seen: the control that
            shows what an agent knows without looking. What the agent got wrong itself (text that
            is no call, a call after the submission) and a request to call again are still told;
            there is no numeric view.
        manual: Whether the first observation explains the tools. False is for agents that get
            them elsewhere (:attr:`tools`) or know them by heart.

    Raises:
        ValueError: An argument is outside its range.
        ModuleNotFoundError: The domain needs an extra that is not installed.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own annotation

    def __init__(
        self,
        domain: str | Domain,
        *,
        difficulty: int = 1,
        template: str | None = None,
        rendering: int = 2,
        split: str = "train",
        action_format: str = "json",
        ends_on: str = "submit",
        seeds: Sequence[int] | None = None,
        blind: bool = False,
        manual: bool = True,
    ) -> None:
        self.domain = load(domain)
        self.domain.check_installed()
        self.action_format: str = one_of("action_format", action_format, FORMATS)
        self.ends_on: str = one_of("ends_on", ends_on, ("submit", "success"))
        self.blind: bool = one_of("blind", blind, (False, True))
        self.manual: bool = one_of("manual", manual, (False, True))
        self._seeds = (0, 2**31) if seeds is None else _seed_range(seeds)
        self._keep = KEEP if seeds is None else max(KEEP, len(DIFFICULTIES) * self._seeds[1])
        self._defaults = self._check(
            {
                "template": template,
                "difficulty": difficulty,
                "rendering": rendering,
                "split": split,
            }
        )
        self.action_space = TextSpace(cut=True)
        self.observation_space = TextSpace()
        self._certified: dict[TaskKey, tuple[Instance, Certificate]] = {}
        self._instance: Instance | None = None
        self._certificate: Certificate | None = None
        self._verdict: Verdict | None = None
        self._lost: Verdict | None = None
        self._reader: Reader | None = None
        self._spoken: dict[Slot, str] = {}
        self._calls: list[dict[str, Any]] = []
        self._ended = True

    # Gymnasium's interface.

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts the task that ``seed`` names, or the one of ``options["task_id"]``.

        Args:
            seed: At least 0. The same seed gives the same bytes in every process; None draws the
                seed from ``np_random``, so unseeded resets after a seeded one repeat too.
            options: ``task_id``, or any of ``template``, ``difficulty``, ``rendering``, ``split``
                for this episode only.

        Raises:
            ValueError: An option is unknown or outside its range.
            UnsoundTask: The generator made a task that fails the contract.
        """
        asked = self._asked(options or {})
        super().reset(seed=seed)
        task_seed = self._drawn() if seed is None else int(seed)
        self._begin(asked if isinstance(asked, TaskKey) else self._key(asked, task_seed))
        instance = self.instance
        parts = [instance.task.instruction, self._turns_left()]
        if self.manual:
            parts.insert(1, describe(list(instance.toolbox.values()), self.action_format))
        return "\n\n".join(parts), self._info(0.0, None)

    def step(self, action: str | Cut) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Runs the calls in ``action``.

        Raises:
            ResetNeeded: The episode is over.
            TypeError: ``action`` is neither text nor ``CUT``.
            SandboxDied: The machine failed.
        """
        if self._ended:
            raise gym.error.ResetNeeded("no episode is running; call reset() before step()")
        if action is not CUT and not isinstance(action, str):
            raise TypeError(f"action must be str or headway.CUT, got {type(action).__name__}")
        self._turn += 1
        self._calls = []
        try:
            text = "Cut from outside." if isinstance(action, Cut) else self._act(action)
        except SandboxDied as death:
            self._ended = True
            if death.by == "infra":
                raise
            return self._destroyed(death)
        submitted = bool(self.box.table("submission"))
        task = self.instance.task
        last = action is CUT or self._turn >= task.max_turns
        if last and not submitted:
            self.box.put("submission", "end", {"answer": ""})
        verdict = self.grade() if submitted or last or self.ends_on == "success" else None
        success = verdict is not None and verdict.success
        terminated = submitted or (success and (last or self.ends_on == "success"))
        truncated = last and not terminated
        self._ended = terminated or truncated
        reward = 1.0 if self._ended and success else 0.0
        tail = OVER if self._ended else self._turns_left()
        return f"{text}\n{tail}", reward, terminated, truncated, self._info(reward, verdict)

    def close(self) -> None:
        """Gives back what the box holds; harmless when called again."""
        if self._instance is not None:
            self.box.close()

    # What wrappers, agents and trainers use.

    @property
    def instance(self) -> Instance:
        """The running task with the world behind it; not for agents.

        Raises:
            ResetNeeded: Nothing is running yet.
        """
        if self._instance is None:
            raise gym.error.ResetNeeded("no task is running; call reset() first")
        return self._instance

    @property
    def certificate(self) -> Certificate:
        """What was proved of the running task.

        Raises:
            ResetNeeded: Nothing is running yet.
        """
        if self._certificate is None:
            raise gym.error.ResetNeeded("no task is running; call reset() first")
        return self._certificate

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools' schemas in OpenAI function format."""
        return [tool.schema() for tool in self.instance.toolbox.values()]

    def grade(self) -> Verdict:
        """The verdict on the present state, computed at most once a state.

        Raises:
            ResetNeeded: Nothing is running yet.
        """
        if self._instance is None:
            raise gym.error.ResetNeeded("nothing can be graded yet; call reset() first")
        if self._lost is not None:
            return self._lost
        verdict = self._grader(self.box)
        if verdict.status == "ok":
            self._verdict = verdict
        return verdict

    def gold(self) -> tuple[str, ...]:
        """Right answers of the running task; none where it asks no question. Not for agents."""
        secret = self.instance.world.secrets.get("answer")
        return () if secret is None else (secret.value,)

    def reference(self) -> list[dict[str, Any]]:
        """One right sequence of calls, each ``{"tool", "args"}``; not for agents."""
        actions = (action for step in self.instance.plan for action in step.actions)
        return [{"tool": action.tool, "args": dict(action.args)} for action in actions]

    def anchor(self) -> str:
        """Digest of what differs from the reset, evidence included: equal in equal states."""
        box = self.box
        names = (*box.names(), *self.domain.unjudged, "seen", "submission")
        found = [change for n in names for change in changes(n, box.start.table(n), box.table(n))]
        return digest_of(sorted([c.table, c.key, c.kind, c.row] for c in found))

    def solution(self) -> list[str]:
        """Actions that solve the task from its start, one call each; for tests and baselines."""
        return [self.format(a.tool, a.args) for a in self.instance.solution()]

    def format(self, tool: str, args: Mapping[str, Any]) -> str:
        """One call as an action text; before the first reset one that names all arguments."""
        tools = NO_TOOLS if self._instance is None else self._instance.toolbox
        return format_calls([ToolCall(tool, args)], self.action_format, tools)

    def actions(self) -> list[str]:
        """Action texts of the numeric view, one a slot; slot i is the same action in every state.

        A call that is not possible now is among them, and is answered with an error. Where only
        ``submit`` ends an episode, it is the last.

        Raises:
            TypeError: The domain has no numeric view.
            ResetNeeded: Nothing is running yet.
        """
        self._view()
        texts, spoken = [], self._spoken
        for slot in self._read().actions(self.box):
            text = spoken.get(slot)
            if text is None:
                text = spoken[slot] = self.format(slot.tool, slot.args)
            texts.append(text)
        if self.ends_on == "submit":
            asked = {"answer": ""} if self.instance.world.question else {}
            texts.append(self.format("submit", asked))
        return texts

    def mask(self) -> NDArray[np.bool_]:
        """Which of :meth:`actions` are possible now, shape (n,); none where no episode is running.

        Raises:
            TypeError: The domain has no numeric view.
        """
        slots = len(self._view().slots)
        out = np.zeros(slots + (self.ends_on == "submit"), np.bool_)
        if not self._ended:
            out[:slots] = self._read().mask(self.box)
            out[slots:] = True
        return out

    def features(self) -> NDArray[np.float32]:
        """The state, the goal and the share of turns left as numbers in [0, 1], shape (m,).

        All 0 before the first reset.

        Raises:
            TypeError: The domain has no numeric view.
        """
        out = np.zeros(self._view().size + 1, np.float32)
        if self._instance is not None:
            self._read().features(self.box, out[:-1])
            out[-1] = 1 - self._turn / self._instance.task.max_turns
        return out

    def get_state(self) -> dict[str, Any]:
        """The episode as plain data; any process with the same domain can take it up."""
        return {
            "task_id": self.instance.task.id,
            "turn": self._turn,
            "ended": self._ended,
            "box": self.box.get_state(),
            "np_random": copy.deepcopy(self.np_random.bit_generator.state),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up an episode that :meth:`get_state` returned.

        Raises:
            ValueError: ``state`` is not such a state; the running episode goes on.
        """
        if not isinstance(state, Mapping) or set(state) != set(STATE):
            raise ValueError(f"state must have the keys {list(STATE)}, got {state!r:.100}")
        key = self._known(state["task_id"])
        most = self._proved(key)[0].task.max_turns
        turn, ended = state["turn"], state["ended"]
        if type(turn) is not int or not 0 <= turn <= most or type(ended) is not bool:
            raise ValueError(
                f"turn must be an int in [0, {most}] and ended a bool, got {turn!r} and {ended!r}"
            )
        stream = copy.deepcopy(self.np_random)
        try:
            stream.bit_generator.state = copy.deepcopy(state["np_random"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"np_random must be the state of a stream: {error!r}") from error
        self._open(self._proved(key)[0]).set_state(state["box"])
        self._begin(key)
        self.box.set_state(state["box"])
        self._turn, self._ended, self.np_random = turn, ended, stream

    def __deepcopy__(self, memo: dict[int, Any]) -> ToolEnv:
        """A sibling in mid-episode: box, streams, counters; tasks are shared."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = dict(self.__dict__)
        twin._certified = dict(self._certified)
        twin._np_random = copy.deepcopy(self._np_random)
        twin.action_space = copy.deepcopy(self.action_space)
        twin.observation_space = copy.deepcopy(self.observation_space)
        if self._instance is not None:
            twin.box, twin._grader = self.box.fork(), self._grader.copy()
        return twin

    # How it is done.

    def _asked(self, options: Mapping[str, Any]) -> TaskKey | dict[str, Any]:
        """What the options ask for: one task, or the settings from which a seed draws one."""
        for name in options:
            one_of("options key", name, OPTIONS)
        if "task_id" not in options:
            return self._check({**self._defaults, **options})
        if len(options) > 1:
            raise ValueError(f"options must be task_id alone or others, got {sorted(options)}")
        return self._known(options["task_id"])

    def _drawn(self) -> int:
        """The seed of an unseeded reset."""
        first, count = self._seeds
        return first + int(self.np_random.integers(count))

    def _key(self, want: Mapping[str, Any], seed: int) -> TaskKey:
        """The first attempt at the task of a seed."""
        names = self.domain.template_names(want["split"])
        template = want["template"] or Rng(self.domain.name, "template", seed).choice(names)
        return TaskKey(
            domain=self.domain.name,
            version=self.domain.version,
            template=template,
            difficulty=want["difficulty"],
            rendering=want["rendering"],
            split=want["split"],
            seed=seed,
        )

    def _known(self, task_id: str) -> TaskKey:
        """The first attempt at the task of an id, which must be the attempt that is certified."""
        key = TaskKey.parse(task_id)
        if (key.domain, key.version) != (self.domain.name, self.domain.version):
            raise ValueError(
                f"task_id must be of {self.domain.name}-v{self.domain.version}, got {task_id!r}"
            )
        fields = ("template", "difficulty", "rendering", "split")
        self._check({name: getattr(key, name) for name in fields})
        first = replace(key, attempt=0)
        found = self._proved(first)[0].task
        if found.key != key:
            raise ValueError(
                f"task_id {task_id!r} is not certified; seed {key.seed} gives {found.id!r}"
            )
        return first

    def _proved(self, key: TaskKey) -> tuple[Instance, Certificate]:
        """The certified task of a key, remembered while it is among the latest."""
        proved = self._certified.pop(key, None) or certify(self.domain, key)
        if len(self._certified) >= self._keep:
            del self._certified[next(iter(self._certified))]
        self._certified[key] = proved
        return proved

    def _begin(self, key: TaskKey) -> None:
        proved = self._proved(key)
        self.close()
        self._instance, self._certificate = proved
        self.box = self._open(self._instance)
        self._grader = Grader(self._instance.task.acceptance, self.domain.kinds)
        self._verdict = self._lost = self._reader = None
        self._spoken = {}
        self._turn, self._ended, self._calls = 0, False, []

    def _view(self) -> Numeric:
        if self.blind:
            raise TypeError("a blind environment has no numeric view, which would show the state")
        if self.domain.view is None:
            raise TypeError(
                f"domain {self.domain.name} has no numeric view; `headway list` names those that do"
            )
        return self.domain.view

    def _read(self) -> Reader:
        """The reader of the running task."""
        if self._reader is None:
            self._reader = self._view().read(self.instance.world)
        return self._reader

    def _open(self, instance: Instance) -> Box:
        """A fresh box of the task."""
        return instance.open()

    def _destroyed(self, death: SandboxDied) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The end that the agent brought about: no success, and the progress verified last."""
        instance = self.instance
        last = self._verdict or self._grader.copy()(instance.open())
        progress = min(UNFINISHED, last.progress)
        self._lost = replace(last, success=False, progress=progress)
        text = cut(str(death), instance.task.max_obs_chars)
        return f"{text}\n{OVER}", 0.0, True, False, self._info(0.0, self._lost)

    def _check(self, want: Mapping[str, Any]) -> dict[str, Any]:
        split = one_of("split", want["split"], SPLITS)
        names = self.domain.template_names(split)
        return {
            "template": None
            if want["template"] is None
            else one_of(f"template (in split {split!r})", want["template"], names),
            "difficulty": one_of("difficulty", want["difficulty"], DIFFICULTIES),
            "rendering": one_of("rendering", want["rendering"], self.domain.renderings),
            "split": split,
        }

    def _act(self, action: str) -> str:
        """Runs the calls of a turn; calls after a submission are not run."""
        calls = parse_action(action, self.action_format, self.instance.toolbox)
        room = self.instance.task.max_obs_chars
        replies = []
        for number, call in enumerate(calls, 1):
            tool, args = (None, {}) if isinstance(call, BadCall) else (call.tool, call.args)
            if self.box.table("submission"):
                reply = Reply("Not run: the work was already submitted.", error=True)
            elif isinstance(call, BadCall):
                reply = Reply(f"Error: {call.error}", error=True)
            else:
                reply = self.box.call(call.tool, call.args)
                if self.blind and not reply.retry:
                    reply = Reply(UNSEEN, error=reply.error)
            self._calls.append({"tool": tool, "args": args, "error": reply.error})
            text = f"[{number}] {reply.text}" if len(calls) > 1 else reply.text
            shown = cut(text, max(LEAST, room - LEAST * (len(calls) - number)))
            room -= len(shown)
            # Evidence counts only if the text really reached the agent, whole.
            if shown == text:
                self.box.observe(reply.seen)
            replies.append(shown)
        return "\n".join(replies)

    def _turns_left(self) -> str:
        return f"Turns left: {self.instance.task.max_turns - self._turn}."

    def _info(self, reward: float, verdict: Verdict | None) -> dict[str, Any]:
        self.outcome = reward
        record = blank(reward)
        if verdict is not None:
            record["verdict"], record["status"] = verdict, verdict.status
            if verdict.status == "ok":
                record["phi"][Checks.name] = verdict.progress
        return {
            "task_id": self.instance.task.id,
            "turn": self._turn,
            "calls": self._calls,
            "headway": record,
        }


def _seed_range(seeds: Sequence[int]) -> tuple[int, int]:
    """``(first, count)``.

    Raises:
        ValueError: It is no such pair.
    """
    if not isinstance(seeds, list | tuple) or len(seeds) != 2:
        raise ValueError(f"seeds must be (first, count), got {seeds!r}")
    return whole("first of seeds", seeds[0], 0), whole("count of seeds", seeds[1], 1)
