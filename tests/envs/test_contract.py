"""The contract refuses what is unsound, and what it certifies can be trusted."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from headway.envs import contract, verify
from headway.envs.contract import UnsoundTask, certify, examine
from headway.envs.domain import Domain, Template
from headway.envs.domains.apps import APPS
from headway.envs.faults import FAULTS, plant
from headway.envs.render import Instance, build
from headway.envs.rng import Rng
from headway.envs.task import TaskKey
from headway.envs.world import Action, Draft, Referent
from headway.verifiers import Check

WHERE = "headway.envs.domains.apps:APPS"


def key(template: str = "bills", **parts: object) -> TaskKey:
    """A key of a train task, changed as asked."""
    return replace(TaskKey("Apps", 0, template, 3, 2, "train", 5), **parts)


@pytest.mark.parametrize("template", APPS.template_names("test"))
@pytest.mark.parametrize("rendering", range(5))
def test_every_template_and_rendering_is_sound(template: str, rendering: int) -> None:
    """Each view of a world passes all checks, at the easiest and the hardest difficulty."""
    for difficulty in (1, 5):
        instance, certificate = certify(
            APPS, key(template, split="test", rendering=rendering, difficulty=difficulty)
        )
        assert certificate.digest == instance.task.digest
        assert certificate.mutants > 0 and certificate.variants >= 6


def test_renderings_show_one_world() -> None:
    """What has to be done is the same at every level; only how it is said differs."""
    views = [build(APPS, key(rendering=level)) for level in range(5)]
    assert len({view.task.instruction for view in views}) == 5
    assert all(view.world == views[0].world for view in views)
    acting = [{c.id for c in v.task.acceptance.checks if not c.evidence} for v in views]
    assert all(names == acting[0] for names in acting)


NOTICED_BY = {
    "fact missing": "provenance",
    "already true": "no-op",
    "wrong gold": "provenance",
    "leaked secret": "leak",
    "wide footprint": "mutants",
    "weak check": "mutants",
    "over-strict check": "variants",
    "tight budget": "budget",
    "markless step": "oracle",
    "unannounced step": "coverage",
    "twin referent": "uniqueness",
    "wrong slot": "provenance",
    "lax edge": "provenance",
}


def noticed(instance: Instance) -> set[str]:
    """The checks that an instance misses."""
    return {miss.check for miss in examine(instance, mutants=10**6)[0]}


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != "set order"])
def test_planted_faults_are_noticed(kind: str) -> None:
    """Of every kind, by the check meant for it; ``headway verify`` counts over 20 worlds each."""
    hits = []
    for seed in range(60):
        template = APPS.template_names("dev")[seed % 6]
        instance = build(APPS, key(template, split="dev", seed=seed, difficulty=2 + seed % 4))
        spoiled = plant(kind, instance, Rng("test", kind, seed))
        if spoiled is not None and not examine(instance, mutants=0)[0]:
            hits.append(noticed(spoiled))
        if len(hits) == 4:
            break
    assert sum(NOTICED_BY[kind] in checks for checks in hits) >= 3, f"{kind}: {hits}"


def test_an_edge_that_only_the_checks_know_is_noticed() -> None:
    """4. A step may come earlier than its check allows: the value after it is not the predicted."""
    instance = build(APPS, key())
    steps = [replace(s, after=()) if s.id.startswith("label.") else s for s in instance.world.steps]
    loose = replace(instance, world=replace(instance.world, steps=tuple(steps)))
    assert "orders" in noticed(loose)


def test_a_check_that_comes_true_too_early_is_noticed() -> None:
    """3. After each step progress is what the specification says, not more."""
    instance = build(APPS, key())
    first = instance.task.acceptance.checks[0]
    checks = tuple(
        replace(c, kind="seen", args=first.args, needs=()) if c.id == "note" else c
        for c in instance.task.acceptance.checks
    )
    acceptance = replace(instance.task.acceptance, checks=checks)
    early = replace(instance, task=replace(instance.task, acceptance=acceptance))
    assert {"prefix", "orders"} <= noticed(early)


@pytest.mark.parametrize("left_out", [1, 2])
def test_a_world_that_random_play_solves_is_noticed(left_out: int) -> None:
    """5. Whoever calls at random what the oracle calls earns too much, success or none."""
    instance = build(APPS, key("triage", difficulty=1))
    calls = instance.solution()[:-left_out]
    lucky = replace(instance.domain, guess=lambda box, rng: rng.choice(calls))
    assert "policies" in noticed(replace(instance, domain=lucky))


def test_reading_that_does_the_work_is_noticed() -> None:
    """5. A reader earns its cap at most."""
    instance = build(APPS, key("triage", difficulty=1))
    worker = replace(instance.domain, look=lambda box: instance.solution())
    quiet = replace(worker, guess=lambda box, rng: Action("note_list", {}))
    assert "policies" in noticed(replace(instance, domain=quiet))


def test_a_slot_beside_its_fact_is_noticed() -> None:
    """8. Even where the argument can be known from elsewhere."""
    spoiled = plant("wrong slot", build(APPS, key()), Rng(1))
    assert spoiled is not None
    details = [m.detail for m in examine(spoiled)[0] if m.check == "provenance"]
    assert any(detail.startswith("slot ") for detail in details)


def test_a_phrase_that_fits_two_records_is_noticed() -> None:
    """10. Also where no search of the oracle's would return both."""
    instance = build(APPS, key())
    referents = (*instance.world.referents, Referent("my mail", "mail", {}))
    assert "uniqueness" in noticed(
        replace(instance, world=replace(instance.world, referents=referents))
    )


