"""Two seats over one world, an agent and the user it asks. Needs ``headway[multi]``."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from headway.arguments import one_of
from headway.envs.actions import MAX_ACTION
from headway.envs.box import Box
from headway.envs.contract import stands
from headway.envs.domain import Domain
from headway.envs.render import Instance
from headway.envs.spaces import CUT, Cut, TextSpace
from headway.envs.submit import ASK_USER
from headway.envs.tool_env import ToolEnv
from headway.envs.tools import ToolError
from headway.envs.user import answer
from headway.verifiers import Verdict
from headway.verifiers.kinds.text import read_token, tidy, tokens

try:
    from pettingzoo import AECEnv  # type: ignore[import-untyped]
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "headway.envs.duo needs pettingzoo, the extra headway[multi]: pip install pettingzoo"
    ) from missing

AGENT, USER = "agent", "user"


class Text(str):
    """A text that names its dtype, which PettingZoo's ``api_test`` asks of every observation."""

    dtype = np.dtype(str)


class Duo(AECEnv[str, str, "str | Cut | None"]):  # type: ignore[misc]  # untyped, so Any
    """A vague request (R4), played by an ``agent`` and the ``user`` who made it.

    The agent acts as in :class:`~headway.envs.tool_env.ToolEnv` and is selected until it calls
    ``ask_user``. Then the user is selected, once for each question of the turn, and what it says
    is the reply that the agent observes. A fact counts as told when a reply holds the text of its
    clause, or all the values in it if no other clause holds them too.

    Action: text or ``headway.CUT`` from either seat; None from a seat that is done.
    Observation: the agent's as in ToolEnv. The user's is JSON: the ``request``, what is ``known``
    (by topic the ``text`` and the words by which one may ``ask`` for it) and the ``question``,
    empty while there is none. It never sees what the tools returned.
    Reward: 1.0 for both seats on a successful end, else 0.0.
    Ends: for both seats at once, as in ToolEnv. Only the agent's turns count.
    Errors: no text raises, from either seat.

    Args:
        domain: A :class:`Domain` or ``"module:attribute"``.
        **kwargs: For :class:`~headway.envs.tool_env.ToolEnv`; ``rendering`` can only be 4.

    Raises:
        ValueError: An argument is outside its range.
    """

    metadata: dict[str, Any] = {"name": "Duo", "render_modes": []}  # noqa: RUF012  # PettingZoo's
    render_mode = None

    def __init__(self, domain: str | Domain, **kwargs: Any) -> None:
        super().__init__()
        self.desk = _Desk(domain, **{"rendering": 4, **kwargs})
        world = self.desk.domain
        self.metadata = {**self.metadata, "name": f"{world.name}Duo-v{world.version}"}
        self.possible_agents = [AGENT, USER]
        self.agents: list[str] = []
        self._sights = {seat: TextSpace(MAX_ACTION) for seat in self.possible_agents}
        self._moves = {seat: TextSpace(MAX_ACTION, cut=True) for seat in self.possible_agents}

    def observation_space(self, agent: str) -> TextSpace:
        """Texts of at most ``MAX_ACTION`` characters."""
        return self._sights[one_of("agent", agent, self.possible_agents)]

    def action_space(self, agent: str) -> TextSpace:
        """Texts of at most ``MAX_ACTION`` characters, and the cut; longer ones are answered too."""
        return self._moves[one_of("agent", agent, self.possible_agents)]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts a task as ToolEnv does; the agent moves first.

        Raises:
            ValueError: An option is unknown or outside its range.
        """
        # PettingZoo's api_test passes {"options": 1} to see whether options may be given at all.
        given = {name: value for name, value in (options or {}).items() if name != "options"}
        text, info = self.desk.reset(seed=seed, options=given)
        self.agents = list(self.possible_agents)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._skip_agent_selection: str | None = None
        self._back_to_agent(text, 0.0, False, False, info)

    def step(self, action: str | Cut | None) -> None:
        """The selected seat's move.

        Raises:
            ResetNeeded: The episode is over for both seats.
            TypeError: ``action`` is neither text nor ``CUT`` and the seat is not done.
            ValueError: The seat is done and ``action`` is not None.
            SandboxDied: The machine failed.
        """
        if not self.agents:
            raise gym.error.ResetNeeded("the episode is over; call reset() before step()")
        seat = self.agent_selection
        if self.terminations[seat] or self.truncations[seat]:
            self._was_dead_step(action)
            return
        if action is not CUT and not isinstance(action, str):
            raise TypeError(f"action must be str or headway.CUT, got {type(action).__name__}")
        if seat == USER and isinstance(action, str):
            self.desk.hear(action)
        else:
            self._turn = action
        before = copy.deepcopy(self.desk)
        result = self.desk.step(self._turn)
        question = self.desk.open_question()
        if question is None:
            self._back_to_agent(*result)
        else:
            # As if nothing had been run yet: the turn is run again, with the user's reply.
            self.desk = before
            self._wait_for_user(question)

    def observe(self, agent: str) -> str:
        """What a seat sees.

        Raises:
            ResetNeeded: Nothing is running yet.
            ValueError: There is no such seat.
        """
        task = self.desk.instance.task
        if one_of("agent", agent, self.possible_agents) == AGENT:
            return Text(self._text)
        view = {
            "request": task.instruction,
            "known": self.desk.box.table("user"),
            "question": self._question,
        }
        return Text(json.dumps(view, ensure_ascii=False))

    def grade(self) -> Verdict:
        """The verdict on the present state; a turn that waits for the user has changed nothing."""
        return self.desk.grade()

    def solution(self) -> list[str]:
        """The agent's actions that solve the task if the user tells what it is asked."""
        return self.desk.solution()

    def close(self) -> None:
        """Gives back what the box holds; harmless when called again."""
        self.desk.close()

    def _back_to_agent(
        self, text: str, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> None:
        self._text, self._question, self._info = text, "", info
        self.agent_selection = AGENT
        self._tell(reward, terminated, truncated)

    def _wait_for_user(self, question: str) -> None:
        self._question = question
        self.agent_selection = USER
        self._tell(0.0, False, False)

    def _tell(self, reward: float, terminated: bool, truncated: bool) -> None:
        self.rewards = dict.fromkeys(self.agents, reward)
        self.terminations = dict.fromkeys(self.agents, terminated)
        self.truncations = dict.fromkeys(self.agents, truncated)
        self.infos = {seat: copy.deepcopy(self._info) for seat in self.agents}
        self._accumulate_rewards()  # nothing is paid before the end, so nothing is there to clear


class ScriptedUser:
    """The user of the single-agent environment, as a policy for the ``user`` seat."""

    def act(self, obs: str) -> str:
        """The reply to the question in ``obs``."""
        view = json.loads(obs)
        text, _ = answer(view["known"], view["question"])
        return text


class _Desk(ToolEnv):
    """The agent's environment, with a user who answers from outside.

    The talk stands in two tables of the box, ``questions`` and ``replies``, under the same
    numbers, so whatever copies or restores the box keeps it.
    """

    def open_question(self) -> str | None:
        """The first question without a reply."""
        replies = self.box.table("replies")
        rows = self.box.table("questions").items()
        return next((row["text"] for number, row in rows if number not in replies), None)

    def hear(self, text: str) -> None:
        """Takes the reply to the question that was asked last."""
        number = str(len(self.box.table("replies")))
        self.box.put("replies", number, {"text": text, "told": _told(text, self.instance)})

    def _open(self, instance: Instance) -> Box:
        return instance.open(ask_user=_ASK_SEAT)

    def _check(self, want: Mapping[str, Any]) -> dict[str, Any]:
        one_of("rendering", want["rendering"], (4,))
        return super()._check(want)


def _ask(box: Box, question: str) -> str:
    """Notes the question and returns the reply; nothing while the user has not spoken."""
    if not question.strip():
        raise ToolError("question must not be empty")
    number = str(len(box.table("questions")))
    box.put("questions", number, {"text": question})
    reply = box.table("replies").get(number, {"text": "", "told": []})
    box.saw(*(f"user/{topic}" for topic in reply["told"]))
    return str(reply["text"])


_ASK_SEAT = replace(ASK_USER, function=_ask)


def _told(text: str, instance: Instance) -> list[str]:
    """Topics that ``text`` really tells."""
    said, told = tidy(text), []
    texts = {clause.id: tidy(clause.text) for clause in instance.task.clauses}
    for clause in (c for c in instance.task.clauses if c.place == "user"):
        values = [clause.text[start:end] for _, start, end in clause.slots]
        # Values that another clause holds as well do not say which of the two is meant.
        others = (other for name, other in texts.items() if name != clause.id)
        telling = values and not any(_hold_all(other, values) for other in others)
        if texts[clause.id] in said or (telling and _hold_all(said, values)):
            told.append(clause.id)
    return told


def _hold_all(text: str, values: Sequence[str]) -> bool:
    """Whether all ``values`` stand in ``text``: dates, times and numbers in any notation."""
    return all(
        token in tokens(text)
        if (token := read_token(value)) is not None
        else stands(tidy(value).casefold(), text.casefold())
        for value in values
    )
