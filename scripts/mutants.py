"""Plants faults into a copy of the code, one at a time; a test must kill each of them.

    python scripts/mutants.py                       # all of them
    python scripts/mutants.py --only wrappers/gate  # those with this text in file or reason
    python scripts/mutants.py --sample 10 --jobs 2

A fault is an entry of a ``tests/**/mutants*.json``: ``file``, the text to ``find`` there exactly
once, what to ``replace`` it with, ``why`` that is wrong, and the ``tests`` that must notice. A copy
is a folder named ``headway`` that comes first on the import path, so nothing installed is tested.

Exit status: 0 all killed, 1 some survived, 2 a list, or the copy without any fault, is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent

TIMEOUT_S = 900
"""Tests that take longer on a planted fault have noticed it: they hang."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault to plant."""

    file: str
    find: str
    replace: str
    why: str
    tests: tuple[str, ...]


class Broken(Exception):
    """A list of faults, or the copy that they are planted into, is wrong."""


class Copy:
    """A copy of the working tree in which ``headway`` is the copy and nothing else.

    Args:
        folder: An empty folder.

    Raises:
        Broken: Python would still import another ``headway``.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "headway"
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():  # else deleted and not yet committed
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        # No byte code: it is matched by size and second, and a fault may change neither.
        self.env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        found = self._python("-c", "import headway.wrappers as w; print(w.__file__)").stdout.strip()
        if not found or self.root.resolve() not in Path(found).resolve().parents:
            raise Broken(f"headway of the copy must lie in {self.root}, got {found or 'nothing'}")

    def failure(self, tests: Sequence[str]) -> str:
        """What pytest printed when one of ``tests`` failed; empty if all pass."""
        try:
            done = self._python("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests)
        except subprocess.TimeoutExpired:
            return f"no end within {TIMEOUT_S} s"
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def survives(self, mutant: Mutant) -> bool:
        """Whether no test notices ``mutant``; the file is put back as it was."""
        path = self.root / mutant.file
        sound = path.read_bytes()
        path.write_text(sound.decode().replace(mutant.find, mutant.replace), encoding="utf-8")
        try:
            return not self.failure(mutant.tests)
        finally:
            path.write_bytes(sound)

    def _python(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *args],
            cwd=self.root,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )


def mutants(only: str = "") -> list[Mutant]:
    """The faults of every list that have the text ``only`` in file or reason, in order.

    Raises:
        Broken: An entry does not fit the code.
    """
    found = []
    for path in sorted(ROOT.glob("tests/**/mutants*.json")):
        for entry in json.loads(path.read_text(encoding="utf-8")):
            try:
                mutant = Mutant(**{**entry, "tests": tuple(entry["tests"])})
            except (KeyError, TypeError) as error:
                raise Broken(f"{path.name}: {error} in {entry}") from error
            if only not in mutant.file and only not in mutant.why:
                continue
            times = (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.find)
            if times != 1 or mutant.find == mutant.replace:
                raise Broken(
                    f"{path.name}: find must stand exactly once in {mutant.file} and differ from "
                    f"replace, got {times} times: {mutant.find!r} ({mutant.why})"
                )
            found.append(mutant)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all killed, 1 some survived, 2 a list or the sound copy is wrong."""
    parser = argparse.ArgumentParser(description="plant faults; each must be killed by a test")
    parser.add_argument("--only", default="", help="only those with this text in file or reason")
    parser.add_argument("--sample", type=int, help="only so many of them, always the same")
    parser.add_argument("--jobs", type=int, default=1, help="copies to work in at once (1)")
    args = parser.parse_args(argv)
    try:
        chosen = mutants(args.only)
        if args.sample is not None:
            chosen = random.Random(0).sample(chosen, min(args.sample, len(chosen)))
        if not chosen:
            raise Broken(f"no fault has {args.only!r} in its file or reason")
        survivors = plant(chosen, max(1, args.jobs))
    except Broken as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    print(f"{len(chosen) - survivors} killed, {survivors} survived")
    return 1 if survivors else 0


def plant(chosen: Sequence[Mutant], jobs: int) -> int:
    """How many survive.

    Raises:
        Broken: A test fails without any fault.
    """
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(Path(scratch) / str(number)))

        def survives(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return copy.survives(mutant)
            finally:
                copies.put(copy)

        copy = copies.get()
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        if failure := copy.failure(tests):
            raise Broken(f"tests must pass without any fault, got:\n{failure}")
        copies.put(copy)
        count = 0
        for mutant, alive in zip(chosen, pool.map(survives, chosen), strict=True):
            count += alive
            print(f"{'SURVIVED' if alive else 'killed':8}  {mutant.file}: {mutant.why}", flush=True)
        return count


if __name__ == "__main__":
    sys.exit(main())
