"""The same channels on one seat of a PettingZoo game."""

from __future__ import annotations

import copy
import itertools

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")

from pettingzoo import AECEnv
from pettingzoo.test import api_test
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from headway.wrappers import (
    Channel,
    Diff,
    Gate,
    GatedReward,
    Novelty,
    Placebo,
    PotentialShaping,
    ProgressReward,
    Schedule,
    ScheduledReward,
    SeatChannels,
    SparseToDense,
    set_progress,
)

PROGRESS = {"gamma": 0.9, "scale": 0.5, "terminal": "keep", "on_truncation": "keep"}
STRICT = {"gamma": 0.9, "scale": 1.0, "terminal": "zero", "on_truncation": "zero"}


class Talk(AECEnv):
    """Two seats take turns; the state moves along a list of potentials, one a move.

    Args:
        phis: Progress of the first state and after each move; the last move ends the game.
        end: ``"terminated"`` or ``"truncated"``.
        order: Seats in the order in which they move, repeated.
    """

    metadata = {"name": "talk_v0", "render_modes": [], "is_parallelizable": False}  # noqa: RUF012
    render_mode = None

    def __init__(self, verdict, phis, end="terminated", order=("agent", "user"), attempted=False):
        super().__init__()
        self.verdict, self.phis, self.end, self.order = verdict, phis, end, order
        self.attempted = attempted
        self.possible_agents = ["agent", "user"]
        self.spaces = {seat: gym.spaces.Discrete(2) for seat in self.possible_agents}

    def observation_space(self, agent):
        return self.spaces[agent]

    def action_space(self, agent):
        return self.spaces[agent]

    def observe(self, agent):
        return np.int64(0)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {seat: {} for seat in self.agents}
        self.move, self._skip_agent_selection = 0, None
        self.agent_selection = self.order[0]

    def step(self, action):
        seat = self.agent_selection
        if self.terminations[seat] or self.truncations[seat]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[seat] = 0.0
        self.move += 1
        # A seat's move costs it 0.25 and pays the other 1.
        self.rewards = {who: -0.25 if who == seat else 1.0 for who in self.agents}
        if self.move == len(self.phis) - 1:
            ends = self.terminations if self.end == "terminated" else self.truncations
            ends.update(dict.fromkeys(self.agents, True))
        self.agent_selection = self.order[self.move % len(self.order)]
        self._accumulate_rewards()

    def grade(self):
        last = self.move == len(self.phis) - 1
        return self.verdict(self.phis[self.move], attempted=last and self.attempted)


def run(game, seat):
    """``(reward, record)`` of each ``last()`` of ``seat``, from its second on; rewards of all."""
    game.reset()
    turns, paid, played = [], {"agent": 0.0, "user": 0.0}, False
    for who in game.agent_iter():
        _, reward, terminated, truncated, info = game.last()
        if who == seat:
            if played:
                turns.append((reward, info["headway"]))
            played = True
        game.step(None if terminated or truncated else 0)
        for name, amount in game.rewards.items():
            paid[name] += amount
    return turns, paid


ORDERS = st.lists(st.sampled_from(["agent", "user"]), min_size=1, max_size=4)


@given(
    phis=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=2, max_size=8),
    end=st.sampled_from(["terminated", "truncated"]),
    order=ORDERS,
    attempted=st.booleans(),
)
def test_a_seat_is_paid_as_a_single_environment_is(
    Script, play, verdict, phis, end, order, attempted
):
    """Its turns are the moves from one of its own to the next; nothing else is different."""
    talk = {"phis": phis, "end": end, "order": order, "attempted": attempted}
    layers = [
        Diff("progress", **PROGRESS),
        Gate("attempted", "episode"),
        Diff("potential", **STRICT),
        Schedule("linear", 0.5, 4),
    ]
    turns, paid = run(SeatChannels(Talk(verdict, **talk), layers, seat="agent"), "agent")
    bare = Talk(verdict, **talk)
    bases, free = run(SeatChannels(bare, [], seat="agent"), "agent")

    movers = [order[move % len(order)] for move in range(len(phis) - 1)]
    starts = [move for move, who in enumerate(movers) if who == "agent"]
    if not starts:
        assert turns == [] and paid == free
        return
    states = [phis[0], *(phis[move] for move in [*starts[1:], len(phis) - 1])]
    env = Script(states, end, attempted=attempted, bases=[record["base"] for _, record in bases])
    env = GatedReward(ProgressReward(env, gamma=0.9))
    env = PotentialShaping(env, gamma=0.9, on_truncation="zero")
    single = play(ScheduledReward(env, steps=4, start=0.5))[1:]
    assert [reward for reward, _ in turns] == pytest.approx([turn[0] for turn in single])
    for (reward, record), (*_, wanted) in zip(turns, single, strict=True):
        assert record == wanted
        assert record["base"] + sum(record["channels"].values()) == pytest.approx(reward)
    amounts = [sum(record["channels"].values()) for _, record in turns]
    assert paid["agent"] == pytest.approx(free["agent"] + sum(amounts))
    assert paid["user"] == free["user"]


