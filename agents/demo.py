"""The demo: one episode with every reward in sight, and four agents on the same tasks.

Prints it, and writes it as a page of its own that needs no network. Every number comes from the
run.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import gymnasium as gym
from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from headway.agents.evaluate import Evaluation, evaluate
from headway.agents.page import Axis, Line, bars, broken, chart, checked, fill, plain
from headway.agents.scripted import AGENTS, Oracle
from headway.envs.actions import ToolCall, parse_action
from headway.wrappers import GatedReward, PotentialShaping, ProgressReward

FILE = "headway-demo.html"
ID = "headway/Apps-v0"
DIFFICULTY = 3
WIDEST = 110
"""Characters of a printed line."""

NEXT = (
    ("headway list", "every environment and its tools"),
    ("headway play Apps", "try a task yourself"),
    ("headway eval Apps --agent reader --episodes 50", "score an agent, by template and check"),
    ("headway verify Apps --seeds 50", "prove that the tasks are sound"),
    ("headway bench --quick", "what a turn costs"),
)
"""Where to go from here."""

Told = Callable[[str, int, int], None]
"""``told(what, done, of)`` hears how far it has come."""


@dataclass(frozen=True)
class Turn:
    """One turn of the episode.

    Attributes:
        action: As the agent wrote it.
        reply: What it observed.
        progress: Share of the task's checks that count after it.
        counting: Which these are.
        reward: What the stack paid.
        base: The outcome's part of it.
        paid: What each channel paid.
        earned: What each would have paid without the gate.
    """

    action: str
    reply: str
    progress: float
    counting: tuple[str, ...]
    reward: float
    base: float
    paid: Mapping[str, float]
    earned: Mapping[str, float]


@dataclass(frozen=True)
class Played:
    """One episode.

    Attributes:
        task_id: Of its task.
        instruction: What the agent was told.
        checks: What the task asks for, by id.
        turns: From the first to the last.
    """

    task_id: str
    instruction: str
    checks: tuple[str, ...]
    turns: tuple[Turn, ...]


def stack() -> gym.Env[Any, Any]:
    """The environment of the episode and the rewards around it."""
    env = gym.make("headway/Apps-v0", difficulty=3, template="bills")
    env = ProgressReward(env, gamma=1.0)
    env = GatedReward(env, gate="attempted")
    return PotentialShaping(env, gamma=1.0, on_truncation="zero")


def play_one() -> Played:
    """An oracle's episode through :func:`stack`."""
    env, agent, turns = stack(), Oracle(), []
    obs, info = env.reset(seed=0)
    agent.reset(env, obs)
    over = False
    while not over:
        action = agent.act(obs)
        obs, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        record = info["headway"]
        turns.append(
            Turn(
                action=action,
                reply=obs,
                progress=record["verdict"].progress,
                counting=tuple(name for name, ok in record["verdict"].ok.items() if ok),
                reward=float(reward),
                base=record["base"],
                paid=dict(record["channels"]),
                earned=dict(record["channels_raw"]),
            )
        )
    task = env.get_wrapper_attr("instance").task
    checks = tuple(check.id for check in task.acceptance.checks)
    env.close()
    return Played(task.id, task.instruction, checks, tuple(turns))


def compare(episodes: int, told: Told = lambda what, done, of: None) -> tuple[Evaluation, ...]:
    """Every agent in ``AGENTS`` on the same ``episodes`` tasks, at least 1."""

    def score(agent: str) -> Evaluation:
        return evaluate(
            ID,
            agent,
            episodes=episodes,
            difficulty=DIFFICULTY,
            told=lambda done, of: told(agent, done, of),
        )

    return tuple(score(agent) for agent in AGENTS)


def print_out(out: Console, played: Played, compared: Sequence[Evaluation]) -> None:
    """Prints the demo, without the page."""
    width = min(out.width, WIDEST)
    out.print(played.instruction, markup=False, width=width)
    out.print(_turns(played, width), EARNED, _agents(compared), sep="\n", width=width)
    out.print("Where to go next:")
    for command, what in NEXT:
        out.print(f"  {command}\n      {what}", markup=False)


def _turns(played: Played, width: int) -> Table:
    channels = list(played.turns[0].earned)
    title = f"Oracle on {played.task_id}"
    table = Table("", box=box.SIMPLE_HEAD, title=title, show_footer=True, width=width)
    table.add_column("call", no_wrap=True, ratio=1, footer="sum")
    table.add_column("progress", min_width=10)
    for name in channels:
        total = sum(turn.earned[name] for turn in played.turns)
        table.add_column(f"{name}\nearned", f"{total + 0.0:+.3f}", justify="right", no_wrap=True)
    total = sum(turn.reward for turn in played.turns)
    table.add_column("reward\npaid", f"{total:+.3f}", justify="right", no_wrap=True)
    for number, turn in enumerate(played.turns, 1):
        table.add_row(
            f"{number}",
            short(turn.action),
            ProgressBar(1.0, turn.progress, width=10),
            *(f"{turn.earned[name]:+.3f}" for name in channels),
            f"{turn.reward:+.3f}",
        )
    return table


