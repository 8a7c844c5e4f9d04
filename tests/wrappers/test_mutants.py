"""The script that plants faults: its lists fit the code, and it tells killed from survived."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ("tests/wrappers/test_schedule.py::test_linear",)

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="copies what git lists")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutants"]


def test_every_list_fits_the_code(script):
    assert len([m for m in script.mutants() if m.file.startswith("wrappers/")]) >= 25


def test_an_entry_that_does_not_fit(script, tmp_path, monkeypatch):
    """Text that stands there twice, or not at all, would plant nothing or something else."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "code.py").write_text("one, two, two")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    for find, times in (("two", 2), ("three", 0)):
        entry = f'[{{"file": "code.py", "find": "{find}", "replace": "x", "why": "", "tests": []}}]'
        (tmp_path / "tests" / "mutants.json").write_text(entry)
        with pytest.raises(script.Broken, match=f"exactly once in code.py .* got {times} times"):
            script.mutants()
        assert script.main([]) == 2


def test_killed_and_survived(script, tmp_path):
    """Tests see the fault in the copy, never the tree that it was copied from."""
    copy = script.Copy(tmp_path)
    harm = script.Mutant(
        "wrappers/schedule.py", "max(0.0, 1.0 - k / steps)", "1.0", "never falls", TESTS
    )
    none = script.Mutant("wrappers/schedule.py", "1.0 - k / steps", "1.0 - (k / steps)", "", TESTS)
    before = (copy.root / harm.file).read_bytes()
    assert not copy.survives(harm)
    assert (copy.root / harm.file).read_bytes() == before
    assert copy.survives(none)
