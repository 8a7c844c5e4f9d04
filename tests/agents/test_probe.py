"""What a policy knows of the answer, measured while it plays and without a trace."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

import headway
from headway.agents.engine import Engine
from headway.agents.probe import Probe, looking, shifted
from headway.agents.rollout import collect
from headway.agents.tiny import tiny
from headway.bench.depot import WORDS
from headway.verifiers import Verdict, blank
from headway.verifiers.likelihood import likelihood
from headway.wrappers.stack import build

GAMMA, C = 0.9, 0.5


def opinionated(**shape):
    policy = tiny((*WORDS, "Answer:", "it", "is"), seed=0, layers=1, width=32, ffn=32, **shape)
    stream = torch.Generator().manual_seed(2)
    for weight in policy.model.parameters():
        weight.data.normal_(0.0, 0.3, generator=stream)
    return policy


POLICY = opinionated()
TEMPLATE = POLICY.template
ENGINE = Engine(POLICY, lanes=8)

GOLDS = {0: ("s3 small",), 1: ("s5",), 2: ("s3 small",), 3: ()}


class Library(gym.Env):
    """Tells the answer on its second turn; submit ends the episode, else the third turn does."""

    action_space = observation_space = gym.spaces.Text(10)

    def __init__(self, golds=GOLDS, replies=("no", "ok at {}", "bad"), verdicts=True):
        self.golds, self.replies, self.verdicts = golds, replies, verdicts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.task, self.done = 0, seed, False
        return "find cup", self._info(0.0)

    def step(self, action):
        self.turn += 1
        self.done = isinstance(action, str) and action.startswith("ship")
        gold = (self.golds[self.task] or ("done",))[0]
        reply = self.replies[(self.turn - 1) % len(self.replies)].format(gold)
        last = self.turn == len(self.replies) or action is headway.CUT
        outcome = 1.0 if self.done else 0.0
        return reply, outcome, self.done, last and not self.done, self._info(outcome)

    def grade(self):
        return Verdict(float(self.done), self.done, {"done": self.done})

    def gold(self):
        return self.golds[self.task]

    def _info(self, outcome):
        record = blank(outcome)
        if self.verdicts:
            record["verdict"], record["status"] = self.grade(), "ok"
        return {"task_id": f"Library/{self.task}", "headway": record}


def played(probe, tasks=(0,), make=Library, *, engine=ENGINE, group=4, script=None, **given):
    teacher = None if script is None else (lambda env, obs, turn: script[turn % len(script)])
    return collect(
        engine, tasks, make, key=("probe",), group=group, probe=probe, teacher=teacher, **given
    )


def known(one, upto, gold, *, stub="Answer:", hide=False, policy=POLICY):
    """Mean log-probability of the answer after ``upto`` turns, from text, by training's pass."""
    ids = TEMPLATE.head(one.prompt)
    for number, turn in enumerate(one.turns[:upto]):
        said = one.ids[one.turn == number].tolist()
        reply = " ".join("_" * len(word) for word in turn.observation.split())
        reply = reply if hide else turn.observation
        ids += said + TEMPLATE.reply(reply, said[-1] in TEMPLATE.stops)
    before, text = TEMPLATE.encode(stub), TEMPLATE.encode(gold)
    ids += before + text
    mask = torch.zeros(1, len(ids) - 1, dtype=torch.bool)
    mask[0, -len(text) :] = True
    with torch.no_grad():
        return float(policy.logp(torch.tensor([ids]), mask)[mask].double().mean())


def amounts(one, name="information"):
    return [turn.channels[name] for turn in one.turns]


SCRIPT = ("find cup yes", "pick s1 yes", "pay gold yes")


@pytest.mark.parametrize("mode", ["prob", "logp"])
@pytest.mark.parametrize("script", [SCRIPT, None])
def test_paid_for_what_became_likelier(mode, script):
    """Each turn is worth what a pass over the whole text says; a cut end is measured too."""
    made = played(Probe(gamma=GAMMA, c=C, mode=mode), script=script, turn_tokens=6)
    for one in made.trajectories:
        phi = [likelihood(known(one, n, "s3 small"), mode) for n in range(len(one.turns) + 1)]
        assert one.ended == "truncated"
        for turn, amount in enumerate(amounts(one)):
            assert amount == pytest.approx(C * (GAMMA * phi[turn + 1] - phi[turn]), abs=1e-5)
        total = sum(GAMMA**turn * amount for turn, amount in enumerate(amounts(one)))
        assert total == pytest.approx(C * (GAMMA**3 * phi[3] - phi[0]), abs=1e-5)
        assert abs(amounts(one)[1]) > 1e-6


