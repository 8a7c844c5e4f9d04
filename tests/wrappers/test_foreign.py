"""Foreign environments made gradable: the worked example, and what goes wrong in others."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import headway
from headway.verifiers import Acceptance, Allow, Check
from headway.wrappers import GatedReward, Graded, PotentialShaping, ProgressReward

EXAMPLE = Path(__file__).parents[2] / "examples" / "foreign_taxi.py"
PICK, DROP = 4, 5


@pytest.fixture(scope="module")
def taxi():
    """The example as a module, so that specs can name its class."""
    spec = importlib.util.spec_from_file_location("foreign_taxi", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["foreign_taxi"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["foreign_taxi"]


@pytest.mark.parametrize("seed", range(5))
def test_the_example(taxi, capsys, seed):
    """Prints each turn; the shaping sums to minus the first potential, which is 0."""
    assert taxi.main(seed=seed) == pytest.approx(0.0, abs=1e-9)
    *turns, last = capsys.readouterr().out.splitlines()
    phis = [float(line.split("phi ")[1][:5]) for line in turns]
    legs = [line[:12].strip() for line in turns]
    ends = {leg: phi for leg, phi in zip(legs, phis, strict=True)}
    assert ends == {"fetch": 0.5, "wrong stand": 0.0, "fetch again": 0.5, "deliver": 1.0}
    assert turns[-1].endswith("delivered")
    assert last.startswith("discounted shaping of the ride: ")


def ride(taxi, env):
    """Actions of a whole ride from the present state, and how many lead to the pick-up."""
    to = taxi.way(env.unwrapped, lambda place, goal: place == taxi.IN_TAXI)
    twin = headway.fork(env)
    for action in to:
        twin.step(action)
    return [*to, *taxi.way(twin.unwrapped, lambda place, goal: place == goal)], len(to)


def test_a_stack_around_taxi(taxi, play):
    """Integer actions; Taxi's own reward is base; the ride is graded and gated as any task is."""
    env = GatedReward(ProgressReward(taxi.GradedTaxi(gym.make(taxi.TAXI)), gamma=1.0))
    env.reset(seed=3)
    actions, fetched = ride(taxi, env)
    rewards, records = [], []
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        records.append(info["headway"])
    assert (terminated, truncated) == (True, False)
    assert [r["base"] for r in records] == [-1.0] * (len(actions) - 1) + [20.0]
    assert rewards == pytest.approx([-1.0] * (len(actions) - 1) + [20.5])
    assert [r["phi"]["checks"] for r in records] == (
        [0.0] * (fetched - 1) + [0.5] * (len(actions) - fetched) + [1.0]
    )
    assert records[-1]["gate"] == {"attempted": True}
    assert records[-1]["verdict"].success
    assert records[-1]["verdict"].ok == {"aboard": True, "delivered": True}
    assert {"prob", "action_mask"} < set(info)


def test_do_and_undo(taxi):
    """Picking the passenger up and putting him down again, for ever, pays nothing."""
    env = ProgressReward(taxi.GradedTaxi(gym.make(taxi.TAXI)), gamma=1.0)
    env.reset(seed=3)
    actions, fetched = ride(taxi, env)
    total = 0.0
    for action in [*actions[:fetched], *[DROP, PICK] * 20, DROP]:
        total += env.step(action)[4]["headway"]["channels"]["progress"]
    assert total == 0.0


def test_a_ride_that_runs_out_of_time(taxi):
    env = ProgressReward(taxi.GradedTaxi(gym.make(taxi.TAXI, max_episode_steps=3)), gamma=1.0)
    env.reset(seed=3)
    for _ in range(3):
        _, _, terminated, truncated, info = env.step(DROP)
    assert (terminated, truncated) == (False, True)
    assert not info["headway"]["verdict"].attempted, "nothing was changed"
    assert env.get_wrapper_attr("table")("submission")


def test_fork_and_spec(taxi):
    env = PotentialShaping(taxi.GradedTaxi(gym.make(taxi.TAXI)), gamma=0.9, on_truncation="zero")
    _, info = env.reset(seed=3)
    actions, fetched = ride(taxi, env)
    rebuilt = gym.make(env.spec)
    rebuilt.reset(seed=3)
    for action in actions[:fetched]:
        assert env.step(action)[1] == rebuilt.step(action)[1]
    twin = headway.fork(env)
    twin.step(DROP)
    for action in actions[fetched:]:
        assert env.step(action)[1] == rebuilt.step(action)[1]
    twin.step(PICK)
    for action in actions[fetched:]:
        *_, terminated, _, info = twin.step(action)
    assert terminated and info["headway"]["verdict"].success


class Counter(gym.Env):
    """Counts up and down; keeps its state in one object that it changes in place."""

    observation_space = gym.spaces.Discrete(9)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = {"1": {"value": 0, "other": 0}}
        self.reads, self.broken = 0, False
        return 0, {}

    def step(self, action):
        self.state["1"][("value", "value", "other")[action]] += (1, -1, 1)[action]
        return 0, 0, False, False, {}


