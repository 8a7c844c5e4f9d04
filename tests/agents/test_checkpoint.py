"""Checkpoints are whole or not there: every write that a kill can cut is tried."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headway.agents.checkpoint import Checkpoints, held
from headway.agents.policy import Policy
from headway.agents.tiny import tiny
from headway.bench.depot import WORDS


@pytest.fixture(scope="module")
def policy():
    return tiny(WORDS, seed=0, layers=1, width=16, heads=2, ffn=32)


def first(policy):
    return float(next(iter(policy.model.parameters())).detach().flatten()[0])


class Killed(BaseException):
    """What no handler is meant to catch."""


def test_the_newest_and_the_best_are_kept(policy, tmp_path):
    found = Checkpoints(tmp_path)
    assert found.newest() is None and found.best() is None
    for update, best in ((1, True), (2, False), (3, False)):
        found.save(policy, {"x": torch.tensor([update])}, {"update": update}, best=best)
    folder, learner, state = found.newest()
    assert (folder.name, int(learner["x"]), state) == ("update-000003", 3, {"update": 3})
    assert found.best().name == "update-000001"
    assert sorted(p.name for p in tmp_path.glob("update-*")) == ["update-000001", "update-000003"]
    Policy.load(folder)


def test_the_newest_stands_in_where_none_was_best(policy, tmp_path):
    found = Checkpoints(tmp_path)
    found.save(policy, {}, {"update": 1}, best=False)
    assert found.best().name == "update-000001"


@pytest.mark.parametrize("cut", range(12))
def test_a_kill_leaves_the_one_before(policy, tmp_path, monkeypatch, cut):
    """At whichever call to the disk it comes, the run goes on from a checkpoint that is whole."""
    found = Checkpoints(tmp_path)
    found.save(policy, {"x": torch.tensor([1])}, {"update": 1}, best=False)
    calls = [0]

    def cutting(real, at=1):
        def call(*args, **kwargs):
            if calls[0] > cut:  # whoever was killed tidies nothing up
                raise Killed
            calls[0] += at
            if calls[0] > cut:
                raise Killed
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        writers = ((os, "replace"), (os, "fsync"), (torch, "save"))
        for owner, name in (*writers, (policy.tokenizer, "save_pretrained")):
            patch.setattr(owner, name, cutting(getattr(owner, name)))
        patch.setattr(shutil, "rmtree", cutting(shutil.rmtree, at=0))
        whole = Path.write_text

        def torn(path, text, **settings):
            if calls[0] > cut:
                raise Killed
            calls[0] += 1
            if calls[0] > cut:
                whole(path, text[: len(text) // 2], **settings)
                raise Killed
            return whole(path, text, **settings)

        patch.setattr(Path, "write_text", torn)
        try:
            found.save(policy, {"x": torch.tensor([2])}, {"update": 2}, best=False)
        except Killed:
            pass
    folder, learner, state = Checkpoints(tmp_path).newest()
    assert int(learner["x"]) == state["update"] in (1, 2)
    assert first(Policy.load(folder)) == first(policy)
    kept = {folder.name, "state.json"}
    assert {path.name for path in tmp_path.iterdir()} - {"state.json.new"} == kept
    Checkpoints(tmp_path).save(policy, {"x": torch.tensor([2])}, {"update": 2}, best=False)
    assert Checkpoints(tmp_path).newest()[2] == {"update": 2}


def test_what_is_named_is_not_written_again(policy, tmp_path, monkeypatch):
    """An evaluation that makes a checkpoint the best needs no second one, nor a moment of none."""
    found = Checkpoints(tmp_path)
    found.save(policy, {"x": torch.tensor([1])}, {"update": 1}, best=False)

    def cut(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", cut)
        found.save(policy, {"x": torch.tensor([1])}, {"update": 1, "seen": 0.5}, best=True)
    assert found.newest()[2] == {"update": 1, "seen": 0.5}
    assert found.best().name == "update-000001"


def test_all_is_on_the_disk_before_it_is_named(policy, tmp_path, monkeypatch):
    """Every file of a checkpoint, and its folder: a loss of power leaves no name of nothing."""
    found = Checkpoints(tmp_path)
    found.save(policy, {}, {"update": 1}, best=False)
    done, opened = [], {}
    real_open, real_fsync, real_replace = os.open, os.fsync, os.replace

    def opening(path, *args, **kwargs):
        handle = real_open(path, *args, **kwargs)
        opened[handle] = Path(path)
        return handle

    def flushing(handle):
        done.append(opened[handle])
        return real_fsync(handle)

    def replacing(old, new):
        if Path(new).name == "state.json":
            done.append("named")
        return real_replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opening)
        patch.setattr(os, "fsync", flushing)
        patch.setattr(os, "replace", replacing)
        found.save(policy, {}, {"update": 2}, best=False)
    folder, *_ = found.newest()
    before, after = done[: done.index("named")], done[done.index("named") :]
    assert {folder, *folder.iterdir(), tmp_path / "state.json.new"} <= set(before)
    assert tmp_path in after


class Trap:
    """What a pickle can do when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_a_checkpoint_can_make_nobody_run_anything(policy, tmp_path):
    found = Checkpoints(tmp_path / "run")
    found.save(policy, {}, {"update": 1}, best=False)
    file = tmp_path / "run" / "update-000001" / "learner.pt"
    torch.save({"x": Trap(tmp_path / "caught")}, file)
    with pytest.raises(ValueError, match="Weights only load failed"):
        found.newest()
    assert not (tmp_path / "caught").exists()


