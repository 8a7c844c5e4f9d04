"""The command line: exit statuses, JSON that is nothing but JSON, and a person at the keyboard."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import gymnasium as gym
import pytest

import headway
from headway import cli
from headway.agents import AGENTS
from headway.bench import speed
from headway.cli import output, worlds
from headway.cli import program as commands
from headway.envs.box import SandboxDied
from headway.wrappers.lines import append, encode
from headway.wrappers.record import episodes

COMMANDS = ("list", "play", "verify", "eval", "rescore", "audit", "bench", "demo")


@pytest.fixture
def run(capsys, monkeypatch):
    """``run(*argv, typed="")`` -> (status, stdout, stderr), without a process of its own."""

    def run(*argv, typed=""):
        monkeypatch.setattr(sys, "stdin", StringIO(typed))
        try:
            status = cli.main(argv)
        except SystemExit as leaving:
            status = leaving.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


OURS = {
    "mine.py": """
import gymnasium as gym
from headway.agents import NoOp, Random
from headway.envs.domains.apps import APPS as WORLD

gym.register("me/Mine-v0", "headway.envs.tool_env:ToolEnv", kwargs={"domain": "mine:WORLD"})

idle = lambda seed: NoOp()

class Chance(Random):
    pass

make_agent = Chance
""",
    "library.py": "from headway.envs.domains.apps import APPS as LIBRARY\n",
}


@pytest.fixture
def mine(tmp_path):
    """A folder with a module that only who stands in it can import."""
    for name, text in OURS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


EXAMPLES = Path(__file__).parents[1] / "examples"


def process(*argv, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "headway.cli", *argv],
        capture_output=True,
        timeout=60,
        **kwargs,
    )


def one_object(text):
    """The one JSON object that ``text`` is, by a reader that takes no NaN."""

    def refuse(constant):
        raise ValueError(constant)

    assert text.endswith("\n") and text.count("\n") == 1
    return json.loads(text, parse_constant=refuse)


# Usage.


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(run, command):
    status, out, err = run(command, "--help")
    assert (status, err) == (0, "")
    assert re.search(rf"examples:\n  headway {command}", out)


def test_examples_are_right_usage(run, mine, monkeypatch):
    """Every example in every help text is accepted by the parser, given what is one's own."""
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for command in COMMANDS:
        _, out, _ = run(command, "--help")
        for line in out.partition("examples:\n")[2].splitlines():
            program, *argv = line.split()
            assert program == "headway"
            assert commands.arguments(argv).command == command