def test_the_turn_that_answers_is_paid_nothing():
    script = ("find cup yes", "pick s1 yes", "ship north yes")
    for one in played(Probe(gamma=GAMMA), script=script).trajectories:
        assert one.ended == "terminated" and amounts(one)[2] == 0.0
        phi = [np.exp(known(one, n, "s3 small")) for n in range(3)]
        total = sum(GAMMA**turn * amount for turn, amount in enumerate(amounts(one)))
        assert total == pytest.approx(0.5 * (GAMMA**2 * phi[2] - phi[0]), abs=1e-5)


def test_measuring_leaves_no_trace():
    """Whatever is asked in passing, the same tokens are drawn with the same probabilities."""
    plain = played(None, (0, 1, 2, 3), turn_tokens=6)
    for probe in (
        Probe(gamma=GAMMA),
        Probe(gamma=GAMMA, mismatch=True),
        Probe(gamma=GAMMA, control="subtract"),
        Probe(gamma=GAMMA, control="blank", mode="logp"),
    ):
        asked = played(probe, (0, 1, 2, 3), turn_tokens=6)
        for one, other in zip(plain.trajectories, asked.trajectories, strict=True):
            assert np.array_equal(one.ids, other.ids) and np.array_equal(one.logp, other.logp)
            assert amounts(other) and other.scored
        assert asked.tokens["scorer"] > 0 == plain.tokens["scorer"]
        assert asked.tokens["policy"] == plain.tokens["policy"]
        assert asked.tokens["prefill"] == plain.tokens["prefill"]


def test_siblings_are_asked_once_before_they_begin():
    """Tokens of a measurement: what is put behind, and the turn's last token where that is new."""
    made = played(Probe(gamma=GAMMA), script=SCRIPT, group=4)
    behind = len(TEMPLATE.encode("Answer: s3 small"))
    last = 1 + len(TEMPLATE.reply("bad", stopped=True))
    assert made.tokens["scorer"] == behind + 4 * (3 * behind + last)


def test_of_several_right_answers_the_likeliest_counts():
    golds = {0: ("s3 small", "s5", "it is s1 big")}
    made = played(Probe(gamma=GAMMA), make=lambda: Library(golds), script=SCRIPT)
    for one in made.trajectories:
        phi = [np.exp(max(known(one, n, gold) for gold in golds[0])) for n in range(4)]
        for turn, amount in enumerate(amounts(one)):
            assert amount == pytest.approx(C * (GAMMA * phi[turn + 1] - phi[turn]), abs=1e-5)


def test_where_nothing_is_asked_nothing_is_paid():
    made = played(Probe(gamma=GAMMA), (3,))
    for one in made.trajectories:
        assert amounts(one) == [0.0] * len(one.turns) and one.scored
    assert made.tokens["scorer"] == 0


def test_the_answer_of_another_task():
    """Never one that is right, nor where there is no other."""
    made = played(Probe(gamma=GAMMA, mismatch=True), (0, 1, 2, 3), script=SCRIPT, group=1)
    for one, gold in zip(made.trajectories, ("s5", "s3 small", "s5", None), strict=True):
        if gold is None:
            assert amounts(one) == [0.0] * 3
            continue
        phi = [np.exp(known(one, n, gold)) for n in range(4)]
        for turn, amount in enumerate(amounts(one)):
            assert amount == pytest.approx(C * (GAMMA * phi[turn + 1] - phi[turn]), abs=1e-5)
    alone = played(Probe(gamma=GAMMA, mismatch=True), (0, 2), script=SCRIPT, group=1)
    assert all(amounts(one) == [0.0] * 3 for one in alone.trajectories)
    assert shifted([("a", "b"), ("b",), (), ("c",)]) == [("c",), ("c",), (), ("a", "b")]
    assert shifted([]) == []


def test_nothing_read_is_worth_nothing():
    """Blanked replies: the gain is that of the policy's own words, whatever was replied."""
    probe = Probe(gamma=GAMMA, control="blank")
    other = {0: ("s3 small",)}
    one, changed = (
        played(probe, make=lambda r=r: Library(other, replies=r), script=SCRIPT).trajectories[0]
        for r in (("no", "ok at {}", "bad"), ("ok", "no at s1 big", "got"))
    )
    phi = [np.exp(known(one, n, "s3 small", hide=True)) for n in range(4)]
    for turn, amount in enumerate(amounts(one)):
        assert amount == pytest.approx(C * (GAMMA * phi[turn + 1] - phi[turn]), abs=1e-5)
    assert amounts(one) == amounts(changed)
    plain = played(Probe(gamma=GAMMA), script=SCRIPT).trajectories[0]
    assert np.abs(np.subtract(amounts(one), amounts(plain))).max() > 1e-6


