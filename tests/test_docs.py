"""The pages under docs and the README run as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def run(code: str, folder: Path) -> str:
    """Runs a program in a folder of its own and returns what it prints."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_new_world_is_sound_and_playable(tmp_path: Path) -> None:
    """``docs/new-domain.md``: two files and one row make a world that passes the contract."""
    (words,) = blocks("docs/new-domain.md", "json")
    tools, template, domain, row, proof = blocks("docs/new-domain.md", "python")
    (tmp_path / "library.json").write_text(words, encoding="utf-8")
    code = "\n\n".join((tools, template, domain))
    (tmp_path / "library.py").write_text(code, encoding="utf-8")
    printed = run(proof, tmp_path)
    assert printed.startswith("True ()"), printed
    play = """
for rendering in range(5):
    env = gym.make("me/Library-v0", rendering=rendering, split="test", difficulty=5)
    env.reset(seed=rendering)
    for action in env.unwrapped.solution():
        obs, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated) == (1.0, True), obs
print("ok")
"""
    assert run(row + play, tmp_path).strip() == "ok"


def test_the_foreign_example_is_the_one_on_the_page(tmp_path: Path) -> None:
    """``docs/foreign-env.md`` runs as it stands, and its class is the one in ``examples``."""
    shown, stacked = blocks("docs/foreign-env.md", "python")
    taxi = shown[shown.index("class ") :]
    assert taxi in (ROOT / "examples" / "foreign_taxi.py").read_text(encoding="utf-8")
    assert len(taxi.splitlines()) <= 25
    reward, base, channels = run(shown + stacked, tmp_path).split(maxsplit=2)
    assert float(reward) == float(base) == -1.0 and channels.strip() == "{'potential': 0.0}"


def test_the_agent_on_the_page_plays(tmp_path: Path) -> None:
    """``docs/agents.md``: what it prints is what the page quotes, and both evaluations agree."""
    agent, reads, schemas, evaluation = blocks("docs/agents.md", "python")
    (tmp_path / "my_agent.py").write_text(agent, encoding="utf-8")
    printed = run(reads + schemas, tmp_path)
    (quoted,) = blocks("docs/agents.md", "text")
    at = 0
    for piece in filter(str.strip, quoted.split("[...]")):
        assert piece.strip() in printed[at:], piece
        at = printed.index(piece.strip(), at)
    assert "mail_send ['to', 'subject', 'body']" in printed
    assert run(evaluation, tmp_path).startswith("0.0 (0.0, ")
    (command,) = blocks("docs/agents.md", "bash")
    assert command.split()[0] == "headway"
    argv = [sys.executable, "-m", "headway.cli", *command.split()[1:], "--json"]
    out = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    found = json.loads(out)
    assert (found["agent"], found["turns"]) == ("my_agent:make_agent", 2.0)


def test_the_rewards_of_the_page(tmp_path: Path) -> None:
    """``docs/rewards.md``: the record, siblings paid alike, and a group of the oracle's."""
    code = "\n".join(blocks("docs/rewards.md", "python"))
    record, reached, *paid, returns = run(code, tmp_path).splitlines()
    for key in re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/rewards.md").read_text("utf-8"), re.M):
        assert f"'{key}': " in record
    assert int(reached) == 1 and paid[0] == paid[1] and float(paid[0]) > 0.0
    # Outcome 1, and half of the progress credit of 0.5; the shaping sums to nothing.
    assert [round(value, 9) for value in json.loads(returns)] == [1.25] * 4


def test_the_judges_of_the_page(tmp_path: Path) -> None:
    """``docs/judges.md``: one judge is accepted, one refused, and what they pay."""
    rate, refusal, paid, bands, tie = run(
        "\n".join(blocks("docs/judges.md", "python")), tmp_path
    ).splitlines()
    assert float(rate) == 0.0 and float(tie) == 0.5
    assert "passed" in refusal and "correct" in refusal
    # The rule takes every item for met, the pitfall too: (2 + 1 - 1) / 4 of 0.3.
    assert paid == "{'rubric': 0.15} None"
    assert [round(x, 9) for x in json.loads(bands)] == [-0.05, 0.05, 0.95, 1.05]


def test_the_ten_lines_of_the_readme_run(tmp_path: Path) -> None:
    """They play an episode; the last line pays the outcome and the withheld progress."""
    (example,) = blocks("README.md", "python")
    lines = run(example, tmp_path).splitlines()
    turn, reward = lines[-1].split()[:2]
    assert int(turn) == len(lines) and float(reward) == 1.5


def test_the_readme_names_only_what_is_there() -> None:
    """Every command, page and file that README and docs name exists."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for target in re.findall(r"\]\((docs/[^)]+)\)|`((?:scripts|examples|tests)/[\w./]+)`", text):
        assert (ROOT / "".join(target)).exists(), target
    for command in set(re.findall(r"^headway (\w+)", text, flags=re.MULTILINE)):
        subprocess.run(
            [sys.executable, "-m", "headway.cli", command, "--help"],
            check=True,
            capture_output=True,
        )
