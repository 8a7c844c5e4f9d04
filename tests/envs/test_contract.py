"""The contract refuses what is unsound, and what it certifies can be trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from headway.envs import contract, verify
from headway.envs.contract import UnsoundTask, certify, examine
from headway.envs.domain import Domain, Template
from headway.envs.domains.apps import APPS
from headway.envs.faults import FAULTS, plant
from headway.envs.render import build
from headway.envs.rng import Rng
from headway.envs.task import TaskKey
from headway.envs.world import Action, Draft
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


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != "set order"])
def test_planted_faults_are_noticed(kind: str) -> None:
    """Of every kind; ``headway verify`` counts them over 20 worlds each."""
    noticed = []
    for seed in range(60):
        template = APPS.template_names("dev")[seed % 6]
        instance = build(APPS, key(template, split="dev", seed=seed, difficulty=2 + seed % 4))
        spoiled = plant(kind, instance, Rng("test", kind, seed))
        if spoiled is not None and not examine(instance, mutants=0)[0]:
            noticed.append(bool(examine(spoiled, mutants=10**6)[0]))
        if len(noticed) == 4:
            break
    assert sum(noticed) >= 3, f"{kind}: {noticed}"


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


def test_a_step_needs_a_mark() -> None:
    """A step without a check could not be told from one not taken."""
    draft = Draft(Rng(1), APPS.knobs[1], "train", APPS.words["train"], APPS.tables)
    with pytest.raises(ValueError, match="at least one check"):
        draft.step("look", [Action("note_list", {})])


def test_a_saying_needs_three_wordings() -> None:
    """Fewer than three, and none could be held out."""
    draft = Draft(Rng(1), APPS.knobs[1], "train", APPS.words["train"], APPS.tables)
    with pytest.raises(ValueError, match="at least 3 wordings"):
        draft.say("x", do=("a", "b"), want=("a", "b", "c"), announces=[], ask=("x",))


def test_checks_of_a_step_need_those_before() -> None:
    """The edges of the workflow become prerequisites of the checks."""
    draft = Draft(Rng(1), APPS.knobs[1], "train", APPS.words["train"], APPS.tables)
    draft.step("a", [], Check("a", "seen", {"records": ["x"]}))
    draft.step("b", [], Check("b", "seen", {"records": ["y"]}), after=["a"])
    assert draft.steps[1].checks[0].needs == ("a",)


def test_verify_reports() -> None:
    """The whole proof on a few tasks: nothing fails, and the counts add up."""
    report = verify.verify(WHERE, seeds=12)
    assert report.sound, report.as_json()
    assert (report.tasks, report.failures) == (12, ())
    assert report.faults.planted + report.faults.not_applicable == len(FAULTS)
    assert report.mutants.tried <= verify.TRIES and report.variants.tried == verify.TRIES
    assert set(report.as_json()) == {
        "domain", "tasks", "resampled", "failures", "median_ms", "faults", "mutants", "variants",
    }  # fmt: skip


def test_verify_names_what_fails() -> None:
    """A faulty template is a failure of each of its tasks, not an exception."""
    domain = only(broken)
    failures: list[verify.Failure] = []
    with verify._nothing_left(failures):
        for bad in list(verify.keys(domain, 3)):
            with pytest.raises(UnsoundTask):
                certify(domain, bad)
    assert not failures


def test_what_is_left_behind_is_a_failure(tmp_path: object) -> None:
    """14. A folder that a domain forgets is found."""
    import tempfile

    failures: list[verify.Failure] = []
    with verify._nothing_left(failures):
        tempfile.mkdtemp()
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
