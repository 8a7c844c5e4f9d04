"""The demo's page: one file, nothing from outside, every text escaped, values from the run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from headway.agents import AGENTS, demo
from headway.agents import page as pages


@pytest.fixture(scope="module")
def played():
    return demo.play_one()


@pytest.fixture(scope="module")
def compared():
    heard = []
    found = demo.compare(3, lambda *what: heard.append(what))
    assert heard == [(name, done, 3) for name in AGENTS for done in (1, 2, 3)]
    return found


@pytest.fixture(scope="module")
def page(strict_page, played, compared):
    return strict_page(demo.page(played, compared))


def test_the_stack_pays_what_it_says(played):
    """Base and channels add up to the reward; the sums are those of the three wrappers."""
    for turn in played.turns:
        assert turn.base + sum(turn.paid.values()) == pytest.approx(turn.reward, abs=1e-9)
    last = played.turns[-1]
    assert last.progress == last.base == 1.0
    assert set(last.counting) == set(played.checks)
    sums = {name: sum(turn.paid[name] for turn in played.turns) for name in last.paid}
    assert sums == {"progress": pytest.approx(0.5), "potential": pytest.approx(0.0)}
    assert [turn.paid["progress"] for turn in played.turns[:-1]] == [0.0] * (len(played.turns) - 1)


def test_page_needs_nothing_from_outside(page, played, compared):
    page.needs_nothing()
    text = demo.page(played, compared)
    for word in ("http:", "https:", "url(", "@import", "fetch(", "import("):
        assert word not in text
    assert "default-src 'none'" in text


def test_page_shows_the_run(page, played, compared):
    assert played.instruction in page.text
    assert played.task_id in page.text
    assert len(page.of_class("turn")) == len(played.turns)
    for turn in played.turns:
        assert turn.reply in page.text
        assert f"reward {turn.reward:+.3f}" in page.text
    for check in played.checks:
        assert check in page.text
    counting = sum(len(turn.counting) for turn in played.turns)
    assert len(page.of_class("on")) == counting
    assert len(page.of_class("off")) == len(played.turns) * len(played.checks) - counting
    for found in compared:
        assert f"{found.agent}{found.success:.0%}" in page.text
        assert f"{found.progress:.3f}" in page.text
    assert "on the same 3 tasks" in page.text
    for command, what in demo.NEXT:
        assert command in page.text and what in page.text


def test_curves_are_those_of_the_agents(page, compared):
    """One curve each, as long as the longest, from the first progress to the last."""
    curves = {a["class"].split()[-1]: a["points"] for t, a in page.tags if t == "polyline"}
    assert list(curves) == list(AGENTS)
    length = max(len(found.curve) for found in compared)
    bottom, top = pages.HEIGHT - pages.BOTTOM, pages.TOP
    for found in compared:
        points = [tuple(map(float, p.split(","))) for p in curves[found.agent].split()]
        assert len(points) == length
        assert points[0][0] == pages.LEFT and points[-1][0] == pages.WIDTH - pages.RIGHT
        shown = [(bottom - y) / (bottom - top) for _, y in points]
        carried = [found.curve[min(n, len(found.curve) - 1)] for n in range(length)]
        assert shown == pytest.approx(carried, abs=1e-3)


def test_every_text_is_escaped(strict_page, played, compared):
    """What a world, an agent or a check is called can carry no markup into the page."""
    evil = "</pre><script>alert('$x')</script>&amp;"
    turn = replace(played.turns[0], action=f'{{"tool": "{evil}"}}', reply=evil, counting=(evil,))
    hostile = replace(played, instruction=evil, task_id=evil, checks=(evil,), turns=(turn,))
    found = tuple(replace(e, agent=evil) for e in compared)
    page = strict_page(demo.page(hostile, found))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert page.text.count(evil) >= 6


@pytest.mark.parametrize("width", [60, 80, 200])
def test_print_fits_and_shows_every_turn(played, compared, width):
    out = Console(width=width, record=True, file=open("/dev/null", "w", encoding="utf-8"))
    with out.file:
        demo.print_out(out, played, compared)
    text = out.export_text()
    assert max(map(len, text.splitlines())) <= width
    for number, turn in enumerate(played.turns, 1):
        assert any(
            line.split()[:1] == [str(number)] and line.rstrip().endswith(f"{turn.reward:+.3f}")
            for line in text.splitlines()
        )
    for command, _ in demo.NEXT:
        assert command in text
