"""The whole proof of a domain: many tasks, fresh processes, planted faults, mutants, variants."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from headway.envs.attempts import honest, wrong
from headway.envs.contract import Run, UnsoundTask, certify, examine
from headway.envs.domain import Domain, load
from headway.envs.faults import FAULTS, plant, spoil_grader
from headway.envs.render import Instance, build
from headway.envs.rng import Rng
from headway.envs.task import DIFFICULTIES, SPLITS, TaskKey
from headway.envs.world import Step, order

WORLDS_PER_FAULT = 20
CAUGHT_AT_LEAST = 18
TRIES = 200
"""Mutants and variants tried."""

Told = Callable[[str, int, int], None]
"""``told(what, done, of)`` hears how far the proof has come."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that fails a check of the contract."""

    task_id: str
    check: str
    detail: str


@dataclass(frozen=True, slots=True)
class FaultCount:
    """Of how many kinds of planted fault the contract caught at least 18 in 20 worlds."""

    planted: int
    caught: int
    not_applicable: int
    by_kind: dict[str, int | None]


@dataclass(frozen=True, slots=True)
class MutantCount:
    """Wrong graders and wrong solutions."""

    tried: int
    caught: int


@dataclass(frozen=True, slots=True)
class VariantCount:
    """Honest solutions that differ from the oracle's."""

    tried: int
    refused: int


@dataclass(frozen=True, slots=True)
class Report:
    """What :func:`verify` found.

    Attributes:
        domain: Name of the domain.
        tasks: Tasks examined.
        resampled: Tasks whose first world was rejected.
        failures: What is wrong, in a sound domain nothing.
        median_ms: Median time of the contract on one task.
        faults: Planted faults.
        mutants: Wrong graders and solutions.
        variants: Honest variants.
    """

    domain: str
    tasks: int
    resampled: int
    failures: tuple[Failure, ...]
    median_ms: float
    faults: FaultCount
    mutants: MutantCount
    variants: VariantCount

    @property
    def sound(self) -> bool:
        """Whether the domain may be used."""
        return (
            not self.failures
            and self.resampled <= max(1, self.tasks / 10)
            and self.faults.caught >= min(12, self.faults.planted)
            and self.mutants.caught >= 0.95 * self.mutants.tried
            and not self.variants.refused
        )

    def as_json(self) -> dict[str, Any]:
        """The figures as plain data, without those of single kinds of fault."""
        out = {**asdict(self), "failures": [asdict(f) for f in self.failures]}
        del out["faults"]["by_kind"]
        return out