class Staircase(Diff):
    """A layer of one's own that follows the learner's step."""

    k = 0

    def set_progress(self, k):
        self.k = k


def test_every_layer_that_follows_the_learner_is_told(verdict):
    layers = [Diff("a", **PROGRESS), Staircase("b", **STRICT), Schedule("linear", 1.0, 9)]
    layers.append(SparseToDense("c", start_at=3, **STRICT))
    seat = SeatChannels(Talk(verdict, [0.0, 0.5, 1.0]), layers, seat="agent")
    assert set_progress(seat, 7) == 1
    assert [getattr(layer, "k", None) for layer in seat.layers] == [None, 7, 7, 7]


def test_layers_that_do_not_fit_are_refused(verdict):
    layers = [Diff("a", **PROGRESS), Placebo("shuffle_turns", None, 0), Gate("clean", "step")]
    game = Talk(verdict, [0.0, 0.5, 1.0])
    with pytest.raises(ValueError, match="put it outermost"):
        SeatChannels(game, layers, seat="agent")
    SeatChannels(game, [layers[0], layers[2], layers[1]], seat="agent")


def test_base_is_what_the_game_pays(verdict):
    """One's own move, and all that the others' moves pay until one is up again."""
    game = SeatChannels(Talk(verdict, [0.0] * 6, order=("agent", "user", "user")), [], seat="agent")
    turns, _ = run(game, "agent")
    assert [reward for reward, _ in turns] == [1.75, 0.75]
    assert [record["base"] for _, record in turns] == [1.75, 0.75]


def test_the_games_own_tables_stay_as_they_are(verdict):
    game = Talk(verdict, [0.0, 0.5, 1.0])
    seat = SeatChannels(game, [Diff("progress", **PROGRESS)], seat="agent")
    seat.reset()
    assert seat.infos["agent"]["headway"]["channels"] == {"progress": 0.0}
    assert seat.infos["agent"]["headway"]["phi"] == {"checks": 0.0}
    seat.step(0)
    assert seat.rewards["agent"] == -0.25, "paid when the turn is over, not before"
    seat.step(0)
    assert seat.rewards == {"agent": 1.0 + 0.45, "user": -0.25}
    assert game.rewards == {"agent": 1.0, "user": -0.25}
    assert game.infos == {"agent": {}, "user": {}}
    assert seat.infos["user"] == {}


def test_an_end_on_another_seats_move_is_paid_at_once(verdict):
    """Whoever converts the game to parallel never plays the moves of the dead."""
    talk = Talk(verdict, [0.0, 0.5, 1.0], order=("agent", "user", "user"))
    game = SeatChannels(talk, [Diff("progress", **PROGRESS)], seat="agent")
    game.reset()
    game.step(0)
    game.step(0)
    assert game.terminations["agent"] and game.agent_selection == "user"
    assert game.rewards["agent"] == 1.45
    assert game.infos["agent"]["headway"]["phi"] == {"checks": 1.0}


def test_channels_are_handed_both_verdicts(verdict):
    class Seen(Channel):
        def begin(self, before):
            self.seen = [before.progress]

        def step(self, before, after, ended):
            self.seen.append((before.progress, after.progress, ended))
            return 0.0

        def bound(self, gamma):
            return 0.0, 0.0

    game = SeatChannels(Talk(verdict, [0.0, 0.1, 0.2, 0.3, 0.4]), [Seen("seen")], seat="agent")
    run(game, "agent")
    assert game.layers[0].seen == [0.0, (0.0, 0.2, "no"), (0.2, 0.4, "terminated")]