def test_what_replies_add_is_kept():
    """With ``subtract`` the potential is the greatest surplus so far over blanked replies."""
    made = played(Probe(gamma=GAMMA, control="subtract"), script=SCRIPT)
    for one in made.trajectories:
        seen = [np.exp(known(one, n, "s3 small")) for n in range(4)]
        blind = [np.exp(known(one, n, "s3 small", hide=True)) for n in range(4)]
        phi = np.maximum.accumulate(np.maximum(np.subtract(seen, blind), 0.0))
        for turn, amount in enumerate(amounts(one)):
            assert amount == pytest.approx(C * (GAMMA * phi[turn + 1] - phi[turn]), abs=1e-5)
        assert phi[0] == 0.0 and phi[-1] > 0.0


def test_the_call_that_hands_in_stands_before_the_answer():
    """Where the environment has a form for it; a stub of one's own goes before that."""

    class Formal(Library):
        def format(self, tool, args):
            return f"it is {args['answer']} done"

    one = played(Probe(gamma=GAMMA), make=Formal, script=SCRIPT).trajectories[0]
    phi = [np.exp(known(one, n, "s3 small", stub="it is")) for n in range(2)]
    assert amounts(one)[0] == pytest.approx(C * (GAMMA * phi[1] - phi[0]), abs=1e-5)
    own = played(Probe(gamma=GAMMA, stub="got"), make=Formal, script=SCRIPT).trajectories[0]
    phi = [np.exp(known(own, n, "s3 small", stub="got")) for n in range(2)]
    assert amounts(own)[0] == pytest.approx(C * (GAMMA * phi[1] - phi[0]), abs=1e-5)


def test_an_environment_that_grades_late_is_measured_every_turn():
    made = played(Probe(gamma=GAMMA), make=lambda: Library(verdicts=False), script=SCRIPT)
    plain = played(Probe(gamma=GAMMA), script=SCRIPT)
    for one, other in zip(made.trajectories, plain.trajectories, strict=True):
        assert amounts(one) == amounts(other)
        assert [turn.status for turn in one.turns] == ["ungraded", "ungraded", "ok"]


def test_beside_other_channels():
    def make():
        return build(Library(), "progress", gamma=GAMMA, on_truncation="keep")

    for one in played(Probe(gamma=GAMMA, name="gain"), make=make, script=SCRIPT).trajectories:
        assert list(one.rewards()) == ["base", "progress", "gain"]


def test_a_cut_brings_no_knowledge():
    """A reply that does not fit was not read: what is known stays what it was, and is measured."""
    engine = Engine(POLICY, lanes=4, context=18)
    replies = ("no", "ok at {}", "no", "ok done")
    seen = set()
    for one in played(
        Probe(gamma=GAMMA), make=lambda: Library(replies=replies * 9), engine=engine, group=16
    ).trajectories:
        if one.ended != "truncated":
            continue
        assert one.turns[-1].cut and one.scored
        with_tokens = bool((one.turn == len(one.turns) - 1).any())
        seen.add(with_tokens)
        read = len(one.turns) - (1 if with_tokens else 2)
        phi = [np.exp(known(one, n, "s3 small")) for n in range(read + 1)]
        phi += [phi[-1]] * (len(one.turns) - read)
        for turn, amount in enumerate(amounts(one)):
            assert amount == pytest.approx(C * (GAMMA * phi[turn + 1] - phi[turn]), abs=1e-5)
    assert seen == {True, False}


def test_an_answer_that_does_not_fit_is_not_measured():
    """Where the model itself goes no further, the turn says so and the episode is not learnt."""
    policy = opinionated(context=20)
    golds = {0: ("s3 small s3 small s3 small s3 small",)}
    made = played(
        Probe(gamma=GAMMA),
        make=lambda: Library(golds, replies=("no",) * 3),
        engine=Engine(policy, lanes=4),
        script=SCRIPT,
    )
    for one in made.trajectories:
        assert not one.scored
        missing = [turn for turn in one.turns if turn.unmeasured]
        assert missing and all("does not fit" in turn.unmeasured for turn in missing)
        assert not one.turns[0].unmeasured


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gamma": 0.0}, r"gamma must be a number in \(0, 1\], got 0"),
        ({"gamma": 1.0, "c": 1.0}, r"c must be a number in \(0, 1\), got 1"),
        ({"gamma": 1.0, "mode": "log"}, "mode must be one of"),
        ({"gamma": 1.0, "control": "add"}, "control must be one of"),
        ({"gamma": 1.0, "mismatch": 1}, "mismatch must be one of"),
        ({"gamma": 1.0, "name": ""}, "name must be a text"),
    ],
)
def test_what_a_probe_cannot_be(given, message):
    with pytest.raises(ValueError, match=message):
        Probe(**given)


def test_looks_are_changed_in_one_thing():
    def look(name):
        return lambda: name

    assert looking(look, None)("gold")() == "gold"
    assert looking(look, ("a",))("gold")() == ("a",)
    assert looking(look, ("a",))("format")() == "format"
