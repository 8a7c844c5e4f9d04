"""What is held out stays out, and nothing is seen before it is earned."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from headway.envs.contract import Run, stands
from headway.envs.domains.apps import APPS
from headway.envs.render import CLOSINGS, OPENINGS, Instance, build, canary, offered
from headway.envs.task import RENDERINGS, SPLITS, TaskKey


def instances(split: str, count: int) -> Iterator[Instance]:
    """Tasks of a split that go round templates, difficulties and renderings."""
    names = APPS.template_names(split)
    for seed in range(count):
        yield build(
            APPS,
            TaskKey(
                "Apps",
                0,
                names[seed % len(names)],
                1 + seed % 5,
                RENDERINGS[seed // 5 % 5],
                split,
                seed,
            ),
        )


def said(instance: Instance) -> str:
    """Everything that states the task, wherever it stands."""
    hidden = [c.text for c in instance.task.clauses if c.place != "instruction"]
    return "\n".join([instance.task.instruction, *hidden])


def grams(text: str) -> list[tuple[str, ...]]:
    """The 8-grams of a text."""
    words = re.findall(r"\S+", text)
    return [tuple(words[i : i + 8]) for i in range(len(words) - 7)]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_held_out_texts_share_few_8_grams_with_train(split: str) -> None:
    """Under 10 %; with only names held out it was 60 % (measured)."""
    train = {gram for i in instances("train", 1000) for gram in grams(said(i))}
    held = Counter(gram for i in instances(split, 200) for gram in grams(said(i)))
    shared = sum(count for gram, count in held.items() if gram in train) / held.total()
    assert shared < 0.10, f"{shared:.1%} of the 8-grams of {split} stand in train"


def test_words_of_the_splits_differ() -> None:
    """No name, label or title stands in two splits, in no list."""
    for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")):
        for name, words in APPS.words[a].items():
            assert not set(words) & set(APPS.words[b][name]), (a, b, name)
            assert len(words) == len(set(words))


def test_held_out_templates_are_not_in_train() -> None:
    """One family in five; it cannot be asked for either."""
    held = {t.name for t in APPS.templates if t.held_out}
    assert held and not held & set(APPS.template_names("train"))
    assert held <= set(APPS.template_names("test")) & set(APPS.template_names("dev"))


def test_held_out_wordings_are_not_in_train() -> None:
    """Every sentence of train is one of the first two thirds of its wordings."""
    for alternatives in (OPENINGS, CLOSINGS, ("a", "b", "c"), tuple("abcdefg")):
        train, test = offered(alternatives, "train"), offered(alternatives, "test")
        assert [*train, *test] == list(alternatives)
        assert len(test) == len(alternatives) // 3
    for instance in instances("train", 200):
        for saying in instance.world.sayings:
            for text in (*offered(saying.do, "test"), *offered(saying.want, "test")):
                skeleton = max(re.split(r"\{\w+\}", text), key=len)
                assert skeleton not in said(instance), (instance.task.id, skeleton)


def test_every_saying_is_said() -> None:
    """No entry of the data that no template uses, at any difficulty."""
    said_by: dict[str, set[tuple[str, ...]]] = {}
    for template in APPS.template_names("test"):
        worlds = [
            build(APPS, TaskKey("Apps", 0, template, level, 2, "test", 1)).world
            for level in APPS.knobs
        ]
        said_by[template] = {saying.do for world in worlds for saying in world.sayings}
    assert list(APPS.sayings) == list(said_by)
    for template, entries in APPS.sayings.items():
        for name, entry in entries.items():
            assert name == "vague" or tuple(entry["do"]) in said_by[template], (template, name)


@pytest.mark.parametrize("split", SPLITS)
def test_nothing_is_seen_before_it_is_earned(split: str) -> None:
    """Neither canary nor answer in any text; a secret only in the record that holds it."""
    for instance in instances(split, 40):
        mark = canary(instance.task.key)["canary"]["text"]
        run = Run(instance)
        texts = [
            instance.task.instruction,
            json.dumps([t.schema() for t in instance.toolbox.values()]),
        ]
        texts += [run.do(action).text for action in instance.look(run.box)]
        texts += [run.do(action).text for action in instance.solution()[:-1]]
        assert not any(mark in text for text in texts)
        for name, secret in instance.world.secrets.items():
            before = [instance.task.instruction, *(c.text for c in instance.task.clauses)]
            assert not any(stands(secret.value, text) for text in before), (instance.task.id, name)


def test_canaries_mark_tasks() -> None:
    """Each task has its own, stable, and it travels with the state."""
    a, b = (build(APPS, TaskKey("Apps", 0, "bills", 1, 2, "train", seed)) for seed in (1, 2))
    assert canary(a.task.key) != canary(b.task.key)
    state = a.open().get_state()["tables"]["canary"]
    assert state == canary(a.task.key)
