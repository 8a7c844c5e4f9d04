"""What past results mean does not change by accident."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_digests_and_verdicts_are_the_stored_ones() -> None:
    """Another digest or verdict needs another version, then a new battery."""
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "golden.py"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
