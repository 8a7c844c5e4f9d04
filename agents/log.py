"""What a run says of itself: JSON lines always, TensorBoard where it is installed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.agents.trajectory import Trajectory

LOG = "log.jsonl"
EPISODES = "episodes.jsonl"


class Log:
    """The log of one run: a line an update, and some episodes to look at.

    Args:
        folder: Of the run.
        update: Lines from this update on are removed: a resumed run writes them again.

    Raises:
        ValueError: A whole line of the log is not that of an update.
    """

    def __init__(self, folder: Path, update: int) -> None:
        self._files = [folder / LOG, folder / EPISODES]
        for file in self._files:
            if file.exists():
                kept = [line for line, found in lines(file) if found["update"] < update]
                new = file.with_name(file.name + ".new")
                new.write_text("".join(kept), encoding="utf-8")
                new.replace(file)
        self._board: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=update)

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds the line of an update; what is not finite is written as null."""
        self._append(0, row)
        if self._board is not None:
            for name, value in _flat("", row):
                self._board.add_scalar(name, value, row["update"])

    def show(
        self,
        update: int,
        trajectories: Sequence[Trajectory],
        advantages: Sequence[NDArray[np.float64]],
    ) -> None:
        """Adds episodes, turn by turn."""
        for trajectory, advantage in zip(trajectories, advantages, strict=True):
            turns = [
                {
                    "action": turn.action,
                    "observation": turn.observation,
                    "base": turn.base,
                    "channels": dict(turn.channels),
                    "ok": sorted(turn.ok),
                    "progress": turn.progress,
                    "advantage": float(worth),
                    "cut": turn.cut,
                }
                for turn, worth in zip(trajectory.turns, advantage, strict=True)
            ]
            row = {
                "update": update,
                "task_id": trajectory.task_id,
                "group": trajectory.group,
                "success": trajectory.success,
                "ended": trajectory.ended,
                "prompt": trajectory.prompt,
                "progress": trajectory.curve.tolist(),
                "turns": turns,
            }
            self._append(1, row)

    def close(self) -> None:
        """Writes out what TensorBoard holds back."""
        if self._board is not None:
            self._board.close()

    def _append(self, which: int, row: Mapping[str, Any]) -> None:
        text = json.dumps(_finite(row), ensure_ascii=True, allow_nan=False)
        with self._files[which].open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")


def lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The whole lines of a log, each with what it says; a last one without an end is left out.

    Raises:
        ValueError: A whole line is not that of an update.
    """
    with file.open(encoding="utf-8", newline="\n") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith("\n"):  # the run was killed while it wrote
                return
            try:
                found = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{file}, line {number}, must be JSON: {error}") from error
            if not isinstance(found, dict) or type(found.get("update")) is not int:
                raise ValueError(f"{file}, line {number}, must be of an update, got {line:.100}")
            yield line, found


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(prefix: str, row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row by paths; a bool is none."""
    for key, value in row.items():
        name = f"{prefix}/{key}" if prefix else key
        if isinstance(value, Mapping):
            yield from _flat(name, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