class GradedCounter(Graded):
    def tables(self):
        self.unwrapped.reads += 1
        if self.unwrapped.broken:
            raise OSError("no connection")
        return {"count": self.unwrapped.state}

    def acceptance(self):
        def at(value):
            return {"table": "count", "key": "1", "where": {"value": value}}

        return Acceptance(
            (Check("two", "rows", at(2)),), writes=(Allow("count", keys=("1",), fields=("value",)),)
        )


def test_grading_reads_the_state_once_a_turn_and_only_if_asked():
    env = GradedCounter(Counter())
    env.reset()
    reads = env.unwrapped.reads
    for _ in range(3):
        env.step(0)
    assert env.unwrapped.reads == reads
    env.grade()
    assert env.grade().progress == 0.0
    assert env.unwrapped.reads == reads + 1


def test_states_changed_in_place_are_seen():
    env = GradedCounter(Counter())
    env.reset()
    phis = []
    for action in (0, 0, 1, 0, 2):
        env.step(action)
        phis.append(env.grade().progress)
    assert phis == [0.0, 1.0, 0.0, 1.0, 0.5]
    assert env.grade().violations == ("edited count/1",)
    first = env.grade().fingerprint
    env.reset()
    assert env.grade().progress == 0.0
    assert env.grade().violations == ()
    assert env.grade().fingerprint == first


def test_the_fingerprint_covers_the_start():
    class Later(Counter):
        def reset(self, *, seed=None, options=None):
            out = super().reset(seed=seed)
            self.state["1"]["other"] = 7
            return out

    one, other = GradedCounter(Counter()), GradedCounter(Later())
    one.reset(), other.reset()
    assert one.grade().fingerprint != other.grade().fingerprint


def test_a_table_that_is_gone_is_damage():
    env = GradedCounter(Counter())
    env.reset()
    env.tables = lambda: {}
    env.step(0)
    assert env.grade().violations == ("deleted count/1",)


def test_a_state_that_cannot_be_read_is_no_verdict(play):
    """And the next turn that can be read has one again."""
    env = ProgressReward(GradedCounter(Counter()), gamma=1.0)
    env.reset()
    out = []
    for broken in (False, True, False):
        env.unwrapped.broken = broken
        _, reward, _, _, info = env.step(0)
        record = info["headway"]
        out.append((reward, record["status"], record["phi"]))
        assert ("no connection" in record["verdict"].reason) == broken
    assert out == [
        (0.0, "ok", {"checks": 0.0}),
        (0.0, "no_verdict", {"checks": 0.0}),
        (0.0, "ok", {"checks": 0.0}),
    ]


def test_checks_that_hold_from_the_start_are_guards():
    class Started(GradedCounter):
        def acceptance(self):
            had = super().acceptance()
            zero = {"table": "count", "key": "1", "where": {"other": 0}}
            return Acceptance((*had.checks, Check("still", "rows", zero)), writes=had.writes)

    env = Started(Counter())
    env.reset()
    assert env.grade().ok == {"two": False}
    env.step(2)
    assert "guard still" in env.grade().violations


def test_too_early():
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        GradedCounter(Counter()).grade()


@pytest.mark.filterwarnings("ignore")  # of its interpreter, about unknown games
def test_textworld(tmp_path):
    """A generated text adventure, graded by its own facts and walked through by its own plan."""
    textworld = pytest.importorskip("textworld", reason="TextWorld is not installed")
    options = textworld.GameOptions()
    options.seeds, options.path = 1234, str(tmp_path / "game.z8")
    options.nb_rooms, options.nb_objects, options.quest_length = 2, 3, 3
    game_file, _ = textworld.make(options)
    wanted = textworld.EnvInfos(facts=True, policy_commands=True)

    class Adventure(gym.Env):
        observation_space = action_space = gym.spaces.Text(4000)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.game = textworld.start(game_file, request_infos=wanted)
            self.now = self.game.reset()
            return self.now.feedback, {}

        def step(self, action):
            self.now, score, done = self.game.step(action)
            return self.now.feedback, float(score), done, False, {}

    class GradedAdventure(Graded):
        goals = ()

        def tables(self):
            return {"facts": {str(f): {"fact": str(f)} for f in self.unwrapped.now["facts"]}}

        def acceptance(self):
            checks = [
                Check(goal, "rows", {"table": "facts", "where": {"fact": goal}})
                for goal in self.goals
            ]
            return Acceptance(tuple(checks), writes=(Allow("facts", new={}),))

    scout = Adventure()
    scout.reset()
    start = {str(fact) for fact in scout.now["facts"]}
    plan = list(scout.now["policy_commands"])
    for command in plan:
        scout.step(command)
    GradedAdventure.goals = tuple(sorted({str(f) for f in scout.now["facts"]} - start))
    assert GradedAdventure.goals

    env = PotentialShaping(GradedAdventure(Adventure()), gamma=1.0, on_truncation="zero")
    env.reset()
    total = 0.0
    for command in plan:
        _, _, terminated, _, info = env.step(command)
        total += info["headway"]["channels"]["potential"]
    assert terminated
    assert info["headway"]["phi"]["checks"] > 0.0
    assert total == pytest.approx(0.0, abs=1e-9)