def test_a_cut_observation_is_noticed() -> None:
    """12. What the oracle has to read must fit into an observation."""
    instance = build(APPS, key())
    assert "budget" in noticed(replace(instance, task=replace(instance.task, max_obs_chars=40)))


def test_an_answer_that_can_be_guessed_is_noticed() -> None:
    """11. Six bits at least."""
    instance = build(APPS, key("receipts"))
    poor = replace(instance.world.secrets["answer"], bits=1)
    secrets = {**instance.world.secrets, "answer": poor}
    assert "leak" in noticed(replace(instance, world=replace(instance.world, secrets=secrets)))


def test_another_hash_seed_shows_set_order() -> None:
    """13. Only a fresh process sees that a set was joined; it sees nothing on sound tasks."""
    sound = build(APPS, key())
    spoiled = plant("set order", sound, Rng("fault", "set order", sound.task.id))
    assert spoiled is not None
    jobs = [(sound.task.id, None), (sound.task.id, "set order")]
    plain, joined = verify.fresh_digests(WHERE, jobs)
    assert plain == sound.task.digest
    assert joined != spoiled.task.digest


def broken(draft: Draft) -> None:
    """A template whose oracle pays an amount that no mail names."""
    next(t for t in APPS.templates if t.name == "bills").draft(draft)
    step = next(s for s in draft.steps if s.id.startswith("pay."))
    action = replace(step.actions[0], args={**step.actions[0].args, "amount": 1.0})
    draft.steps[draft.steps.index(step)] = replace(step, actions=(action,))


def overstrict(draft: Draft) -> None:
    """A template whose checks insist on a memo that the instruction leaves free."""
    next(t for t in APPS.templates if t.name == "bills").draft(draft)
    for n, step in enumerate(draft.steps):
        if step.id.startswith("pay."):
            where = {**step.checks[0].args["where"], "memo": step.actions[0].args["memo"]}
            check = replace(step.checks[0], args={**step.checks[0].args, "where": where})
            draft.steps[n] = replace(step, checks=(check,))


def unlucky(draft: Draft) -> None:
    """A template whose first worlds leak their total."""
    next(t for t in APPS.templates if t.name == "bills").draft(draft)
    if draft.rng.below(2):
        draft.add("notes", "n", title="total", text=draft.finish().secrets["total"].value)


def hopeless(draft: Draft) -> None:
    """A template whose every world leaks its total."""
    next(t for t in APPS.templates if t.name == "bills").draft(draft)
    draft.add("notes", "n", title="total", text=draft.finish().secrets["total"].value)


def only(draft: object) -> Domain:
    """Apps with a single template."""
    return replace(APPS, templates=(Template("bills", draft),))


def test_a_faulty_generator_is_an_error() -> None:
    """Chance does not explain a wrong oracle, so no other world is tried."""
    with pytest.raises(UnsoundTask, match=r"bills.*fails the contract: oracle"):
        certify(only(broken), key())


def test_an_unlucky_world_is_resampled() -> None:
    """The id says how often, and asking for the seed again gives the same task."""
    attempts = set()
    for seed in range(12):
        instance, _ = certify(only(unlucky), key(seed=seed))
        again, _ = certify(only(unlucky), key(seed=seed))
        assert instance.task.canonical() == again.task.canonical()
        attempts.add(instance.task.key.attempt)
        assert instance.task.id.endswith(f"/{seed}") == (instance.task.key.attempt == 0)
    assert len(attempts) > 1


def test_resampling_gives_up() -> None:
    """A template that is always rejected is an error that names the reason."""
    with pytest.raises(UnsoundTask, match=r"10 worlds .* were rejected.*leak"):
        certify(only(hopeless), key())


def blank(**sayings: object) -> Draft:
    """A draft with nothing on it that can say ``sayings``."""
    words = APPS.words["train"]
    return Draft(Rng(1), APPS.knobs[1], "train", words, sayings, APPS.tables, APPS.renderings)


