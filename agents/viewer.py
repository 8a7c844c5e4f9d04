"""Episodes of training runs turn by turn: which are shown, and how."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headway.agents.page import bars, broken, checked, plain
from headway.agents.runs import Arm, Episode, Run, Turn
from headway.envs.wording import cut

EPISODES = 48
"""Episodes on a page."""

TURNS = 80
"""Turns of an episode on a page."""

TEXT = 4_000
"""Characters of one text on a page."""

ROOM = 3_000_000
"""Characters that all episodes may take."""


@dataclass(frozen=True)
class Shown:
    """An episode that is shown.

    Attributes:
        episode: What was played.
        arm: Name of its arm; empty where there is but one.
        late: Whether it is of the second half of its run's updates.
    """

    episode: Episode
    arm: str
    late: bool

    @property
    def end(self) -> str:
        """How it ended, in a word."""
        return "success" if self.episode.success else "failure"


def pick(compared: Sequence[Arm]) -> tuple[list[Shown], list[str]]:
    """Episodes to show: of each arm, of its first and last updates, good ones and bad ones.

    Returns:
        The episodes in the order of arms and updates, and what has to be said of those that are
        left out.
    """
    queues: list[deque[tuple[int, Shown]]] = []
    total = 0
    for arm in compared:
        name = arm.name if len(compared) > 1 else ""
        shown = [Shown(one, name, late) for run in arm.runs for one, late in _halves(run)]
        total += len(shown)
        for good, late in ((False, False), (False, True), (True, False), (True, True)):
            kind = [one for one in shown if (one.episode.success, one.late) == (good, late)]
            kind.sort(key=lambda one: one.episode.update, reverse=late)
            queues.append(deque((arm.number, one) for one in kind))
    chosen: list[tuple[int, Shown]] = []
    while len(chosen) < EPISODES and any(queues):
        chosen += [queue.popleft() for queue in queues if queue]
    chosen = sorted(chosen[:EPISODES], key=lambda one: (one[0], one[1].episode.update))
    fitting, size = [], 0
    for _, one in chosen:
        size += _size(one.episode)
        if size <= ROOM:
            fitting.append(one)
    said = f"{len(fitting)} of {total} kept episodes are shown: from the first and the last updates"
    return fitting, [said] if len(fitting) < total else []


def _halves(run: Run) -> Iterator[tuple[Episode, bool]]:
    """The episodes of a run, and whether each is of the second half."""
    updates = [row["update"] for row in run.rows] + [one.update for one in run.episodes]
    middle = (min(updates) + max(updates)) / 2 if updates else 0
    for episode in run.episodes:
        yield episode, episode.update > middle


def _size(episode: Episode) -> int:
    """About how many characters it takes on the page."""
    texts = [t for turn in episode.turns[:TURNS] for t in (turn.action, turn.observation)]
    return sum(min(len(text), TEXT) for text in (episode.prompt, *texts)) + 1000 * len(texts)


def options(shown: Sequence[Shown]) -> str:
    """What can be chosen."""
    return "\n".join(
        f'<option value="e{number}" data-when="{"late" if one.late else "early"}" '
        f'data-end="{one.end}">{plain(_title(one))}</option>'
        for number, one in enumerate(shown)
    )


def _title(shown: Shown) -> str:
    episode = shown.episode
    said = (
        f"update {episode.update}, {shown.end}, progress {_share(episode.progress[-1])}, "
        f"{len(episode.turns)} turns, {episode.task_id}"
    )
    return cut(f"{cut(shown.arm, 60)}: {said}" if shown.arm else said, 200)


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"


def sections(shown: Sequence[Shown]) -> str:
    """The episodes, each with all its turns."""
    # A task's checks are not written down, so they are those that counted in any of its episodes.
    checks: dict[str, set[str]] = {}
    for one in shown:
        checks.setdefault(one.episode.task_id, set()).update(*(t.ok for t in one.episode.turns))
    return "\n".join(
        _section(number, one, sorted(checks[one.episode.task_id]))
        for number, one in enumerate(shown)
    )


def _section(number: int, shown: Shown, checks: Sequence[str]) -> str:
    episode = shown.episode
    turns = episode.turns[:TURNS]
    said = f"Update {episode.update}: {shown.end}, {episode.ended} after {len(episode.turns)} turns"
    if shown.arm:
        said = f"{shown.arm}. {said}"
    more = len(episode.turns) - len(turns)
    note = f'<p class="soft">The last {more} turns are left out.</p>' if more else ""
    articles = "\n".join(_turn(number, at, episode, turns) for at in range(len(turns)))
    return f"""<section class="episode" id="e{number}">
