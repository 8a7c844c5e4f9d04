"""Trajectories: what an agent did, saw and was paid, turn by turn, and how to play it again.

One episode is one JSON object on one line of a file (see :mod:`headway.wrappers.lines`)::

    headway      version of this format
    version      of the package that wrote it
    env          Gymnasium's spec of what was recorded; null where that is no plain data
    gamma        the learner's discount: as given, or as all layers were given it; else null
    task_id      the task; digest, grader: what its certificate says; null elsewhere
    seed         as given to reset; so are the options
    layers       what each reward layer remembered before the reset, from the outside in
    start        observation, calls and record of the reset
    turns        action, observation, reward, terminated, truncated, calls and record of each turn
    ended        "terminated", "truncated", "left" (reset or closed before its end) or "died"
    reason       what it died of; empty otherwise
    fatal        the action that it died on; null otherwise

``record`` is ``info["headway"]`` with the verdict as plain data, graded every turn. Texts stand as
they are, ``headway.CUT`` is null, and what is no text is ``{"samples": ...}`` as its space writes
it.
"""

from __future__ import annotations

import copy
import json
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import gymnasium as gym

from headway.arguments import number, one_of
from headway.verifiers import Verdict, blank
from headway.wrappers.channel import grader_of, layers_of, measure
from headway.wrappers.lines import append, decode, encode, read

SCHEMA = 1
"""Version of the format."""

KEYS = (
    *("headway", "version", "env", "gamma", "task_id", "digest", "grader", "seed", "options"),
    *("layers", "start", "turns", "ended", "reason", "fatal"),
)

ENDS = ("terminated", "truncated", "left", "died")
"""How episodes end."""

_MARK = f'{{"headway":{SCHEMA},'.encode()

_Kinds = Mapping[str, type | tuple[type, ...]]

_EPISODE: _Kinds = {
    **dict.fromkeys(("env", "options"), (dict, type(None))),
    **dict.fromkeys(("task_id", "digest", "grader"), (str, type(None))),
    **dict.fromkeys(("layers", "turns"), list),
    "seed": (int, type(None)),
    "start": dict,
    "reason": str,
}
_RESET: _Kinds = {"observation": object, "calls": list, "record": dict}
_TURN: _Kinds = {
    "action": object,
    "reward": (int, float),
    "terminated": bool,
    "truncated": bool,
    **_RESET,
}
_RECORD: _Kinds = {
    **dict.fromkeys(("channels", "channels_raw", "phi", "gate", "verdict"), dict),
    "base": (int, float),
    "status": str,
}
"""What a trajectory, its reset, its turns and their records have to hold; they may hold more."""