def _agents(compared: Sequence[Evaluation]) -> Table:
    title = f"Four agents on the same {compared[0].episodes} tasks, difficulty {DIFFICULTY}"
    table = Table("agent", box=box.SIMPLE_HEAD, title=title)
    for name in ("success", "95 %", "progress", "", "turns"):
        table.add_column(name)
    for found in compared:
        success, interval, progress, turns = _numbers(found)
        bar = ProgressBar(1.0, found.progress, width=16)
        table.add_row(found.agent, success, interval, progress, bar, turns)
    return table


def _numbers(found: Evaluation) -> tuple[str, str, str, str]:
    """Success, its interval, progress and turns in print."""
    low, high = found.interval
    return (
        f"{found.success:.0%}",
        f"{low:.0%} to {high:.0%}",
        f"{found.progress:.3f}",
        f"{found.turns:.1f}",
    )


EARNED = (
    "A channel's column is what it earned. GatedReward withholds progress and pays it on the last "
    "turn, as something was changed and submitted there; PotentialShaping takes back at the end "
    "what it had paid."
)


def short(action: str) -> str:
    """The calls of an action in the form of ``headway play``."""
    return "; ".join(
        " ".join([call.tool, *(f"{name}={value!r}" for name, value in call.args.items())])
        if isinstance(call, ToolCall)
        else call.error
        for call in parse_action(action, "json")
    )


# The page.


def page(played: Played, compared: Sequence[Evaluation]) -> str:
    """The demo as one HTML file without anything from outside."""
    return fill(
        "demo.html",
        version=plain(version("headway")),
        task_id=plain(played.task_id),
        instruction=plain(played.instruction),
        stack=plain(inspect.getsource(stack)),
        earned=plain(EARNED),
        timeline=_timeline(played),
        turns="\n".join(_turn(n, played) for n in range(len(played.turns))),
        sums=_sums(played),
        episodes=str(compared[0].episodes),
        difficulty=str(DIFFICULTY),
        curves=_curves(compared),
        legend=" ".join(
            f'<li><svg viewBox="0 0 28 8"><path class="line {plain(found.agent)}" d="M0 4H28"/>'
            f"</svg>{plain(found.agent)}</li>"
            for found in compared
        ),
        agents="\n".join(map(_agent, compared)),
        next="\n".join(
            f"<li><code>{plain(command)}</code> <span>{plain(what)}</span></li>"
            for command, what in NEXT
        ),
    )


def _timeline(played: Played) -> str:
    """A table with a column for each turn: progress, checks, channels."""
    turns = range(len(played.turns))
    head = "".join(f'<th><a href="#turn-{n + 1}">{n + 1}</a></th>' for n in turns)
    rows = [f"<tr><th></th>{head}</tr>", bars("progress", [t.progress for t in played.turns])]
    for check in played.checks:
        rows.append(checked(check, [check in turn.counting for turn in played.turns]))
    for channel in played.turns[0].earned:
        rows.append(bars(f"{channel} earned", [t.earned[channel] for t in played.turns], "pay"))
    rows.append(bars("reward paid", [t.reward for t in played.turns], "pay"))
    return "\n".join(rows)


def _turn(number: int, played: Played) -> str:
    """What happened in one turn."""
    turn = played.turns[number]
    before = played.turns[number - 1].counting if number else ()
    gained = "".join(f"<li>{broken(check)}</li>" for check in turn.counting if check not in before)
    amounts = {"outcome": turn.base, **turn.paid, "reward": turn.reward}
    cells = "".join(f"<li>{plain(n)} <b>{amount:+.3f}</b></li>" for n, amount in amounts.items())
    return f"""<article class="turn" id="turn-{number + 1}">
<h3>Turn {number + 1} of {len(played.turns)}</h3>
<pre class="call">{plain(_pretty(turn.action))}</pre>
<pre class="reply">{plain(turn.reply)}</pre>
<ul class="gained">{gained or '<li class="none">no new check</li>'}</ul>
<ul class="amounts">{cells}</ul>
</article>"""


def _pretty(action: str) -> str:
    return json.dumps(json.loads(action), indent=2, ensure_ascii=False)


def _sums(played: Played) -> str:
    """What the whole episode paid, by channel."""
    sums = {"outcome": sum(turn.base for turn in played.turns)}
    for channel in played.turns[0].paid:
        sums[channel] = sum(turn.paid[channel] for turn in played.turns)
    sums["reward"] = sum(turn.reward for turn in played.turns)
    return "".join(f"<li>{plain(n)} <b>{amount + 0.0:+.3f}</b></li>" for n, amount in sums.items())


def _agent(found: Evaluation) -> str:
    cells = "".join(f"<td>{cell}</td>" for cell in _numbers(found))
    return f"<tr><th>{plain(found.agent)}</th>{cells}</tr>"


def _curves(compared: Sequence[Evaluation]) -> str:
    """Mean progress by turn as an SVG with axes; a curve keeps its last value to the end."""
    last = max(1, *(len(found.curve) - 1 for found in compared))
    lines = [
        Line(
            list(enumerate([*found.curve, *[found.curve[-1]] * (last + 1 - len(found.curve))])),
            plain(found.agent),
        )
        for found in compared
    ]
    about = "Mean progress of four agents by turn"
    return chart(lines, Axis("turn", 0, last, whole=True), Axis("mean progress", 0, 1), about)
