"""The benchmark of rollouts compares like with like; what it finds depends on the machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headway.agents.engine import Engine
from headway.bench import rollout
from headway.bench.rollout import anew, interleaved, main, tiny


def test_one_run_prints_one_object(capsys):
    assert main(["--lanes", "8", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rollout"]["logp_gap"] < 1e-5
    assert set(found["rollout"]["tokens_per_cpu_s"]) == {"engine", "engine with gain", "generate"}
    assert found["rollout"]["tokens"] == found["step"]["trained_tokens"] > 0
    assert found["step"]["shape"] == [8, found["rollout"]["context"]]
    assert found["step"]["cpu_s"]["headway"] > 0.0


def test_both_play_the_same_episodes():
    """Written by the expert, so many tokens are sampled with a cache over turns and without."""
    setting = replace(tiny(8), teacher=lambda env, obs, turn: env.get_wrapper_attr("expert")())
    made = setting.collect(Engine(setting.policy, lanes=8, context=setting.context))
    assert all(one.success for one in made.trajectories)
    assert anew(setting) == made.tokens["policy"] == 8 * 6 * 4


def test_without_a_teacher_a_turn_ends_where_the_policy_ends_it():
    setting = tiny(4)
    template = setting.policy.template
    contexts = [template.head("order cup north gold"), template.head("order")]
    for ids in rollout._generated(setting.policy, contexts, 6, None):
        assert 1 <= len(ids) <= 6
        assert not template.stops & set(ids[:-1])
        assert len(ids) == 6 or ids[-1] in template.stops


def test_arms_take_turns():
    """Each is measured as often, and once more before."""
    calls = []

    def arm(name):
        return lambda: calls.append(name) or len(calls)

    found = interleaved({"a": arm("a"), "b": arm("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert [len(speeds) for speeds in found.values()] == [2, 2]


def test_smollm2_has_to_be_somewhere(monkeypatch):
    def missing(name):
        raise rollout.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(rollout.importlib.metadata, "distribution", missing)
    with pytest.raises(FileNotFoundError, match="name its file with --gguf"):
        main(["--model", "smollm2"])