<h3>{plain(said)}</h3>
<p class="soft"><code>{broken(cut(episode.task_id, TEXT))}</code></p>
<details><summary>What the policy was told first</summary>
<pre>{plain(cut(episode.prompt, TEXT))}</pre></details>
<div class="card">{_timeline(number, episode, turns, checks)}{note}</div>
<div class="card">
<div class="stepper"><button type="button" data-step="-1">Back</button><button type="button"
data-step="1">Next</button></div>
{articles or '<p class="soft">No turn was played.</p>'}
</div>
</section>"""


def _timeline(number: int, episode: Episode, turns: Sequence[Turn], checks: Sequence[str]) -> str:
    """A table with a column for each turn: progress, checks, rewards, advantage."""
    if not turns:
        return ""
    # Every column has a link, but where columns are narrow not every number has room.
    every = next(step for step in (1, 5, 10, 20) if len(turns) / step <= 12)
    head = "".join(
        f'<th><a href="#e{number}-{at}" aria-label="turn {at}">'
        f"{at if at % every == 0 or at == 1 else ''}</a></th>"
        for at in range(1, len(turns) + 1)
    )
    rows = [f"<tr><th></th>{head}</tr>", _progress(episode, len(turns))]
    rows += [checked(cut(name, 200), [name in turn.ok for turn in turns]) for name in checks]
    names = dict.fromkeys(name for turn in turns for name in turn.paid)
    for name in names:
        rows.append(
            bars(f"{cut(name, 200)} paid", [turn.paid.get(name, 0.0) for turn in turns], "pay")
        )
    rows.append(bars("advantage", [turn.advantage for turn in turns], "worth"))
    narrow = " narrow" if len(turns) > 16 else ""
    return f'<table class="timeline{narrow}">{"".join(rows)}</table>'


def _progress(episode: Episode, turns: int) -> str:
    """The row with the curve of progress, from the reset at its left edge."""
    points = [
        (at, value) for at, value in enumerate(episode.progress[: turns + 1]) if value is not None
    ]
    text = " ".join(f"{at},{1.0 - min(max(value, 0.0), 1.0):.4f}" for at, value in points)
    first, last = (_share(episode.progress[at]) for at in (0, turns))
    return (
        f'<tr class="bars curve"><th>progress</th><td colspan="{turns}" '
        f'title="from {first} to {last}"><svg viewBox="0 0 {turns} 1" preserveAspectRatio="none" '
        f'role="img" aria-label="Progress from {first} to {last}"><polyline points="{text}"/></svg>'
        '<i class="marker"></i></td></tr>'
    )


def _turn(number: int, at: int, episode: Episode, turns: Sequence[Turn]) -> str:
    turn, before = turns[at], turns[at - 1].ok if at else ()
    gained = [f"<li>{broken(cut(name, 200))}</li>" for name in turn.ok if name not in before]
    lost = [f'<li class="lost">{broken(cut(n, 200))}</li>' for n in before if n not in turn.ok]
    news = "".join(gained or ['<li class="none">no new check</li>']) + "".join(lost)
    marks = ' <span class="tag">cut by the limit on tokens</span>' if turn.cut else ""
    share = _share(episode.progress[at + 1])
    known = [amount for one in turns for amount in one.paid.values() if amount is not None]
    worth = [one.advantage for one in turns if one.advantage is not None]
    rewards = "".join(_worth(n, amount, known, "pay") for n, amount in turn.paid.items())
    return f"""<article class="turn" id="e{number}-{at + 1}">
<h4>Turn {at + 1} of {len(episode.turns)}, progress {share}{marks}</h4>
<p class="who">The policy wrote</p>
<pre class="call">{plain(cut(turn.action, TEXT)) or '<i class="soft">nothing</i>'}</pre>
<p class="who">The environment answered</p>
<pre class="reply" tabindex="0">{plain(cut(turn.observation, TEXT))}</pre>
<ul class="gained">{news}</ul>
<ul class="worths">{rewards}{_worth("advantage", turn.advantage, worth, "worth")}</ul>
</article>"""


def _worth(name: str, amount: float | None, all_of: Iterable[float], what: str) -> str:
    """An amount as a bar on the scale of the whole episode."""
    low, high = min(0.0, *all_of, 0.0), max(0.0, *all_of, 0.0)
    span = high - low or 1.0
    zero = -low / span
    if amount is None:
        said, bar = "not measured", ""
    else:
        said = f"{amount:+.3f}"
        left, side = zero + min(amount, 0.0) / span, "below" if amount < 0 else "above"
        bar = f'<i class="{side}" style="left:{left:.1%};width:{abs(amount) / span:.1%}"></i>'
    return (
        f'<li class="{what}"><span>{broken(cut(name, 200))}</span><b>{said}</b>'
        f'<div class="track" style="--zero:{zero:.1%}">{bar}</div></li>'
    )