class Recorder(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Writes every episode down as it ends; changes nothing of what it passes on.

    It sees only what is inside it, so it belongs outside the layers that it records. It grades
    every turn, once, and keeps that to itself: ``info`` stays as it was. An episode is written
    when it ends or dies, and as ``"left"`` when ``reset`` or ``close`` comes first, if a turn was
    played; a process that is killed loses the episode it was at. A disk that refuses the last turn
    of one takes nothing from who plays: ``step`` returns that turn, or raises what it died of, and
    the next call tries once more and raises if it is refused again. Then the episode is dropped.

    Args:
        env: An environment that offers ``grade() -> Verdict``, itself or in a wrapper.
        file: Where lines are added, a regular file; made if it is not there. It stays where it
            is when the process changes its folder. Several recorders may share one, in several
            processes too. None only remembers: see :attr:`episode`.
        gamma: The learner's discount per turn, in (0, 1], by which returns are summed when the
            file is read; None takes the one that all layers were given, if there is one.

    Raises:
        TypeError: Nothing in ``env`` offers ``grade()``.
        ValueError: ``file`` is no regular file or holds something else, or ``gamma`` is outside
            its range.
        OSError: It cannot be written.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        file: str | os.PathLike[str] | None = None,
        *,
        gamma: float | None = None,
    ) -> None:
        self.file = None if file is None else os.path.abspath(os.fspath(file))
        gym.utils.RecordConstructorArgs.__init__(self, file=self.file, gamma=gamma)
        gym.Wrapper.__init__(self, env)
        self._grade = grader_of(env)
        if file is not None:
            _ours(os.fspath(file))
        made = _made(env)
        self._head = {
            "headway": SCHEMA,
            "version": version("headway"),
            "env": encode(made),
            "gamma": _gamma(made) if gamma is None else number("gamma", gamma, "(0, 1]"),
        }
        self._episode: dict[str, Any] | None = None
        self._running = False
        self._owed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, and a new trajectory.

        Raises:
            OSError: The one before cannot be written.
        """
        self._leave()
        layers = [encode(wrapper.layer.state_dict()) for wrapper in layers_of(self.env)]
        obs, info = self.env.reset(seed=seed, options=options)
        self._grade = grader_of(self.env)
        proof = self._certificate()
        task_id = info.get("task_id")
        self._episode = {
            **self._head,
            "task_id": encode(task_id) if isinstance(task_id, str) else None,
            "digest": proof and proof.digest,
            "grader": proof and proof.grader,
            "seed": encode(seed),
            "options": encode(options),
            "layers": layers,
            "start": self._seen(obs, 0.0, info),
            "turns": [],
            "ended": "left",
            "reason": "",
            "fatal": None,
        }
        self._running = True
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Plays one turn.

        Raises:
            ResetNeeded: The episode is over, or none has begun.
            OSError: The one before cannot be written.
        """
        self._pay()
        if not self._running or self._episode is None:
            raise gym.error.ResetNeeded("no episode is recorded; call reset() before step()")
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            turn = {
                "action": _written(self.env.action_space, action),
                "reward": encode(reward),
                "terminated": bool(terminated),
                "truncated": bool(truncated),
                **self._seen(obs, float(reward), info),
            }
        except Exception as error:
            if self.env.action_space.contains(action):  # else it is the caller's, and no turn
                self._episode["fatal"] = _written(self.env.action_space, action)
                self._episode["reason"] = encode(f"{type(error).__name__}: {error}")
                self._over("died")
            raise
        self._episode["turns"].append(turn)
        if terminated or truncated:
            self._over("terminated" if terminated else "truncated")
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        """Writes an episode that was left, and closes the environment.

        Raises:
            OSError: It cannot be written; the environment is closed all the same.
        """
        try:
            self._leave()
        finally:
            super().close()

    @property
    def episode(self) -> dict[str, Any]:
        """The running trajectory, or the last one, as :func:`episodes` would give it; a copy.

        Raises:
            ResetNeeded: None has begun.
        """
        if self._episode is None:
            raise gym.error.ResetNeeded("no episode is recorded; call reset() first")
        episode: dict[str, Any] = decode(self._episode)
        return episode

    def get_state(self) -> dict[str, Any]:
        """The running trajectory as plain data; what is inside it has its own."""
        return {"episode": copy.deepcopy(self._episode), "running": self._running}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`get_state` returned; a trajectory that is running is written first.

        Raises:
            ValueError: ``state`` is of another kind of layer.
            OSError: The trajectory that is running cannot be written.
        """
        if set(state) != {"episode", "running"}:
            raise ValueError(f"state must have keys ['episode', 'running'], got {sorted(state)}")
        self._leave()
        self._episode, self._running = copy.deepcopy(state["episode"]), state["running"]

    def _seen(self, obs: Any, reward: float, info: Mapping[str, Any]) -> dict[str, Any]:
        """What came back of a turn."""
        record = dict(info.get("headway") or blank(reward))  # a copy: grading writes into it
        verdict = measure(record, self._grade)
        return {
            "observation": _written(self.env.observation_space, obs),
            "calls": encode(_calls(info)),
            "record": encode({**record, "verdict": _plain(verdict)}),
        }

    def _certificate(self) -> Any:
        try:
            return self.env.get_wrapper_attr("certificate")
        except AttributeError:  # a foreign environment proves nothing
            return None

    def _leave(self) -> None:
        """Ends the episode that is running, and writes what is not written yet."""
        if self._running and self._episode is not None and self._episode["turns"]:
            self._owed = True
        self._running = False
        self._pay()

    def _over(self, ended: str) -> None:
        """Ends the episode on this turn; a disk that refuses it is for the next call."""
        assert self._episode is not None
        self._running = False
        self._episode["ended"] = ended
        try:
            self._write()
        except OSError:
            self._owed = True

    def _pay(self) -> None:
        if self._owed:
            self._owed = False
            self._write()

    def _write(self) -> None:
        if self.file is not None and self._episode is not None:
            append(self.file, self._episode)


def episodes(
    file: str | os.PathLike[str],
    *,
    torn: Callable[[int, int], None] | None = None,
    lost: Callable[[int, str], None] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """``(line, episode)`` of every trajectory in a file, lines counted from 1.

    Args:
        file: What recorders wrote.
        torn: ``torn(line, bytes)`` hears of every line whose writer was killed in the middle of
            it, which is dropped; None warns of it.
        lost: ``lost(line, reason)`` hears of every other line that is no trajectory, or one of a
            format that is not known here; None raises.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is no trajectory, and ``lost`` is None.
    """
    name = os.fspath(file)

    def warn(line: int, size: int) -> None:
        warnings.warn(f"{name}:{line}: torn after {size} bytes, dropped", stacklevel=3)

    def refuse(line: int, reason: str) -> None:
        raise ValueError(f"{name}:{line}: {reason}")

    wrong = lost or refuse
    for line, value in read(name, torn or warn, wrong):
        try:
            episode = _whole(value)
        except (ValueError, TypeError, RecursionError) as error:
            wrong(line, str(error))
        else:
            yield line, episode


def action_of(space: gym.Space[Any], written: Any) -> Any:
    """The action that was recorded as ``written``."""
    if isinstance(written, str):
        return written
    samples = [None] if written is None else written["samples"]
    return next(iter(space.from_jsonable(samples)))


def _written(space: gym.Space[Any], value: Any) -> Any:
    """An action or observation as it is recorded."""
    if isinstance(value, str):
        return encode(value)
    samples = space.to_jsonable([value])
    return None if samples == [None] else {"samples": encode(samples)}


def _whole(value: dict[str, Any]) -> dict[str, Any]:
    """The trajectory of a line.

    Raises:
        ValueError: It is none; so do the other errors of :func:`decode` say.
    """
    schema = value.get("headway")
    if type(schema) is not int or schema != SCHEMA:  # True and 1.0 equal 1
        newer = type(schema) is int and schema > SCHEMA
        raise ValueError(
            f"headway must be the format {SCHEMA}, got {schema!r:.100}"
            + ("; a newer headway reads it" if newer else "")
        )
    if missing := [key for key in KEYS if key not in value]:
        raise ValueError(f"a trajectory must have {missing}, which are missing")
    episode: dict[str, Any] = decode(value)
    _shaped("", episode, _EPISODE)
    if episode["gamma"] is not None:
        number("gamma", episode["gamma"], "(0, 1]")
    died = one_of("ended", episode["ended"], ENDS) == "died"
    if not died and (episode["reason"] or episode["fatal"] is not None):
        raise ValueError("reason and fatal must be empty where ended is not 'died'")
    for place, layer in enumerate(episode["layers"]):
        _shaped("layers ", {str(place): layer}, {str(place): dict})
    _seen_as("start ", episode["start"], _RESET)
    for place, turn in enumerate(episode["turns"], 1):
        _shaped("", {f"turn {place}": turn}, {f"turn {place}": dict})
        _seen_as(f"turn {place} ", turn, _TURN)
    return episode


def _seen_as(where: str, turn: Mapping[str, Any], kinds: _Kinds) -> None:
    """Makes sure that a reset or a turn has what every one has.

    Raises:
        ValueError: It has not.
    """
    _shaped(where, turn, kinds)
    if _calls(turn) != turn["calls"]:
        raise ValueError(f"{where}calls must each have a tool, got {turn['calls']!r:.100}")
    record = turn["record"]
    _shaped(f"{where}record ", record, _RECORD)
    _shaped(f"{where}verdict ", record["verdict"], {"ok": dict})
    for name, amount in {"base": record["base"], **record["channels"]}.items():
        whole = isinstance(amount, int) and abs(amount) <= sys.float_info.max
        if not isinstance(name, str) or not (whole or isinstance(amount, float)):
            raise ValueError(
                f"{where}channels must be amounts by name, got {amount!r:.100} as {name!r:.100}"
            )


def _shaped(where: str, value: Mapping[str, Any], kinds: _Kinds) -> None:
    """Makes sure that a mapping has keys, and what they hold.

    Raises:
        ValueError: It has not.
    """
    for key, kind in kinds.items():
        if key not in value:
            raise ValueError(f"{where}{key} is missing")
        if not isinstance(value[key], kind):
            several = kind if isinstance(kind, tuple) else (kind,)
            names = " or ".join(one.__name__ for one in several)
            raise ValueError(f"{where}{key} must be {names}, got {value[key]!r:.100}")


def _calls(info: Mapping[str, Any]) -> list[Any]:
    """The calls of a turn; none where a foreign environment means something else by the name."""
    calls = info.get("calls")
    ours = isinstance(calls, list) and all(
        isinstance(call, Mapping) and isinstance(call.get("tool", 0), str | None) for call in calls
    )
    return calls if ours and calls else []


def _plain(verdict: Verdict) -> dict[str, Any]:
    return {**verdict.plain(), "violations": list(verdict.violations)}


def _made(env: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """The spec of an environment as plain data; None where it has none, or not such."""
    try:
        made: dict[str, Any] | None = json.loads(env.spec.to_json()) if env.spec else None
    except (TypeError, ValueError):
        return None
    return made


def _gamma(made: Mapping[str, Any] | None) -> float | None:
    """The one discount in the arguments of all layers."""
    layers = made["additional_wrappers"] if made else ()
    found = [layer["kwargs"]["gamma"] for layer in layers if "gamma" in (layer["kwargs"] or {})]
    return float(found[0]) if found and found.count(found[0]) == len(found) else None


def _ours(file: str) -> None:
    """Makes the file if it is not there.

    Raises:
        ValueError: It is there and is no regular file, or holds something else.
    """
    # Asked before it is opened: to open a pipe may wait for its other end.
    if os.path.exists(file) and not stat.S_ISREG(os.stat(file).st_mode):
        raise ValueError(f"file must be a regular file, to which lines are added, got {file!r}")
    with open(file, "a+b") as stream:
        stream.seek(0)
        begin = stream.read(len(_MARK))
    if not _MARK.startswith(begin):
        raise ValueError(
            f"file must be new, empty, or hold trajectories of format {SCHEMA}, got {file!r}, "
            f"which begins with {begin!r}"
        )
