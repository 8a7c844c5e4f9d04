"""Runs that survive being killed: checkpoints that are whole or not there at all."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from headway.agents.log import LOG
from headway.agents.policy import Policy

POINTER = "state.json"
"""Names the newest whole checkpoint; replaced in one step, so a reader sees the old or the new."""

LEARNER = "learner.pt"

OWN = re.compile(r"update-\d{6,}|\.update-\d{6,}\.new")
"""Names of checkpoints, and of what a policy is saved into on its way there."""


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
        name = _name(state["update"])
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
        put(self.folder / POINTER, json.dumps(found))
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
        try:
            # Tensors and plain data only: a checkpoint can make nobody run anything.
            learner = torch.load(folder / LEARNER, map_location="cpu", weights_only=True)
        except OSError as error:
            raise ValueError(
                f"{self.folder} names a checkpoint that is not there: {error}"
            ) from error
        except Exception as error:  # whatever a torn file makes of its reader
            raise ValueError(f"{folder / LEARNER} must be what a run has saved: {error}") from error
        self._tidy({pointer["newest"], pointer["best"]})
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
        if not _fine(found):
            raise ValueError(
                f"{file} must name the newest checkpoint, the best and the state of the newest, "
                f"got {found!r:.100}"
            )
        return found

    def _tidy(self, keep: set[str | None]) -> None:
        for folder in self.folder.iterdir():
            if OWN.fullmatch(folder.name) and folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)


def _name(update: int) -> str:
    return f"update-{update:06d}"


def _fine(pointer: Any) -> bool:
    """Whether a pointer says what one says."""
    if not isinstance(pointer, dict) or not isinstance(pointer.get("state"), dict):
        return False
    update, best = pointer["state"].get("update"), pointer.get("best", 0)
    known = type(update) is int and update >= 0 and pointer.get("newest") == _name(update)
    return known and (best is None or (isinstance(best, str) and bool(OWN.fullmatch(best))))


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps other processes out of the folder of a run, until this one leaves it or ends.

    Nothing is written for it, so nothing is left behind by whatever is killed. A run that was
    refused before it had a line of its log has not begun: what it put into a folder that was empty
    goes, and the folder with it.

    Args:
        folder: Made if it is not there.

    Raises:
        ValueError: Another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"out must be a folder that nothing else runs in, got {str(folder)!r}; wait for it "
                "or end it"
            ) from None
        empty = not any(folder.iterdir())
        try:
            yield
        except (ValueError, OSError):
            if empty and not (folder / LOG).exists():
                shutil.rmtree(folder)
            raise
    finally:
        os.close(handle)


def put(file: Path, text: str) -> None:
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