def test_a_step_needs_a_mark() -> None:
    """A step without a check could not be told from one not taken."""
    with pytest.raises(ValueError, match="at least one check"):
        blank().step("look", [Action("note_list", {})])


GOAL = {"do": ["a", "b", "c"], "want": ["a", "b", "c"], "ask": ["x"]}


@pytest.mark.parametrize("part", ["do", "want"])
@pytest.mark.parametrize("wordings", [[], ["a", "b"]])
def test_a_saying_needs_three_wordings(part: str, wordings: list[str]) -> None:
    """Fewer than three, and none could be held out."""
    draft = blank(x={**GOAL, part: wordings})
    with pytest.raises(ValueError, match=f"{part} of saying 'x' must have at least 3 wordings"):
        draft.say("x", announces=[])


def test_a_saying_needs_a_word_to_ask_by() -> None:
    """At R4 it is told to those who ask."""
    with pytest.raises(ValueError, match="ask of saying 'x' must have at least one word"):
        blank(x={**GOAL, "ask": []}).say("x", announces=[])


def test_a_saying_has_to_be_worded() -> None:
    """The message names the nearest that is; the vague request is none of them."""
    draft = blank(vague=["a", "b", "c"], label=GOAL)
    with pytest.raises(ValueError, match=r"one of \['label'\], got 'lable' \(did you mean label"):
        draft.say("lable", announces=[])
    with pytest.raises(ValueError, match="got 'vague'"):
        draft.say("vague", announces=[])


def test_a_saying_can_have_other_wordings() -> None:
    """Its id stays; what it says is the other entry's."""
    draft = blank(vague=["a", "b", "c"], x=GOAL, rule=GOAL, longer={**GOAL, "rule": True})
    draft.say("x", announces=[])
    draft.say("rule", wording="longer", announces=[])
    assert [(s.id, s.rule) for s in draft.finish().sayings] == [("x", False), ("rule", True)]


def test_a_vague_request_needs_three_wordings() -> None:
    """As a saying does."""
    with pytest.raises(ValueError, match="vague must have at least 3 wordings, got 2"):
        blank(vague=["a", "b"]).finish()


def test_a_template_needs_sayings() -> None:
    """Known before any world is drafted."""
    with pytest.raises(ValueError, match=r"none for 'bils' \(did you mean bills\?\)"):
        replace(APPS, templates=(Template("bils", broken),))


def test_checks_of_a_step_need_those_before() -> None:
    """The edges of the workflow become prerequisites of the checks."""
    draft = blank()
    draft.step("a", [], Check("a", "seen", {"records": ["x"]}))
    draft.step("b", [], Check("b", "seen", {"records": ["y"]}), after=["a"])
    assert draft.steps[1].checks[0].needs == ("a",)


def test_verify_reports() -> None:
    """The whole proof on a few tasks: nothing fails, and the counts add up."""
    report = verify.verify(WHERE, seeds=12)
    assert report.mutants.tried == verify.TRIES and report.sound, report.as_json()
    assert (report.tasks, report.failures) == (12, ())
    assert report.faults.planted + report.faults.not_applicable == len(FAULTS)
    assert report.mutants.tried <= verify.TRIES and report.variants.tried == verify.TRIES
    assert set(report.as_json()) == {
        "domain", "tasks", "resampled", "failures", "median_ms", "faults", "mutants", "variants",
    }  # fmt: skip


def test_verify_names_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faulty template is a failure of its tasks, by check; over-strict checks refuse variants."""
    monkeypatch.setattr(verify, "FAULTS", {})
    wrong_gold = verify.verify(only(broken), seeds=2)
    assert not wrong_gold.sound
    assert {"oracle", "prefix"} <= {failure.check for failure in wrong_gold.failures}
    strict = verify.verify(only(overstrict), seeds=2)
    assert not strict.sound and strict.variants.refused > 0
    assert {failure.check for failure in strict.failures} == {"variants"}


def test_a_process_left_behind_is_a_failure() -> None:
    """14. However it was started."""
    failures: list[verify.Failure] = []
    with verify._nothing_left(failures):
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process.communicate(b"")
    assert any("processes left" in failure.detail for failure in failures)


def test_what_is_left_behind_is_a_failure(tmp_path: Path) -> None:
    """14. A folder that a domain forgets is found."""
    failures: list[verify.Failure] = []
    with verify._nothing_left(failures):
        tempfile.mkdtemp(dir=tmp_path)
    assert [failure.check for failure in failures] == ["clean-up"]


def test_verify_refuses_no_seeds() -> None:
    """The message names the parameter, the range and the value."""
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        verify.verify(WHERE, seeds=0)


def test_secrets_stand_alone() -> None:
    """A secret inside a longer number is not the secret."""
    assert contract.stands("12.50", "pay 12.50.")
    assert not contract.stands("12.50", "pay 112.50")
    assert not contract.stands("12", "pay 12.50")