def test_help_and_version(run):
    status, out, _ = run("--help")
    assert status == 0 and all(command in out for command in COMMANDS)
    assert run("--version")[:2] == (0, f"headway {commands.version('headway')}\n")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("", "required: COMMAND"),
        ("evil", "no command 'evil'; did you mean 'eval'?"),
        ("eval", "required: ID"),
        ("eval Aps", "no environment 'Aps'; did you mean 'Apps'?"),
        ("eval headway/Apps-v9", "'headway/Apps-v9'; did you mean 'headway/Apps-v0'"),
        ("play 9", "no environment '9'; choose from Apps"),
        ("verify apps", "no environment 'apps'; did you mean 'Apps'?"),
        ("eval Apps --agent oracel", "must be one of oracle, reader, random, noop, got 'oracel'"),
        ("eval Apps --agent oracel", "did you mean 'oracle'?"),
        ("eval nowhere_at_all:ANY", "No module named 'nowhere_at_all'"),
        ("eval headway.envs:ANY", "'headway.envs:ANY' must name a Domain, found None"),
        ("verify headway:headway/Aps-v0", "Did you mean: `Apps`?"),
        ("eval gymnasium:CartPole-v1", "'CartPole-v1' is no headway environment: register it"),
        ("eval Apps --agent nowhere_at_all:ANY", "got 'nowhere_at_all:ANY': No module named"),
        ("eval Apps --agent headway.agents:ANY", "has no attribute 'ANY'"),
        ("eval Apps --agent headway.agents:Oracle", "which Oracle does not; write lambda seed: "),
        ("eval headway:headway/Apps-v0 --template bils", "did you mean 'bills'?"),
        ("eval Apps --episodes 0", "--episodes: must be an int from 1 to 1000000000, got '0'"),
        (
            "eval Apps --episodes many",
            "--episodes: must be an int from 1 to 1000000000, got 'many'",
        ),
        ("eval Apps --episodes 4 --samples 3", "--episodes: must be a multiple of --samples 3"),
        ("eval Apps --samples 0", "--samples: must be an int from 1 to 1000000000, got '0'"),
        ("eval Apps --episodes 1000000001", "from 1 to 1000000000, got '1000000001'"),
        (f"verify Apps --seeds {'9' * 5000}", "from 1 to 1000000000, got '999"),
        ("eval Apps --jobs 1025", "--jobs: must be an int from 1 to 1024, got '1025'"),
        ("eval Apps --seed -1", "--seed: must be an int from 0 to 1000000000, got '-1'"),
        ("eval Apps --jobs 0", "--jobs: must be an int from 1 to 1024, got '0'"),
        ("eval Apps --split tset", "--split: must be one of train, dev, test, got 'tset'"),
        ("eval Apps --difficulty 6", "--difficulty: must be one of 1, 2, 3, 4, 5, got '6'"),
        ("play Apps --rendering 5", "--rendering: must be one of 0, 1, 2, 3, 4, got '5'"),
        ("eval Apps --template bils", "--template (split test): must be one of bills, "),
        ("eval Apps --template bils", "got 'bils'; did you mean 'bills'?"),
        ("play Apps --template invite", "--template (split train): must be one of bills, "),
        ("eval Apps --episods 3", "no argument '--episods'; did you mean '--episodes'?"),
        ("eval Apps --episode 3", "no argument '--episode'; did you mean '--episodes'?"),
        ("eval Apps more", "no argument 'more'"),
        ("verify Apps --seeds 0", "--seeds: must be an int from 1 to 1000000000, got '0'"),
        ("bench --against nobody", "--against: must be one of "),
        ("demo --out /nowhere/at/all.html", "--out: no folder '/nowhere/at' to write into"),
        ("demo --episodes 1.5", "--episodes: must be an int from 1 to 1000000000, got '1.5'"),
    ],
)
def test_wrong_usage_says_what_and_exits_2(run, argv, says):
    status, out, err = run(*argv.split())
    assert (status, out) == (2, "")
    assert says in err and "Traceback" not in err


@pytest.mark.parametrize("name", ["Apps", "Apps-v0", "headway/Apps-v0"])
def test_an_id_may_be_short(run, name):
    status, out, _ = run("eval", name, "--agent", "noop", "--episodes", "1", "--json")
    assert (status, one_object(out)["id"]) == (0, "headway/Apps-v0")


# Commands.


def test_list(run):
    status, out, err = run("list", "--json")
    assert (status, err) == (0, "")
    found = one_object(out)
    assert list(found) == ["environments"]
    assert [row["id"] for row in found["environments"]] == list(headway.envs.DOMAINS)
    for row in found["environments"]:
        assert list(row) == ["id", "domain", "templates", "tools", "sandbox", "views", "extras"]
        assert row["sandbox"] == "none" and "submit" in row["tools"] and row["templates"]
    status, out, err = run("list")
    assert (status, err) == (0, "")
    assert "headway/Apps-v0" in out and "mail_search" in out and "bills" in out


EVAL_KEYS = [
    *("id", "agent", "episodes", "success", "progress", "turns"),
    *("pass_at_k", "by_template", "by_check", "no_verdict"),
]


