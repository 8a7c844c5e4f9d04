"""Texts of every kind, alone and in gymnasium's vectors; the cut is one object everywhere."""

import copy
import importlib
import json
import multiprocessing
import pickle
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given
from hypothesis import strategies as st

from headway.envs.spaces import CUT, Cut, TextSpace

HARD = [
    "",
    " ",
    "\r\n",
    '{"tool": "a"}',
    "naïve",
    "日本語",
    "👩‍👩‍👧‍👦",
    "\x00",
    "\ud83d",
    "x" * 10_000,
]
NO_TEXT = [None, 5, b"x", ["a"], CUT, object()]


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("echo_env")


@pytest.mark.parametrize("text", HARD)
def test_every_text_is_contained(text):
    assert text in TextSpace() and text in TextSpace(cut=True)


@pytest.mark.parametrize("other", NO_TEXT)
def test_nothing_else_is(other):
    assert other not in TextSpace()
    assert (other in TextSpace(cut=True)) == (other is CUT)


def test_length_is_bounded_on_request():
    space = TextSpace(3)
    assert "日本語" in space and "日本語!" not in space and "" in space
    assert "" in TextSpace(0) and "a" not in TextSpace(0)
    assert all(space.sample() in space for _ in range(50))
    assert CUT not in space and CUT in TextSpace(3, cut=True)


@pytest.mark.parametrize("length", [-1, 2.0, True, "3"])
def test_bad_lengths_are_refused(length):
    with pytest.raises(ValueError, match="max_length must be None or an int >= 0, got"):
        TextSpace(length)


def test_membership_does_not_look_at_characters():
    class Unread(str):
        def __iter__(self):
            raise AssertionError("read a character")

        __getitem__ = encode = isascii = __iter__

    assert Unread("abc") in TextSpace(5)


def test_samples_are_seeded_and_varied():
    one, two, three = TextSpace(seed=7), TextSpace(), TextSpace(seed=8)
    two.seed(7)
    samples = [one.sample() for _ in range(200)]
    assert samples == [two.sample() for _ in range(200)]
    assert samples != [three.sample() for _ in range(200)]
    assert len(set(samples)) > 150 and "" in samples
    assert all(type(sample) is str and sample in one for sample in samples)
    assert any(not sample.isascii() for sample in samples)
    assert any('{"tool": "' in sample for sample in samples)
    assert any("</tool_call>" in sample for sample in samples)
    "".join(samples).encode()


def test_the_cut_is_never_drawn():
    space = TextSpace(cut=True, seed=0)
    assert all(isinstance(space.sample(), str) for _ in range(200))


def test_masks_are_refused():
    with pytest.raises(ValueError, match="mask and probability must be None, got 1 and None"):
        TextSpace().sample(mask=1)
    with pytest.raises(ValueError, match="mask and probability must be None"):
        TextSpace().sample(probability=1)


def test_equality_and_repr():
    assert TextSpace() == TextSpace(seed=5)
    assert TextSpace(5) != TextSpace() and TextSpace(cut=True) != TextSpace()
    assert TextSpace(5) == TextSpace(5) and TextSpace(5) != gym.spaces.Text(5)
    assert repr(TextSpace(5, cut=True)) == "TextSpace(max_length=5, cut=True)"
    assert TextSpace().is_np_flattenable is False


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_go_on_alike(twin):
    space = TextSpace(20, cut=True, seed=3)
    space.sample()
    other = twin(space)
    assert other == space
    assert [other.sample() for _ in range(9)] == [space.sample() for _ in range(9)]


@given(st.lists(st.text() | st.just(CUT)))
def test_json_round_trip(texts):
    space = TextSpace(cut=True)
    back = space.from_jsonable(json.loads(json.dumps(space.to_jsonable(texts))))
    assert back == texts


def test_the_cut_is_one_object():
    assert repr(CUT) == "headway.CUT"
    assert CUT and CUT != "headway.CUT" and CUT != "" and CUT is not None
    assert Cut() is CUT
    for twin in (copy.copy, copy.deepcopy):
        assert twin(CUT) is CUT and twin({"a": [CUT]})["a"][0] is CUT
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(CUT, protocol)) is CUT


def test_the_cut_is_one_object_in_another_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(TextSpace(cut=True).contains, (CUT,)) is True
        assert pool.apply(copy.copy, (CUT,)) is CUT


def test_batches():
    """Gymnasium's path for spaces that it does not know: tuples of texts."""
    space = TextSpace(cut=True, seed=1)
    batch = batch_space(space, 3)
    assert ("a", "", CUT) in batch and len(batch.sample()) == 3
    assert batch.sample()[0] != batch.sample()[1]
    texts = ("a", "日本", '{"x": 1}')
    buffer = create_empty_array(space, 3)
    assert concatenate(space, texts, buffer) == texts
    assert tuple(iterate(batch, texts)) == texts


def test_the_environment_checker_is_content(echo):
    """Its warnings would fail this test."""
    check_env(echo.Echo(), skip_render_check=True)


def play(envs: gym.vector.VectorEnv) -> list[object]:
    """What two lanes see of hard texts, and of a cut."""
    try:
        seen: list[object] = [envs.reset(seed=5)[0]]
        for i in range(0, len(HARD) - 1, 2):
            seen.append(envs.step((HARD[i], HARD[i + 1]))[0])
            assert seen[-1] in envs.observation_space
        obs, _, _, truncated, _ = envs.step((CUT, "on"))
        return [*seen, obs, truncated.tolist()]
    finally:
        envs.close()


def alone(echo: ModuleType) -> list[object]:
    """The same without gymnasium's vectors."""
    lanes = [echo.Echo(), echo.Echo()]
    seen: list[object] = [tuple(env.reset(seed=5 + i)[0] for i, env in enumerate(lanes))]
    pairs = [(HARD[i], HARD[i + 1]) for i in range(0, len(HARD) - 1, 2)] + [(CUT, "on")]
    for pair in pairs:
        steps = [env.step(action) for env, action in zip(lanes, pair, strict=True)]
        seen.append(tuple(step[0] for step in steps))
    return [*seen, [step[3] for step in steps]]


def test_text_is_the_same_in_a_sync_vector(echo):
    assert play(SyncVectorEnv([echo.Echo] * 2)) == alone(echo)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns of threads
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_text_is_the_same_in_an_async_vector(echo, context):
    envs = AsyncVectorEnv([echo.Echo] * 2, shared_memory=False, context=context)
    assert play(envs) == alone(echo)


def test_shared_memory_is_refused_and_the_way_out_is_named(echo):
    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv([echo.Echo] * 2)

    def nested() -> gym.Env:
        space = gym.spaces.Dict(text=TextSpace())
        return gym.wrappers.TransformObservation(echo.Echo(), lambda t: {"text": t}, space)

    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv([nested] * 2)