def keys(domain: Domain, count: int) -> Iterator[TaskKey]:
    """``count`` task keys that go round templates, difficulties, renderings and splits.

    The four strides differ, so that every pair of values meets within a few hundred keys.
    """
    for seed in range(count):
        split = SPLITS[seed % len(SPLITS)]
        names = domain.template_names(split)
        yield TaskKey(
            domain=domain.name,
            version=domain.version,
            template=names[seed // 3 % len(names)],
            difficulty=DIFFICULTIES[seed // 2 % len(DIFFICULTIES)],
            rendering=domain.renderings[seed // 5 % len(domain.renderings)],
            split=split,
            seed=seed,
        )


def verify(where: str | Domain, *, seeds: int, told: Told = lambda what, done, of: None) -> Report:
    """Examines ``seeds`` tasks of a domain, and the contract itself.

    Args:
        where: A domain or ``"module:attribute"``; check 13 runs only for the latter, because a
            fresh process has to find it.
        seeds: How many tasks, at least 1.
        told: Hears how far it has come.

    Raises:
        ValueError: ``seeds`` is below 1.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds!r}")
    domain = load(where)
    domain.check_installed()
    failures: list[Failure] = []
    sound: list[Instance] = []
    made: list[Instance] = []
    times = []
    with _nothing_left(failures):
        for done, key in enumerate(keys(domain, seeds), 1):
            try:
                instance, certificate = certify(domain, key)
            except UnsoundTask as error:
                failures += [Failure(str(key), m.check, m.detail) for m in error.misses]
                made.append(build(domain, key))
            else:
                sound.append(instance)
                made.append(instance)
                times.append(certificate.ms)
            told("tasks", done, seeds)
        if isinstance(where, str):
            failures += _other_bytes(where, sound)
    return Report(
        domain=domain.name,
        tasks=seeds,
        resampled=sum(instance.task.key.attempt > 0 for instance in sound),
        failures=tuple(failures),
        median_ms=statistics.median(times) if times else float("nan"),
        faults=_faults(where, domain, told),
        mutants=_mutants(made, told),
        variants=_variants(made, told),
    )


@contextmanager
def _nothing_left(failures: list[Failure]) -> Iterator[None]:
    """14. What runs inside leaves no file or folder that it made, no process, no open file."""
    files, children = _open_files(), _children()
    with _made() as paths:
        yield
    if left := [path for path in dict.fromkeys(paths) if os.path.exists(path)]:
        failures.append(Failure("", "clean-up", f"left on disk: {left[:5]}"))
    if left_over := _children() - children:
        failures.append(Failure("", "clean-up", f"processes left: {sorted(left_over)}"))
    if _open_files() > files:
        failures.append(Failure("", "clean-up", f"{_open_files() - files} files left open"))


@contextmanager
def _made() -> Iterator[list[str]]:
    """The folders and temporary files that this process makes meanwhile.

    The interpreter tells of them, so nothing is made here that a killed proof would leave behind.
    """
    paths: list[str] = []
    _listeners()[id(paths)] = paths
    try:
        yield paths
    finally:
        del _listeners()[id(paths)]


@cache
def _listeners() -> dict[int, list[str]]:
    """Who hears of new paths; an audit hook cannot be taken off, so there is one for good."""
    listeners: dict[int, list[str]] = {}

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if listeners and event in ("tempfile.mkdtemp", "tempfile.mkstemp", "os.mkdir"):
            for paths in listeners.values():
                paths.append(os.fsdecode(args[0]))

    sys.addaudithook(hear)
    return listeners


def _open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def _children() -> set[int]:
    """Ids of the processes that this one has started and that live."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:  # it ended while we looked
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(stat.parent.name))
    return found


def _other_bytes(where: str, instances: Sequence[Instance]) -> list[Failure]:
    """13. A fresh process under another hash seed makes the same tasks."""
    digests = fresh_digests(where, [(str(i.task.key), None) for i in instances])
    return [
        Failure(i.task.id, "bytes", "a fresh process made another digest")
        for i, digest in zip(instances, digests, strict=True)
        if digest != i.task.digest
    ]


def fresh_digests(where: str, jobs: Sequence[tuple[str, str | None]]) -> list[str | None]:
    """Digests of tasks as a new process under another hash seed makes them.

    Args:
        where: ``"module:attribute"`` of the domain.
        jobs: Task ids, each with the kind of fault to plant or None.

    Raises:
        subprocess.CalledProcessError: The process failed.
    """
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    result = subprocess.run(
        [sys.executable, "-m", "headway.envs.verify", where],
        input=json.dumps(list(jobs)),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONHASHSEED": other, "PYTHONUTF8": "1"},
        check=True,
    )
    digests: list[str | None] = json.loads(result.stdout)
    return digests


def _digest(domain: Domain, task_id: str, fault: str | None) -> str | None:
    instance: Instance | None = build(domain, TaskKey.parse(task_id))
    if fault is not None and instance is not None:
        instance = plant(fault, instance, Rng("fault", fault, task_id))
    return None if instance is None else instance.task.digest


def _faults(where: str | Domain, domain: Domain, told: Told) -> FaultCount:
    caught: dict[str, int | None] = {}
    for done, kind in enumerate(FAULTS, 1):
        caught[kind] = _caught(where, domain, kind)
        told("planted faults", done, len(FAULTS))
    counts = [n for n in caught.values() if n is not None]
    return FaultCount(
        planted=len(counts),
        caught=sum(n >= CAUGHT_AT_LEAST for n in counts),
        not_applicable=len(caught) - len(counts),
        by_kind=caught,
    )


def _caught(where: str | Domain, domain: Domain, kind: str) -> int | None:
    """In how many of 20 worlds the contract notices; None if too few can have the fault."""
    faulty = []
    for seed in range(10 * WORLDS_PER_FAULT):
        names = domain.template_names("dev")
        template, difficulty = names[seed % len(names)], 2 + seed // len(names) % 4
        key = TaskKey(domain.name, domain.version, template, difficulty, 2, "dev", seed)
        instance = build(domain, key)
        spoiled = plant(kind, instance, Rng("fault", kind, str(key)))
        if spoiled is not None and not examine(instance, mutants=0)[0]:
            faulty.append(spoiled)
        if len(faulty) == WORLDS_PER_FAULT:
            break
    else:
        return None
    noticed = [bool(examine(instance, mutants=10**6)[0]) for instance in faulty]
    if isinstance(where, str):
        digests = fresh_digests(where, [(i.task.id, kind) for i in faulty])
        for n, (instance, digest) in enumerate(zip(faulty, digests, strict=True)):
            noticed[n] = noticed[n] or digest != instance.task.digest
    return sum(noticed)


def _mutants(made: Sequence[Instance], told: Told) -> MutantCount:
    """Half wrong graders, which the contract must refuse; half wrong solutions, which must fail."""
    tried = caught = 0
    for n in count():
        instance, rng = made[n * 7 % len(made)], Rng("mutant", n)
        if n % 2:
            tried += 1
            caught += bool(examine(spoil_grader(instance, rng), mutants=10**6)[0])
        else:
            succeeds, same = _one_wrong(instance, rng)
            tried += not same
            caught += not same and not succeeds
        told("mutants", tried, TRIES)
        if tried == TRIES:
            break
    return MutantCount(tried, caught)


def _one_wrong(instance: Instance, rng: Rng) -> tuple[bool, bool]:
    """Whether a wrong solution succeeds, and whether it comes to the right state after all."""
    plan = _reordered(instance, rng)
    _, at, actions = rng.choice(wrong(instance, plan, rng))
    right, run = Run(instance), Run(instance)
    right.play(a for step in plan for a in step.actions)
    run.play(a for step in plan[:at] for a in step.actions).play(actions)
    return run.grade().success, run.same_world(right)


def _reordered(instance: Instance, rng: Rng) -> list[Step]:
    return [*instance.prelude, *order(instance.world.steps, rng)]


def _variants(made: Sequence[Instance], told: Told) -> VariantCount:
    """Variants of plans in other orders, on tasks certified or not: none was tried before."""
    tried = refused = 0
    for n in range(TRIES):
        instance, rng = made[n * 3 % len(made)], Rng("variant", n)
        _, actions = rng.choice(honest(instance, _reordered(instance, rng), rng))
        tried += 1
        refused += not Run(instance).play(actions).grade().success
        told("variants", n + 1, TRIES)
    return VariantCount(tried, refused)


if __name__ == "__main__":
    _domain = load(sys.argv[1])
    print(json.dumps([_digest(_domain, *job) for job in json.load(sys.stdin)]))