def test_eval(run):
    argv = ["eval", "Apps", "--agent", "oracle", "--episodes", "4", "--samples", "2"]
    status, out, err = run(*argv, "--difficulty", "2", "--template", "split", "--json")
    assert (status, err) == (0, "")
    found = one_object(out)
    assert list(found) == EVAL_KEYS
    assert (found["agent"], found["episodes"], found["no_verdict"]) == ("oracle", 4, 0)
    assert (found["success"], found["progress"]) == (1.0, 1.0)
    assert found["pass_at_k"] == {"1": 1.0, "2": 1.0}
    assert list(found["by_template"]) == ["split"]
    assert list(found["by_template"]["split"]) == [
        *("episodes", "success", "interval", "progress", "curve", "turns", "no_verdict", "died")
    ]
    assert set(found["by_check"].values()) == {1.0}
    assert found["turns"] == len(found["by_template"]["split"]["curve"]) - 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_bars_stay_off_stdout():
    """With a terminal behind stderr the bar is there, and stdout is JSON all the same."""
    import pty

    reading, writing = pty.openpty()
    argv = [sys.executable, "-m", "headway.cli", "eval", "Apps", "--episodes", "2", "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=writing, text=True, timeout=60)
    os.close(writing)
    assert done.returncode == 0 and list(one_object(done.stdout)) == EVAL_KEYS
    assert b"oracle" in os.read(reading, 10_000)
    os.close(reading)


@pytest.mark.parametrize("name", AGENTS)
def test_eval_prints_for_people(run, name):
    status, out, _ = run("eval", "Apps", "--agent", name, "--episodes", "2")
    assert status == 0
    assert name in out and "pass@1" in out and "no verdict: 0" in out


class Doomed(gym.Wrapper):
    """A machine that dies on the first turn."""

    def step(self, action):
        raise SandboxDied("out of disk", by="infra")


def test_eval_without_any_verdict(run, monkeypatch):
    """Nothing measured is null, never 0 and never NaN, and the status says so."""
    make = gym.make
    monkeypatch.setattr(gym, "make", lambda *args, **kwargs: Doomed(make(*args, **kwargs)))
    status, out, err = run("eval", "Apps", "--episodes", "2", "--json")
    found = one_object(out)
    assert status == 1 and "out of disk" in err
    assert found["success"] is found["progress"] is found["turns"] is None
    assert found["pass_at_k"] == {"1": None}
    assert found["no_verdict"] == 0
    assert sum(row["died"] for row in found["by_template"].values()) == 2
    status, out, _ = run("eval", "Apps", "--episodes", "2")
    assert status == 1 and "machine died: 2" in out


@pytest.fixture
def short_proof(monkeypatch):
    """One kind of planted fault and 4 mutants: the form of the proof, not its force."""
    proof = sys.modules["headway.envs.verify"]
    monkeypatch.setattr(proof, "FAULTS", {"wrong gold": proof.FAULTS["wrong gold"]})
    monkeypatch.setattr(proof, "TRIES", 4)
    return proof


def test_verify(run, short_proof):
    status, out, err = run("verify", "Apps", "--seeds", "2", "--json")
    assert (status, err) == (0, "")
    found = one_object(out)
    assert list(found) == [
        *("domain", "tasks", "resampled", "failures", "median_ms"),
        *("faults", "mutants", "variants"),
    ]
    assert (found["domain"], found["tasks"], found["failures"]) == ("Apps", 2, [])
    assert {"planted", "caught", "not_applicable"} <= set(found["faults"])
    assert set(found["mutants"]) == {"tried", "caught"}
    assert set(found["variants"]) == {"tried", "refused"}


def test_verify_reports_what_is_unsound(run, short_proof, monkeypatch):
    monkeypatch.setattr(short_proof, "CAUGHT_AT_LEAST", 21)
    status, out, _ = run("verify", "Apps", "--seeds", "1")
    assert status == 1
    assert "Apps is NOT sound." in out
    assert "wrong gold" in out and "0 of 1" in out


def test_bench(run, monkeypatch):
    """As few rounds as measure everything once."""
    monkeypatch.setattr(speed, "QUICK_ROUNDS", speed.RARELY)
    status, out, err = run("bench", "--quick", "--against", "gymnasium", "--json")
    assert (status, err) == (0, "")
    found = one_object(out)
    assert list(found) == ["rows"]
    for row in found["rows"]:
        assert list(row) == ["name", "unit", "median", "min", "n", "versus", "ratio"]
        # A layer is a difference of two stacks, whose least and middle rounds need not be ordered.
        assert row["n"] >= 1 and ("layer" in row["name"] or row["min"] <= row["median"])
        assert row["ratio"] is None or row["versus"] is not None
    names = [row["name"] for row in found["rows"]]
    assert "contract" in names and any("gymnasium" in name for name in names)


def test_what_was_not_measured_is_null():
    measured = {"a": math.nan, "b": [math.inf, 1.0, (None, {"c": -math.inf})]}
    assert output._plain(measured) == {"a": None, "b": [None, 1.0, [None, {"c": None}]]}


class Text(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.text = ""
        self.feed(text)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("out", ["", "a.html", "folder"])
def test_demo(run, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    status, said, _ = run("demo", "--episodes", "1", *(["--out", out] if out else []))
    path = tmp_path / {"": "headway-demo.html", "folder": "folder/headway-demo.html"}.get(out, out)
    assert status == 0 and f"Wrote {path.relative_to(tmp_path)}" in said
    page = Text(path.read_text(encoding="utf-8"))
    assert all(name in page.text and name in said for name in AGENTS)


# A person plays.


def test_play_to_success(run):
    """The oracle's calls, typed as JSON, and a look at the checks on the way."""
    env = gym.make("headway/Apps-v0", template="bills", difficulty=2)
    env.reset(seed=4)
    lines = [":progress", *env.unwrapped.solution()]
    settings = ["--template", "bills", "--difficulty", "2", "--seed", "4"]
    status, out, err = run("play", "Apps", *settings, typed="\n".join(lines))
    assert (status, err) == (0, "")
    assert "Cheating: an agent never sees this.\nprogress 0.000\n  [ ] " in out
    assert f"Success (peeked 1 times) after turn {len(lines) - 1}.\nprogress 1.000\n  [x] " in out


def test_play_in_short_form(run):
    """Mistakes of the form cost no turn; help, tools and task are there."""
    typed = ":help\n:tools\n:task\n:tsk\n\nnote_lst\nmail_search\n  note_list  \nsubmit\n"
    status, out, err = run("play", "Apps", "--template", "bills", typed=typed)
    assert (status, err) == (0, "")
    assert "no command ':tsk'; did you mean ':task'?" in out
    assert 'Not sent, no turn is spent: unknown tool "note_lst" (did you mean note_list?)' in out
    assert 'Not sent, no turn is spent: mail_search: missing argument "query"' in out
    assert out.count("Tools:\n- mail_search(") == 2
    assert "No success after turn 2.\nprogress 0.000" in out


def test_play_without_colons(run):
    typed = "help\ntools\ntask\nprogress\nmail_search lunch\nmail_search(query='a, b')\nquit\n"
    status, out, err = run("play", "Apps", typed=typed)
    assert (status, err) == (0, "")
    assert out.count("Tools:\n- mail_search(") == 2 and out.count(":progress  which") == 2
    assert 'unknown tool "progress"' in out and "Cheating" not in out
    assert out.endswith("Left after turn 2.\n")


@pytest.mark.parametrize("typed", ["note_list\n:quit\nnote_list\n", "note_list\n", "note_list"])
def test_leaving_is_polite(run, typed):
    status, out, err = run("play", "Apps", typed=typed)
    assert (status, err) == (0, "")
    assert out.endswith("Left after turn 1.\n")


def test_ctrl_c_while_playing(run, monkeypatch):
    def interrupted(prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    status, out, err = run("play", "Apps")
    assert (status, err) == (0, "") and out.endswith("Left after turn 0.\n")


def test_play_when_the_machine_dies(run, monkeypatch):
    make = gym.make
    monkeypatch.setattr(gym, "make", lambda *args, **kwargs: Doomed(make(*args, **kwargs)))
    status, _, err = run("play", "Apps", typed="note_list\n")
    assert (status, err) == (1, "headway: the machine failed: out of disk\n")


def test_piped_input_of_any_bytes():
    """A pipe, bytes that are no UTF-8, and a terminal that knows ASCII only."""
    done = process(
        "play",
        "Apps",
        input=b"\xff\xfe note\nmail_search query=\xc3\xa9\xff\n:quit\n",
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"Left after turn 1.\n")


SCRIPT = "import sys; sys.path.remove(''); from headway.cli import main; sys.exit(main())"
"""Like the installed command, which does not look for modules in the current folder."""


@pytest.mark.parametrize("id", ["mine:WORLD", "mine:me/Mine-v0"])
@pytest.mark.parametrize("agent", ["mine:idle", "mine:Chance"])
def test_eval_of_ones_own(mine, id, agent):
    """Two processes find them, too: even a lambda goes by its name."""
    argv = ["eval", id, "--agent", agent, "--episodes", "2", "--jobs", "2", "--json"]
    if agent == "mine:Chance":
        argv[6:8] = []
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *argv], cwd=mine, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = one_object(done.stdout.decode())
    assert list(found) == EVAL_KEYS
    assert (found["id"], found["agent"], found["episodes"]) == (id, agent, 2)


def test_verify_and_play_ones_own(run, short_proof, mine, monkeypatch):
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "path", list(sys.path))
    status, out, _ = run("verify", "mine:WORLD", "--seeds", "1", "--json")
    assert (status, one_object(out)["failures"]) == (0, [])
    status, out, _ = run("play", "mine:me/Mine-v0", "--template", "bills", typed=":quit\n")
    assert status == 0 and out.startswith("Task Apps-v0/bills/")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("redirect", "says"),
    [
        (">&-", "headway: stdout is closed; there is nowhere to answer\n"),
        ("> /dev/full", "headway: [Errno 28] No space left on device\n"),
        (">&- 2>&-", ""),
    ],
)
@pytest.mark.parametrize("argv", ["list --json", "--help", "eval Apps --episodes 1"])
def test_an_answer_that_cannot_be_written_is_no_success(redirect, says, argv):
    """Buffered, as it is by default: what the disk refuses shows on the way out."""
    line = f"{sys.executable} -m headway.cli {argv} {redirect}"
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, env=env)
    assert (done.returncode, done.stderr) == (1, says)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_closed_input_and_errors_are_fine():
    line = f"{sys.executable} -m headway.cli play Apps <&- 2>&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.endswith("Left after turn 0.\n")


