"""Memory as data, and the layers of a stack that have some."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.verifiers.memory import Memory, with_state
from headway.wrappers import GatedReward, ProgressReward
from headway.wrappers.miniature import Miniature


class Diary(Memory):
    """Remembers two things, and has one that is no memory."""

    memory = ("pages", "owner")

    def __init__(self, pages, owner):
        self.pages, self.owner, self.color = pages, owner, "red"


PAGES = st.dictionaries(st.text(max_size=3), st.lists(st.integers()), min_size=1, max_size=3)


@given(pages=PAGES, other=PAGES, owner=st.text(max_size=3))
def test_what_was_put_away_comes_back(pages, other, owner):
    """As plain data, and whatever becomes of the one or the other afterwards."""
    first, second = Diary(json.loads(json.dumps(pages)), owner), Diary(other, "")
    state = first.state_dict()
    assert sorted(state) == ["owner", "pages"]
    for page in first.pages.values():
        page.append(7)
    second.load_state_dict(state)
    assert (second.pages, second.owner, state["pages"]) == (pages, owner, pages)
    for page in second.pages.values():
        page.append(8)
    assert state["pages"] == pages


@pytest.mark.parametrize("state", [{}, {"pages": {}}, {"pages": {}, "owner": "", "color": ""}])
def test_another_memory_is_refused(state):
    diary = Diary({"a": [1]}, "me")
    with pytest.raises(ValueError, match=r"state must have keys \['owner', 'pages'\], got"):
        diary.load_state_dict(state)
    assert (diary.pages, diary.owner) == ({"a": [1]}, "me")


def test_layers_come_from_the_outside_in_and_the_environment_last():
    world = Miniature()
    inner = ProgressReward(gym.wrappers.OrderEnforcing(world), gamma=1.0)
    outer = GatedReward(inner)
    stack = gym.wrappers.PassiveEnvChecker(gym.wrappers.OrderEnforcing(outer))
    assert list(with_state(stack)) == [outer, inner, world]
    assert list(with_state(world)) == [world]


@pytest.mark.parametrize("wrap", [gym.wrappers.RecordEpisodeStatistics, gym.wrappers.Autoreset])
def test_a_layer_whose_memory_would_be_lost_is_refused(wrap):
    """Outermost or in between, though its own environment has a state."""
    for stack in (wrap(Miniature()), GatedReward(wrap(Miniature()))):
        with pytest.raises(TypeError, match=f"get_state and set_state, got {wrap.__name__}, whose"):
            list(with_state(stack))
    with pytest.raises(TypeError, match="got CartPoleEnv"):
        list(with_state(gym.make("CartPole-v1").unwrapped))