def test_what_is_broken_is_named(policy, tmp_path):
    found = Checkpoints(tmp_path)
    found.save(policy, {}, {"update": 1}, best=False)
    (tmp_path / "update-000001" / "learner.pt").unlink()
    with pytest.raises(ValueError, match="names a checkpoint that is not there"):
        found.newest()
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(ValueError, match="must be JSON"):
        Checkpoints(Path(tmp_path)).newest()


@pytest.mark.parametrize(
    "change",
    [
        {"newest": "update-000099"},
        {"newest": 3},
        {"best": "../update-000001"},
        {"best": ["update-000001"]},
        {"state": []},
        {"state": {"update": -1}},
        {"state": {"update": True}},
        {"state": {}},
    ],
)
def test_a_pointer_that_nobody_wrote_is_refused(policy, tmp_path, change):
    """And nothing is tidied up by it."""
    found = Checkpoints(tmp_path)
    found.save(policy, {}, {"update": 1}, best=False)
    file = tmp_path / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ValueError, match=r"state\.json must name the newest checkpoint"):
        found.newest()
    assert (tmp_path / "update-000001").is_dir()


@pytest.mark.parametrize("written", [b"", b"junk", b"PK\x03\x04 torn"])
def test_a_torn_checkpoint_is_named(policy, tmp_path, written):
    found = Checkpoints(tmp_path)
    found.save(policy, {}, {"update": 1}, best=False)
    (tmp_path / "update-000001" / "learner.pt").write_bytes(written)
    with pytest.raises(ValueError, match=r"learner\.pt must be what a run has saved"):
        found.newest()


def test_what_others_put_there_stays(policy, tmp_path):
    """A checkpoint that somebody set aside, or a folder that happens to have such a name."""
    found = Checkpoints(tmp_path)
    others = ("keep-update-000001", "update-notes", "my.update-000001.new", "update-1")
    for name in others:
        (tmp_path / name).mkdir()
    for update in (1, 2, 3):
        found.save(policy, {}, {"update": update}, best=False)
    found.newest()
    assert {p.name for p in tmp_path.iterdir()} == {*others, "update-000003", "state.json"}


def test_one_process_at_a_time(tmp_path):
    """Whoever comes second is told, whoever was killed is no hindrance, and nothing is left."""
    code = """
import sys, time
from pathlib import Path
from headway.agents.checkpoint import held
with held(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(600)
"""
    argv = [sys.executable, "-c", code, str(tmp_path / "run")]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "in\n"
        with pytest.raises(ValueError, match="nothing else runs in"), held(tmp_path / "run"):
            pass
    finally:
        child.kill()
        child.communicate()
    with held(tmp_path / "run"):
        assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("kept", [[], ["log.jsonl"], ["mine.txt"]])
def test_what_was_refused_has_not_begun(tmp_path, kept):
    """A new folder goes with all that was put into it, unless there is a line of the log."""
    if "mine.txt" in kept:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "mine.txt").touch()
    with pytest.raises(ValueError, match="x"), held(tmp_path / "run"):
        for name in ("config.json", *kept):
            (tmp_path / "run" / name).touch()
        raise ValueError("x")
    assert (tmp_path / "run").exists() == bool(kept)
