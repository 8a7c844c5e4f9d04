"""A person at a terminal as an agent: short calls, help, and the checks for those who peek."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from headway.agents.scripted import own
from headway.arguments import nearest
from headway.envs.actions import ToolCall
from headway.envs.tool_env import ToolEnv
from headway.envs.tools import Tool, ToolError, describe, unknown_tool
from headway.verifiers import Verdict

HELP = """\
Write a call:  tool name=value ...      mail_search query="team lunch"
  tool(name=value, ...) will do too, and where a tool takes one value, the value alone.
  Quote what holds spaces or quotes; separate the items of a list by commas. A line that begins
  with { [ or < goes to the environment as it stands: use JSON for texts of several lines.
:task      the instruction again
:tools     what can be called
:progress  which checks count by now; this is cheating, an agent never sees it
:help      this text
:quit      leave; so do Ctrl-D and Ctrl-C"""

COMMANDS = (":task", ":tools", ":progress", ":help", ":quit")

BARE = ("task", "tools", "help", "quit")
"""Commands that need no colon where no tool has the name; cheating needs one."""

RAW = ("{", "[", "<")
"""How a line begins that is an action already."""


class Left(Exception):
    """The person does not want to go on."""


class Person:
    """Shows each observation, and reads lines until one of them is an action."""

    def __init__(self) -> None:
        self.peeked = 0
        self._env: ToolEnv | None = None

    def reset(self, env: gym.Env[Any, Any], obs: str) -> None:
        """Begins an episode.

        Raises:
            TypeError: ``env`` is not a headway environment.
        """
        self._env = own(env)
        self.peeked = 0
        with contextlib.suppress(ImportError):  # line editing, where the platform has it
            import readline  # noqa: F401

    def act(self, obs: str) -> str:
        """The next action.

        Raises:
            Left: The input ended, or the person left.
            ResetNeeded: No episode has begun.
        """
        if self._env is None:
            raise gym.error.ResetNeeded("no episode has begun; call reset(env, obs) before act()")
        print(obs)
        while True:
            action = self._read(self._env, self._line())
            if action is not None:
                return action

    def _line(self) -> str:
        try:
            return input("\n> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            raise Left from None

    def _read(self, env: ToolEnv, line: str) -> str | None:
        """The action in a line, or None when there is none; what is wrong with it is printed."""
        if line in BARE and line not in env.instance.toolbox:
            line = f":{line}"
        if line.startswith(":"):
            self._command(env, line)
        elif line.startswith(RAW):
            return line
        elif line:
            try:
                call = parse_line(line, env.instance.toolbox)
            except ToolError as error:
                print(f"Not sent, no turn is spent: {error}")
            else:
                return env.format(call.tool, call.args)
        return None

    def _command(self, env: ToolEnv, line: str) -> None:
        if line == ":quit":
            raise Left
        if line == ":task":
            print(env.instance.task.instruction)
        elif line == ":tools":
            print(describe(list(env.instance.toolbox.values()), env.action_format))
        elif line == ":progress":
            self.peeked += 1
            print("Cheating: an agent never sees this.", told_of(env.grade()), sep="\n")
        elif line == ":help":
            print(HELP)
        else:
            known = ", ".join(COMMANDS)
            print(f"no command {line!r}{nearest(line, COMMANDS)} The commands are {known}.")


def parse_line(line: str, tools: Mapping[str, Tool]) -> ToolCall:
    """The call that ``tool name=value ...`` means, its values read by the schema of the tool.

    Words are split as in a shell; the items of a list are separated by commas; ``null`` is null
    where the schema has it. ``tool(name=value, ...)`` means the same, but there commas separate
    arguments, so a list is quoted. A tool of one parameter takes the value alone, too.

    Raises:
        ToolError: It is not such a line, or the tool does not take it.
    """
    name, *pairs = _words(line) or [""]
    if name not in tools:
        raise ToolError(unknown_tool(name, tools))
    schemas = tools[name].parameters["properties"]
    if pairs and len(schemas) == 1 and not any("=" in pair for pair in pairs):
        pairs = [f"{next(iter(schemas))}={' '.join(pairs)}"]
    args: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ToolError(f"expected name=value after {name}, got {pair!r}")
        if key in args:
            raise ToolError(f"{key} is given twice")
        args[key] = _value(text, schemas.get(key, {"type": "string"}))
    tools[name].bind(args)
    return ToolCall(name, args)


def _words(line: str) -> list[str]:
    """The tool and its arguments."""
    called = re.fullmatch(r"(\w+)\s*\((.*)\)", line, re.DOTALL)
    words = shlex.shlex(called[2] if called else line, posix=True)
    words.whitespace_split, words.commenters = True, ""
    if called:
        words.whitespace += ","
    try:
        return [called[1], *words] if called else [*words]
    except ValueError as error:
        raise ToolError(f"{str(error).lower()}; put quotes around values that hold one") from None


def told_of(verdict: Verdict) -> str:
    """A verdict for a person."""
    if verdict.status != "ok":
        return f"No verdict: {verdict.reason}"
    lines = [f"progress {verdict.progress:.3f}"]
    lines += [f"  [{'x' if counts else ' '}] {name}" for name, counts in verdict.ok.items()]
    lines += [f"  damage: {violation}" for violation in verdict.violations]
    return "\n".join(lines)


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """What a text means under a schema; what it cannot mean stays text, which the tool refuses."""
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if text == "null" and "null" in kinds:
        return None
    if kinds[0] == "array":
        return [_value(item, schema["items"]) for item in text.split(",")] if text else []
    readers = {"integer": int, "number": float, "boolean": {"true": True, "false": False}.get}
    try:
        read = readers.get(kinds[0], str)(text)  # type: ignore[operator]
    except ValueError:
        return text
    return text if read is None else read
