"""Runs that survive being killed: checkpoints that are whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from headway.agents.policy import Policy

POINTER = "state.json"
"""Names the newest whole checkpoint; replaced in one step, so a reader sees the old or the new."""

LEARNER = "learner.pt"


class Checkpoints:
    """The checkpoints of one run: the newest, and the best by evaluation.

    A checkpoint is a folder of its own, and complete before the pointer names it. Whatever a killed
    run left half-written is removed by the next one.

    Args:
        folder: Of the run; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(
        self, policy: Policy, learner: Mapping[str, Any], state: Mapping[str, Any], *, best: bool
    ) -> None:
        """Writes a checkpoint and forgets the one before.

        One of the same update is there already if only the evaluation came in between: then
        nothing but the pointer is written.

        Args:
            policy: The weights.
            learner: Of the optimiser, with tensors.
            state: Of the loop, as plain data; has the key ``"update"``.
            best: Whether it is the best so far; then it is kept as ``best`` as well.
        """
        name = f"update-{state['update']:06d}"
        folder, before = self.folder / name, self._pointer()
        if name != before.get("newest"):
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed while writing
            policy.save(folder)
            torch.save(dict(learner), folder / LEARNER)
            for file in folder.iterdir():
                _flush(file)
            _flush(folder)
        kept = name if best else before.get("best")
        found = {"newest": name, "best": kept, "state": state}
        _replace(self.folder / POINTER, json.dumps(found))
        self._tidy({name, kept})

    def newest(self) -> tuple[Path, dict[str, Any], dict[str, Any]] | None:
        """The folder of the newest checkpoint, what the learner and what the loop need.

        Raises:
            ValueError: The pointer or the checkpoint is not what this class wrote.
        """
        pointer = self._pointer()
        if not pointer:
            return None
        folder = self.folder / pointer["newest"]
        self._tidy({pointer["newest"], pointer["best"]})
        try:
            # Tensors and plain data only: a checkpoint can make nobody run anything.
            learner = torch.load(folder / LEARNER, map_location="cpu", weights_only=True)
        except OSError as error:
            raise ValueError(
                f"{self.folder} names a checkpoint that is not there: {error}"
            ) from error
        except (RuntimeError, UnpicklingError, EOFError) as error:
            raise ValueError(f"{folder / LEARNER} must be what a run has saved: {error}") from error
        return folder, learner, pointer["state"]

    def best(self) -> Path | None:
        """The folder of the best checkpoint; the newest where none was ever called best."""
        pointer = self._pointer()
        name = pointer.get("best") or pointer.get("newest")
        return self.folder / name if name else None

    def _pointer(self) -> dict[str, Any]:
        file = self.folder / POINTER
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ValueError(f"{file} must be JSON: {error}") from error
        if not isinstance(found, dict) or not {"newest", "best", "state"} <= found.keys():
            raise ValueError(f"{file} must name newest, best and state, got {found!r:.100}")
        return found

    def _tidy(self, keep: set[str | None]) -> None:
        for folder in self.folder.glob("*update-*"):  # and those that a policy was saved into
            if folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)


def _replace(file: Path, text: str) -> None:
    """Puts a text in the place of a file in one step that survives a loss of power."""
    new = file.with_name(file.name + ".new")
    new.write_text(text, encoding="utf-8")
    _flush(new)
    os.replace(new, file)
    _flush(file.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
