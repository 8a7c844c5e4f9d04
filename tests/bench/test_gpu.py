"""The script for a GPU does on a CPU, in little, all that it does there."""

from __future__ import annotations

import json

import pytest

from headway.agents.policy import Policy
from headway.agents.tiny import bpe, tiny
from headway.bench import gpu


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """One run of everything."""
    folder = tmp_path_factory.mktemp("gpu")
    tokenizer = bpe(["calendar mail note payment 0123456789\n"] * 4, vocabulary=300)
    sizes = {"layers": 1, "width": 16, "heads": 2, "ffn": 16, "context": 2048}
    tiny(tokenizer, seed=0, **sizes).save(folder / "model")
    argv = ["--device", "cpu", "--quick", "--model", str(folder / "model"), "--json"]
    argv += ["--context", "2000", "--lanes", "4", "--episodes", "4", "--out", str(folder / "out")]
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("builtins.print", lambda *args, **to: said.append((args, to)))
        patch.setattr(gpu, "BOUNDS", {"CPU": (1e15, 1e18)})
        assert gpu.main(argv) == 0
    (text,) = [args[0] for args, to in said if "file" not in to]
    return json.loads(text), folder / "out"


def test_all_parts_are_measured(found):
    figures, folder = found
    assert figures == json.loads((folder / "gpu.json").read_text())
    for when in ("before", "after"):
        assert figures[when]["low"] <= figures[when]["success"] <= figures[when]["high"]
    assert figures["train"]["updates"] >= 1
    assert sum(figures[name]["took_s"] for name in ("clone", "speed", "train")) > 0.0


def test_speeds_are_below_their_bounds(found):
    speed = found[0]["speed"]
    names = {"rollout_tokens_per_s", "learner_tokens_per_s", "decode_tokens_per_s_eager"}
    assert set(speed["rates"]) == names
    assert all(0.0 < rate < min(speed["bounds"].values()) for rate in speed["rates"].values())


def test_what_is_sampled_in_float32_does_not_drift(found):
    drift = found[0]["speed"]["drift"]
    assert drift["tokens"] > 0 and abs(drift["mean"]) <= drift["mean_size"] <= drift["largest"]
    assert drift["largest"] < 1e-4 and 0.0 <= drift["k3"] < 1e-8


def test_the_cache_of_a_token():
    """Keys and values of each layer and head, in the bytes of a weight."""
    tokenizer = bpe(["abc"], vocabulary=300)
    sizes = {"layers": 3, "width": 32, "heads": 4, "ffn": 8, "context": 64}
    policy: Policy = tiny(tokenizer, seed=0, **sizes)
    config = policy.model.config
    keys = config.num_key_value_heads * (config.hidden_size // config.num_attention_heads)
    assert gpu._cached(policy) == 2 * 3 * keys * 4


def test_wrong_usage_is_told(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cpu", "--lanes", "0"])
    assert "argument --lanes: must be at least 1, got 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "there is no GPU here; say --device cpu" in capsys.readouterr().err
