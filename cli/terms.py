"""What stands on the command line: ids, agents, numbers, and what is said when they are wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import gymnasium as gym

from headway.agents import AGENTS
from headway.agents.evaluate import maker
from headway.arguments import nearest, number
from headway.envs import DOMAINS
from headway.envs.domain import Domain, load

MOST = 10**9
"""No count and no seed is above it; processes are fewer."""


MOST_JOBS = 1024


OWN = "module:ATTRIBUTE for a Domain, module:ID for a registered id of your own"


def environment_id(text: str) -> str:
    """The id that a person means: the newest version where none is named."""
    if ":" in text:
        with theirs(text):
            load(where(text))
        return text
    ids = {}
    for id in DOMAINS:
        short = id.removeprefix("headway/")
        ids.update({short.rpartition("-v")[0]: id, short: id, id: id})
    if text not in ids:
        raise argparse.ArgumentTypeError(f"no environment {text!r}; {nearest_of(text, ids)}")
    return ids[text]


def where(id: str) -> str | Domain:
    """Where the domain of an id is to be found."""
    if id in DOMAINS:
        return DOMAINS[id]
    module, _, name = id.partition(":")
    if name.isidentifier():
        return id
    import_module(module)
    domain: str | Domain | None = gym.spec(name).kwargs.get("domain")
    if domain is None:
        raise ValueError(
            f"{name!r} is no headway environment: register it with the entry point "
            "'headway.envs.tool_env:ToolEnv' and kwargs={'domain': ...}"
        )
    return domain


def agent(text: str) -> str:
    if ":" not in text:
        return str(one_of(tuple(AGENTS))(text))
    with theirs(text):
        maker(text)
    return text


@contextmanager
def theirs(text: str) -> Iterator[None]:
    """Looks for what the user wrote, in the current folder too; what goes wrong is wrong usage."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        yield
    except Exception as error:  # their module may raise anything
        said = f"cannot use {text!r}: {type(error).__name__}: {error}"
        raise argparse.ArgumentTypeError(said) from error


def nearest_of(text: str, names: Iterable[str]) -> str:
    names = list(names)
    return nearest(text, names).removeprefix("; ") or f"choose from {', '.join(names)}"


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:  # no number, or one of thousands of digits
            value = least - 1
        if not least <= value <= most:
            said = f"must be an int from {least} to {most}, got {text[:40]!r}"
            raise argparse.ArgumentTypeError(said)
        return value

    return read


def gamma(text: str) -> float:
    try:
        return number("gamma", float(text), "(0, 1]")
    except ValueError:
        said = f"must be a number in (0, 1], got {text[:40]!r}"
        raise argparse.ArgumentTypeError(said) from None


def temperature(text: str) -> float:
    """A number of at least 0."""
    try:
        return number("temperature", float(text), "[0, inf)")
    except ValueError:
        said = f"must be a number of at least 0, got {text[:40]!r}"
        raise argparse.ArgumentTypeError(said) from None


def one_of(allowed: Sequence[Any]) -> Callable[[str], Any]:
    names = {str(value): value for value in allowed}

    def read(text: str) -> Any:
        if text not in names:
            said = f"must be one of {', '.join(names)}, got {text!r}{nearest(text, names)}"
            raise argparse.ArgumentTypeError(said)
        return names[text]

    return read


def check(args: argparse.Namespace, name: str, value: str, allowed: Sequence[str]) -> None:
    """Ends with wrong usage where a value depends on what only the command knows."""
    try:
        one_of(allowed)(value)
    except argparse.ArgumentTypeError as error:
        args.parser.error(f"argument {name}: {error}")


def refuse(args: argparse.Namespace, why: str) -> NoReturn:
    """Ends with wrong usage."""
    args.parser.error(why)
    raise AssertionError("error() has returned")


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What ``play``, ``eval`` and ``audit`` pass on to the environment."""
    names = ("difficulty", "rendering", "template", "split")
    found = {name: getattr(args, name) for name in names}
    if getattr(args, "action_format", None) is not None:
        found["action_format"] = args.action_format
    return {**found, **({"manual": False} if getattr(args, "no_manual", False) else {})}
