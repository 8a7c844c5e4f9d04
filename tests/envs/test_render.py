"""Five renderings: what is said where, and what has to be found first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.envs.contract import Run
from headway.envs.domains.apps import APPS
from headway.envs.render import build
from headway.envs.task import TaskKey
from headway.envs.user import answer, user_table


def key(template: str, rendering: int, **parts: object) -> TaskKey:
    """A key of a dev task."""
    return replace(TaskKey("Apps", 0, template, 3, rendering, "dev", 4), **parts)


@pytest.mark.parametrize("template", APPS.template_names("dev"))
def test_slots_hold_their_facts(template: str) -> None:
    """Every slot of every clause spans exactly the value of its fact."""
    for rendering in range(5):
        instance = build(APPS, key(template, rendering))
        for clause in instance.task.clauses:
            for fact, start, end in clause.slots:
                if fact in instance.world.facts:
                    assert clause.text[start:end] == instance.world.facts[fact]


@pytest.mark.parametrize("template", APPS.template_names("dev"))
def test_every_clause_stands_where_it_says(template: str) -> None:
    """In the instruction, in a note that a tool shows, or with the user; nowhere twice."""
    for rendering in range(5):
        instance = build(APPS, key(template, rendering))
        texts = [note["text"] for note in instance.task.tables["notes"].values()]
        for clause in instance.task.clauses:
            assert (clause.text in instance.task.instruction) == (clause.place == "instruction")
            assert any(clause.text in text for text in texts) == (clause.place == "document")
        places = {clause.place for clause in instance.task.clauses}
        assert ("document" in places) == (rendering == 3)
        assert ("user" in places) == (rendering == 4)


@pytest.mark.parametrize("rendering", [3, 4])
@pytest.mark.parametrize("template", APPS.template_names("dev"))
def test_what_is_hidden_is_found_in_the_prelude(template: str, rendering: int) -> None:
    """The prelude earns evidence only; work without it counts the same in the end."""
    instance = build(APPS, key(template, rendering))
    run = Run(instance).play(a for step in instance.prelude for a in step.actions)
    verdict = run.grade()
    assert 0 < verdict.progress <= 0.15
    assert {c.id for s in instance.prelude for c in s.checks} == {
        name for name, ok in verdict.ok.items() if ok
    }
    checks = {c.id: c for c in instance.task.acceptance.checks}
    for clause in instance.task.clauses:
        if clause.place != "instruction":
            asked = "document.read" if clause.place == "document" else f"ask.{clause.id}"
            assert all(asked in checks[name].needs for name in clause.announces)


def test_a_user_tells_what_it_is_asked_about() -> None:
    """By any of the clause's words, in any case; a question about nothing gets the topics."""
    instance = build(APPS, key("bills", 4))
    known = user_table(instance.task.clauses)
    for topic, row in known.items():
        for word in row["ask"]:
            text, told = answer(known, f"And the {word.upper()}, please?")
            assert topic in told and row["text"] in text
    text, told = answer(known, "hello")
    assert not told and all(row["ask"][0] in text for row in known.values())
    assert not any(row["text"] in text for row in known.values())


def test_a_checklist_names_no_secret() -> None:
    """R0 gives every argument that is not to be found out, and says where those are found."""
    instance = build(APPS, key("bills", 0))
    assert 'mail_label(id="' in instance.task.instruction
    assert "amount=<from mail/" in instance.task.instruction
    assert "memo=<your choice>" in instance.task.instruction


def test_paired_renderings_share_world_and_seed() -> None:
    """The stream of the world does not know the rendering; the stream of the text does."""
    worlds = [build(APPS, key("invite", rendering)).world for rendering in range(5)]
    assert all(world == worlds[0] for world in worlds)