def test_another_broken_pipe_is_a_failure(monkeypatch, capfd):
    """Only that of stdout means that nobody wants to hear the rest."""

    def broken(args):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(commands, "run_list", broken)
    status = cli.main(["list"])
    assert (status, *capfd.readouterr()) == (1, "", "headway: [Errno 32] Broken pipe\n")


def test_a_killed_worker_is_one_line(mine):
    (mine / "suicide.py").write_text(
        "import os, signal\ndef make(seed): os.kill(os.getpid(), signal.SIGKILL)\n", "utf-8"
    )
    argv = ["eval", "Apps", "--agent", "suicide:make", "--episodes", "4", "--jobs", "2"]
    done = process(*argv, cwd=mine)
    says = b"headway: a worker process was killed from outside, for memory perhaps\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", says)


def test_demo_asks_before_it_runs(run, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write all
    monkeypatch.setattr(worlds.demo, "play_one", lambda: pytest.fail("it ran"))
    status, out, err = run("demo", "--out", str(tmp_path / "a.html"))
    assert (status, out) == (2, "") and "--out: may not write" in err


@pytest.mark.parametrize(
    "argv", [["list"], ["list", "--json"], ["eval", "Apps", "--episodes", "3"]]
)
def test_a_closed_pipe_is_silent(argv):
    """What ``| head -0`` does."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "headway.cli", *argv],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


# Trajectories.


def test_rescore_has_help_and_right_examples(run, mine, monkeypatch):
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "path", list(sys.path))
    status, out, err = run("rescore", "--help")
    assert (status, err) == (0, "")
    for line in out.partition("examples:\n")[2].splitlines():
        program, *argv = line.split()
        assert program == "headway" and commands.arguments(argv).command == "rescore"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("eval Apps --stack gtae --gamma 1", "layer of stack must be one of"),
        ("eval Apps --stack gtae --gamma 1", "did you mean 'gate'?"),
        ("eval Apps --stack progress", "--stack: needs --gamma, which must equal the learner's"),
        ("eval Apps --gamma 0.9", "--gamma: is for the layers of --stack, which is missing"),
        ("eval Apps --on-truncation keep", "--on-truncation: is for the layers of --stack"),
        ("eval Apps --stack gate --gamma 0", "--gamma: must be a number in (0, 1], got '0'"),
        ("eval Apps --stack gate --gamma nan", "--gamma: must be a number in (0, 1], got 'nan'"),
        ("eval Apps --stack gate --gamma 1 --on-truncation kepe", "did you mean 'keep'?"),
        ("eval Apps --on-truncatoin keep", "did you mean '--on-truncation'?"),
        ("eval Apps --stack nowhere_at_all:ANY --gamma 1", "got 'nowhere_at_all:ANY'"),
        ("eval Apps --record mine.py", "file must be new, empty, or hold trajectories"),
        ("eval Apps --record nowhere/a.jsonl", "No such file or directory: 'nowhere/a.jsonl'"),
        ("rescore", "required: FILE"),
        ("rescore nowhere.jsonl", "FILE: no file 'nowhere.jsonl'"),
        ("rescore mine.py", "FILE: mine.py:2: Expecting value"),
        ("rescore empty.jsonl", "FILE: no episode in 'empty.jsonl'"),
        ("rescore empty.jsonl --stack gate", "--stack: needs --gamma"),
        ("rescore empty.jsonl --gamma 1", "--gamma: is for the layers of --stack"),
        ("rescore empty.jsonl --env Aps", "no environment 'Aps'; did you mean 'Apps'?"),
    ],
)
def test_wrong_usage_of_trajectories(run, mine, monkeypatch, argv, says):
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (mine / "empty.jsonl").touch()
    status, out, err = run(*argv.split())
    assert (status, out) == (2, "")
    assert says in err and "Traceback" not in err


STACK = ["--stack", "progress(c=0.3),gate,potential", "--gamma", "0.9"]


def test_eval_under_a_stack(run):
    argv = ["eval", "Apps", "--episodes", "2", *STACK]
    status, out, err = run(*argv, "--json")
    assert (status, err) == (0, "")
    found = one_object(out)
    assert list(found) == [*EVAL_KEYS, "stack", "gamma", "returns"]
    assert (found["stack"], found["gamma"]) == (STACK[1], 0.9)
    assert list(found["returns"]) == ["base", "progress", "potential"]
    assert 0.0 < found["returns"]["progress"] < 0.3 and abs(found["returns"]["potential"]) < 1e-9
    status, out, _ = run(*argv)
    assert status == 0 and "mean return (gamma 0.9)" in out
    assert re.search(r"potential +0\.000", out)


def test_record_and_rescore(run, tmp_path):
    """The same code: status 0. Another stack: status 1, and what differs is named."""
    file = str(tmp_path / "a.jsonl")
    for agent in ("oracle", "random"):
        run("eval", "Apps", "--agent", agent, "--episodes", "3", "--record", file, *STACK)
    status, out, err = run("rescore", file, "--json")
    assert (status, err) == (0, "")
    found = one_object(out)
    assert list(found) == [
        *("file", "episodes", "identical", "same_verdicts", "differences"),
        *("failed", "died", "torn", "returns", "gamma"),
    ]
    assert (found["file"], found["episodes"], found["identical"]) == (file, 6, 6)
    assert found["differences"] == found["failed"] == found["torn"] == []
    assert all(one["was"] == one["now"] for one in found["returns"].values())
    status, out, err = run("rescore", file)
    assert (status, err) == (0, "") and "6 of 6 episodes are identical" in out
    status, out, err = run("rescore", file, "--stack", "", "--gamma", "1.0")
    assert (status, err) == (1, "")
    assert "0 of 6 episodes are identical" in out and "absent" in out
    status, out, _ = run("rescore", file, "--stack", "", "--gamma", "1.0", "--json")
    assert status == 1 and one_object(out)["same_verdicts"] == 6


def test_rescore_tells_of_what_is_lost(run, tmp_path, monkeypatch):
    """A machine that died, a task that is no more, a torn line: each on stderr, with its line."""
    file = tmp_path / "a.jsonl"
    make = gym.make
    with monkeypatch.context() as patch:
        patch.setattr(gym, "make", lambda *args, **kwargs: Doomed(make(*args, **kwargs)))
        assert run("eval", "Apps", "--episodes", "1", "--record", str(file))[0] == 1
    run("eval", "Apps", "--episodes", "2", "--record", str(file))
    died, lost, torn = file.read_bytes().splitlines(keepends=True)
    lost = lost.replace(b'"task_id":"Apps-v0/', b'"task_id":"Apps-v9/', 1)
    file.write_bytes(died + lost + torn[:-9])
    status, out, err = run("rescore", str(file))
    assert status == 1 and "0 of 2 episodes are identical" in out
    for line, says in ((1, "had died: SandboxDied: out of disk"), (3, "torn after")):
        assert re.search(rf"^headway: {file}:{line}: .*{says}", err, re.MULTILINE), err
    assert re.search(rf"^headway: {file}:2: Apps-v9/.* cannot be played again", err, re.MULTILINE)


def test_rescore_of_ones_own(mine):
    """What a file names in the current folder is found there, and only if the file is trusted."""
    for argv in (
        ["eval", "mine:WORLD", "--agent", "mine:Chance", "--episodes", "2", "--record", "a.jsonl"],
        ["rescore", "a.jsonl", "--trust", "--json"],
        ["rescore", "a.jsonl", "--env", "library:LIBRARY", "--json"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *argv], cwd=mine, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert one_object(done.stdout.decode())["identical"] == 2
    (mine / "mine.py").write_text("print('imported')\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "rescore", "a.jsonl"], cwd=mine, capture_output=True
    )
    assert done.returncode == 1 and b"imported" not in done.stdout
    assert done.stderr.count(b"the file names 'mine:WORLD' as argument of Apps-v") == 2
    assert done.stderr.count(b"--trust") == done.stderr.count(b"--env") == 2


def test_what_a_file_says_does_not_reach_the_terminal_raw(run, tmp_path, monkeypatch):
    """Neither as markup nor as control characters, wherever it stands."""
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "a.jsonl"
    run("eval", "Apps", "--episodes", "1", "--record", str(file))
    bad = "[/x] \x1b[2J\u202e\ud800"
    ((_, episode),) = episodes(file)
    episode["turns"][0]["record"]["channels"][bad] = 1.0
    episode["start"]["observation"] = bad
    append(str(file), encode(episode))
    append(str(file), encode({**episode, "ended": "died", "reason": bad}))
    append(str(file), encode({**episode, "task_id": bad, "seed": None}))
    status, out, err = run("rescore", str(file))
    assert status == 1 and "1 of 4 episodes are identical" in out
    for text in (out, err):
        assert "[/x] " in text and not any(sign in text for sign in "\x1b\u202e\ud800")
    assert re.search(rf"^headway: {file}:3: .* had died: '\[/x\] ", err, re.MULTILINE)
    assert re.search(rf"^headway: {file}:4: '\[/x\] .* cannot be played", err, re.MULTILINE)


def test_modules_of_the_current_folder_are_for_trusted_files(run, tmp_path, monkeypatch):
    """A file that is not trusted has nothing there to be found."""
    file = str(tmp_path / "a.jsonl")
    run("eval", "Apps", "--episodes", "1", "--record", file)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    assert run("rescore", file)[0] == 0 and "" not in sys.path
    assert run("rescore", file, "--trust")[0] == 0 and "" in sys.path


AUDIT_KEYS = [
    *("id", "stack", "gamma", "on_truncation", "tasks", "channels", "optimum_preserved"),
    *("optimum_claimed", "optimum_counterexample", "dominance", "starc", "no_verdict", "sound"),
]


def test_audit_of_a_sound_stack(run):
    argv = ["audit", "Apps", "--stack", "progress,gate", "--gamma", "0.99", "--tasks", "1"]
    status, out, err = run(*argv, "--template", "bills", "--json")
    assert (status, err) == (0, "")
    found = one_object(out)
    assert list(found) == AUDIT_KEYS
    assert (found["id"], found["stack"], found["gamma"]) == (
        "headway/Apps-v0",
        "progress,gate",
        0.99,
    )
    (channel,) = found["channels"]
    assert list(channel) == ["name", "bound", "seen", "verdict", "counterexample"]
    assert (channel["name"], channel["verdict"], channel["counterexample"]) == (
        "progress",
        "bounded",
        None,
    )
    # Losses pass the gate while gains are withheld, so nothing limits them: null, not -Infinity.
    assert channel["bound"] == [None, pytest.approx(0.495)]
    assert found["optimum_preserved"] is found["optimum_claimed"] is False and found["sound"]
    status, out, _ = run(*argv)
    assert status == 0 and "any to 0.495" in out and "The stack is sound." in out


def test_audit_names_the_loop(run, monkeypatch):
    """Of a reward of one's own, found by who stands in its folder."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    stack = "progress,bad_rewards:forgiving_gate"
    argv = ["audit", "Apps", "--stack", stack, "--gamma", "0.99", "--tasks", "1"]
    status, out, _ = run(*argv, "--template", "bills")
    assert status == 1 and "progress: farmed (repeat a loop); pays " in out
    assert re.search(r"again and again .*cal_create.*\n  again and again .*cal_cancel", out)
    assert "The stack is NOT sound." in out


def test_audit_of_shaping_under_another_discount(run):
    """It claims nothing, rightly, and can be farmed."""
    argv = ["audit", "Apps", "--stack", "potential(gamma=1.0)", "--gamma", "0.9", "--tasks", "1"]
    status, out, _ = run(*argv, "--json")
    found = one_object(out)
    assert status == 1 and not found["optimum_claimed"] and not found["optimum_preserved"]
    assert [one["verdict"] for one in found["channels"]] == ["farmed"]
    assert found["optimum_counterexample"]["instead"]["actions"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("audit Apps --gamma 1", "required: --stack"),
        ("audit Apps --stack progress", "required: --gamma"),
        ("audit Apps --stack progress --gamma 0", "--gamma: must be a number in (0, 1], got '0'"),
        ("audit Apps --stack progres --gamma 1", "--stack: cannot use 'progres': ValueError: "),
        ("audit Apps --stack progres --gamma 1", "did you mean 'progress'?"),
        ("audit Apps --stack no:way --gamma 1", "must name something as 'module:attribute'"),
        (
            "audit Apps --stack potential --gamma 1 --on-truncation zeor",
            "must be one of zero, keep, got 'zeor'; did you mean 'zero'?",
        ),
        ("audit Apps --stack progress --gamma 1 --tasks 0", "--tasks: must be an int from 1"),
        ("audit Apps --stack progress --gamma 1 --template bils", "did you mean 'bills'?"),
    ],
)
def test_wrong_usage_of_audit(run, argv, says):
    status, out, err = run(*argv.split())
    assert (status, out) == (2, "")
    assert says in err and "Traceback" not in err
