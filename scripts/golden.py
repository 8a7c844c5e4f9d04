"""Golden battery: digests of tasks, and verdicts on stored attempts at them.

Whatever changes one of them changes what past results mean, so it needs a new version of the domain
(tasks) or of ``GRADER_VERSION`` (verdicts). Then write the battery anew.

    python scripts/golden.py            compare, exit status 1 on any difference
    python scripts/golden.py --write    store what the code does now
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from headway.envs import DOMAINS
from headway.envs.attempts import honest, wrong
from headway.envs.contract import Run, certify
from headway.envs.domain import Domain, load
from headway.envs.render import Instance
from headway.envs.rng import Rng
from headway.envs.task import TaskKey
from headway.envs.world import Action
from headway.verifiers import GRADER_VERSION

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden"


def path(domain: Domain) -> Path:
    """Where the battery of a domain is stored."""
    return FOLDER / f"{domain.name.lower()}-v{domain.version}.json"


def attempts(instance: Instance) -> dict[str, list[Action]]:
    """The oracle, a prefix of it, wrong and other right solutions, by name."""
    rng = Rng("golden", instance.task.id)
    solution = instance.solution()
    out = {"oracle": solution, "half of the oracle": solution[: len(solution) // 2]}
    before = [[a for s in instance.plan[:at] for a in s.actions] for at in range(100)]
    fixed = [
        (name, before[at] + [a for a in actions if isinstance(a, Action)])
        for name, at, actions in wrong(instance, instance.plan, rng)
        if all(isinstance(a, Action) for a in actions)
    ]
    out |= {f"wrong: {name}": actions for name, actions in rng.sample(fixed, 3)}
    out |= {f"right: {name}": a for name, a in rng.sample(honest(instance, instance.plan, rng), 2)}
    return out


def judged(instance: Instance, actions: list[list[Any]]) -> dict[str, Any]:
    """The verdict on stored calls, as plain data."""
    verdict = Run(instance).play(Action(tool, args) for tool, args in actions).grade()
    return {
        "progress": round(verdict.progress, 12),
        "success": verdict.success,
        "violations": list(verdict.violations),
        "open": sorted(name for name, ok in verdict.ok.items() if not ok),
    }


def battery(domain: Domain) -> list[dict[str, Any]]:
    """What the code does now: every template at two difficulties, renderings in turn."""
    out = []
    for n, template in enumerate(domain.template_names("test")):
        for difficulty in (2, 4):
            rendering = domain.renderings[(n + difficulty) % len(domain.renderings)]
            key = TaskKey(domain.name, domain.version, template, difficulty, rendering, "test", n)
            instance, _ = certify(domain, key)
            tried = []
            for name, calls in attempts(instance).items():
                stored = [[a.tool, dict(a.args)] for a in calls]
                tried.append({"name": name, "calls": stored, "verdict": judged(instance, stored)})
            out.append({"id": instance.task.id, "digest": instance.task.digest, "attempts": tried})
    return out


def differences(domain: Domain) -> list[str]:
    """How the code differs from the stored battery."""
    stored = json.loads(path(domain).read_text(encoding="utf-8"))
    if stored["grader"] != GRADER_VERSION:
        return [f"the battery is of grader {stored['grader']}, the code of {GRADER_VERSION}"]
    out = []
    for task in stored["tasks"]:
        key = TaskKey.parse(task["id"].partition(".")[0])
        instance, _ = certify(domain, key)
        if (instance.task.id, instance.task.digest) != (task["id"], task["digest"]):
            out.append(f"{task['id']}: another task; raise the version of {domain.name}")
        for attempt in task["attempts"]:
            verdict = judged(instance, attempt["calls"])
            if verdict != attempt["verdict"]:
                out.append(
                    f"{task['id']}: {attempt['name']}: {attempt['verdict']} became {verdict}"
                )
    return out


def main() -> int:
    """Exit status: 0 nothing differs, 1 something does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store what the code does now")
    write = parser.parse_args().write
    found = []
    for domain in map(load, DOMAINS.values()):
        if write:
            content = {"grader": GRADER_VERSION, "tasks": battery(domain)}
            text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
            path(domain).write_text(text.replace('{"id"', '\n{"id"') + "\n", encoding="utf-8")
            print(f"{path(domain).name}: {len(content['tasks'])} tasks written")
        else:
            found += differences(domain)
    if found:
        print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