def test_two_seats_with_a_channel_each(verdict):
    game = SeatChannels(Talk(verdict, [0.0, 0.5, 1.0]), [Diff("a", **PROGRESS)], seat="agent")
    game = SeatChannels(game, [Diff("b", **STRICT)], seat="user")
    game.reset()
    game.step(0)
    game.step(0)
    assert game.rewards == {"agent": 1.45, "user": -0.25}
    assert game.infos["agent"]["headway"]["channels"] == {"a": 0.45}
    assert game.infos["user"]["headway"]["channels"] == {"b": 0.0}


def test_copies_go_on_alike_and_apart(verdict):
    game = SeatChannels(
        Talk(verdict, [0.0, 0.5, 0.25, 0.75, 1.0]), [Diff("progress", **PROGRESS)], seat="agent"
    )
    game.reset()
    game.step(0)
    twin = copy.deepcopy(game)
    for _ in range(3):
        game.step(0)
    assert twin.rewards["agent"] == -0.25
    for _ in range(3):
        twin.step(0)
    assert twin.rewards == game.rewards
    assert twin.infos["agent"]["headway"] == game.infos["agent"]["headway"]


def test_schedules_of_a_seat(verdict):
    game = SeatChannels(
        Talk(verdict, [0.0, 1.0], order=("agent",)),
        [Diff("progress", **PROGRESS), Schedule("linear", 1.0, 4)],
        seat="agent",
    )
    game = OrderEnforcingWrapper(game)
    assert set_progress(game, 3) == 1
    ((reward, record),), _ = run(game, "agent")
    assert record["channels"] == {"progress": pytest.approx(0.45 * 0.25)}
    assert reward == pytest.approx(record["base"] + 0.45 * 0.25)


def test_a_transition_of_a_seat(verdict):
    """Nothing below its step, and shaping from there on."""
    layer = SparseToDense("s2d", start_at=2, **STRICT)
    game = SeatChannels(Talk(verdict, [0.5, 1.0], order=("agent",)), [layer], seat="agent")
    for k, paid in ((1, 0.0), (2, -0.5)):
        assert set_progress(game, k) == 1
        ((_, record),), _ = run(game, "agent")
        assert record["channels"] == {"s2d": paid}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the game, which has no arrays to observe
def test_pettingzoo_accepts_it(verdict, capsys):
    for order in (("agent", "user"), ("agent", "agent", "user")):
        game = Talk(verdict, [0.0, 0.5, 0.25, 0.75, 1.0], order=order)
        api_test(SeatChannels(OrderEnforcingWrapper(game), [Diff("d", **STRICT)], seat="agent"))
    assert "Passed" in capsys.readouterr().out


def test_bad_arguments(verdict):
    game = Talk(verdict, [0.0, 1.0])
    with pytest.raises(ValueError, match=r"seat must be one of .*'agnt'; did you mean 'agent'"):
        SeatChannels(game, [], seat="agnt")
    twice = [Diff("d", **STRICT), Diff("d", **PROGRESS)]
    with pytest.raises(ValueError, match="a stack may hold channel 'd' only once"):
        SeatChannels(game, twice, seat="agent")
    with pytest.raises(ValueError, match=r"layers must read verdicts only, got \['Novelty'\]"):
        SeatChannels(game, [Novelty("n", b=0.1, cap=0.5)], seat="agent")
    game.grade = None
    with pytest.raises(TypeError, match=r"env.unwrapped must offer grade\(\)"):
        SeatChannels(game, [], seat="agent")


def test_one_object_for_several_games(verdict):
    """Layers are copied, so games do not share a memory."""
    diff = Diff("d", **PROGRESS)
    games = [SeatChannels(Talk(verdict, [0.0, 0.5, 1.0]), [diff], seat="agent") for _ in range(2)]
    for game in games:
        game.reset()
    for game, _ in itertools.product(games, range(2)):
        game.step(0)
    assert [game.infos["agent"]["headway"]["channels"]["d"] for game in games] == [0.45, 0.45]
