"""A scripted environment to wrap, and ways to play and to describe it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import strategies as st

from headway.envs.spaces import CUT, TextSpace
from headway.verifiers import Verdict


def verdict(
    phi: float | None, *, attempted: bool = False, violations: int = 0, success: bool = False
) -> Verdict:
    """The verdict with this progress; None is no verdict."""
    if phi is None:
        return Verdict(math.nan, False, {}, status="no_verdict", reason="the grader broke")
    damage = ("damage",) * violations
    return Verdict(phi, success, {}, damage, attempted=attempted, information=phi)


class Script(gym.Env[str, Any]):
    """Plays a script, whatever the actions are; it keeps the contract of ``ToolEnv``.

    Args:
        phis: Progress of the first state and after each turn; None is no verdict.
        end: How the last turn ends the episode: ``"terminated"``, ``"truncated"`` or ``"both"``.
        bases: Base reward of each turn; zeros if None.
        violations: Number of them in each state; zeros if None.
        attempted: Whether the last state was submitted with a change in it.
        success: Whether the last state is a success.
        grades_itself: Whether it shows its verdict in the info of the last turn, as ToolEnv does.
        places: What ``anchor`` tells of each state; if None, no two states are the same.
    """

    def __init__(
        self,
        phis: Sequence[float | None] = (0.0, 0.5, 1.0),
        end: str = "terminated",
        bases: Sequence[float] | None = None,
        violations: Sequence[int] | None = None,
        attempted: bool = False,
        success: bool = False,
        grades_itself: bool = True,
        places: Sequence[str] | None = None,
    ) -> None:
        self.action_space = TextSpace(cut=True)
        self.observation_space = TextSpace()
        self.phis, self.end = list(phis), end
        self.turns = len(self.phis) - 1
        self.bases = list(bases or [0.0] * self.turns)
        self.violations = list(violations or [0] * len(self.phis))
        self.attempted, self.success, self.grades_itself = attempted, success, grades_itself
        self.places = list(places or map(str, range(len(self.phis))))
        self.grades = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn, self.over, self.calls = 0, False, []
        return "begin", self._info(0.0)

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        assert not self.over
        self.turn += 1
        cut = action is CUT
        self.calls = [{"tool": "say", "args": {"text": str(action)}, "error": cut}]
        self.over = cut or self.turn == self.turns
        base = self.bases[self.turn - 1]
        terminated = self.over and not cut and self.end in ("terminated", "both")
        truncated = cut or (self.over and self.end in ("truncated", "both"))
        return f"turn {self.turn}", base, terminated, truncated, self._info(base)

    def grade(self) -> Verdict:
        self.grades += 1
        return self.present()

    def present(self) -> Verdict:
        """The verdict that ``grade`` gives, uncounted."""
        last = self.turn == self.turns
        return verdict(
            self.phis[self.turn],
            attempted=last and self.attempted,
            violations=self.violations[self.turn],
            success=last and self.success,
        )

    def anchor(self) -> str:
        return self.places[self.turn]

    def gold(self) -> tuple[str, ...]:
        return ("gold",)

    def reference(self) -> list[dict[str, Any]]:
        return [{"tool": "say", "args": {"text": text}} for text in ("go", "stop")]

    def get_state(self) -> dict[str, Any]:
        return {"turn": self.turn, "over": self.over}

    def set_state(self, state: dict[str, Any]) -> None:
        self.turn, self.over = state["turn"], state["over"]

    def _info(self, base: float) -> dict[str, Any]:
        shown = self.present() if self.over and self.grades_itself else None
        record = {
            "base": base,
            "channels": {},
            "channels_raw": {},
            "phi": {},
            "gate": {},
            "status": shown.status if shown else "ungraded",
            "verdict": shown,
        }
        return {"task_id": "script", "turn": self.turn, "calls": self.calls, "headway": record}


def play(env: gym.Env[Any, Any], actions: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """``(reward, terminated, truncated, record)`` of the reset and of every turn to the end.

    After ``actions`` have been played the action is ``"go"``.
    """
    _, info = env.reset()
    turns = [(0.0, False, False, info["headway"])]
    queue = list(actions)
    while not (turns[-1][1] or turns[-1][2]):
        _, reward, terminated, truncated, info = env.step(queue.pop(0) if queue else "go")
        turns.append((reward, terminated, truncated, info["headway"]))
    return turns


PHI = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.999, 1.0]), st.floats(0.0, 1.0))


@st.composite
def scripts(draw: st.DrawFn, *, broken: bool = True) -> dict[str, Any]:
    """Arguments of a :class:`Script`; ``broken`` allows turns without a verdict."""
    turns = draw(st.integers(1, 9))
    phi = st.one_of(st.none(), PHI) if broken else PHI
    return {
        "phis": draw(st.lists(phi, min_size=turns + 1, max_size=turns + 1)),
        "end": draw(st.sampled_from(["terminated", "truncated", "both"])),
        "bases": draw(st.lists(st.sampled_from([0.0, 1.0, -0.25]), min_size=turns, max_size=turns)),
        "violations": draw(st.lists(st.integers(0, 2), min_size=turns + 1, max_size=turns + 1)),
        "attempted": draw(st.booleans()),
        "success": draw(st.booleans()),
        "grades_itself": draw(st.booleans()),
        "places": draw(st.lists(st.sampled_from("abc"), min_size=turns + 1, max_size=turns + 1)),
    }


@pytest.fixture(scope="session", name="verdict")
def _verdict() -> Callable[..., Verdict]:
    return verdict


@pytest.fixture(scope="session", name="Script")
def _script() -> type[Script]:
    return Script


@pytest.fixture(scope="session", name="play")
def _play() -> Callable[..., list[tuple[Any, ...]]]:
    return play


@pytest.fixture(scope="session", name="scripts")
def _scripts() -> Callable[..., st.SearchStrategy[dict[str, Any]]]:
    return scripts


@pytest.fixture(scope="session")
def script_id() -> Iterator[str]:
    """The id under which ``gym.make`` makes a :class:`Script`."""
    gym.register("tests/Script-v0", entry_point=Script)
    yield "tests/Script-v0"
    del gym.registry["tests/Script-v0"]
