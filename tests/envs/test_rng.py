"""Streams of random numbers: fixed for ever, unbiased, independent."""

import copy
import hashlib
import os
import pickle
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.envs.rng import Rng

PARTS = st.lists(st.text() | st.integers(-(2**70), 2**70), min_size=1, max_size=4)
EDGE = 3 * 2**62  # a quarter of all words lies beyond it


def draws(rng: Rng, n: int = 20) -> list[int]:
    return [rng.below(1000) for _ in range(n)]


def test_the_stream_is_sha256_in_counter_mode():
    """Any language can make the same numbers from the description in the docstring."""
    base = hashlib.sha256(b'["Apps",3,"bills"]').digest()
    blocks = [hashlib.sha256(base + i.to_bytes(8, "big")).digest() for i in range(2)]
    words = [int.from_bytes(b[j : j + 8], "big") for b in blocks for j in range(0, 32, 8)]
    rng = Rng("Apps", 3, "bills")
    assert [rng.below(2**64) for _ in range(8)] == words


def test_known_values():
    """A change here changes every task of every domain: it needs new versions of all of them."""
    rng = Rng("headway", 1)
    assert draws(rng, 8) == [944, 705, 864, 485, 139, 432, 989, 674]
    assert rng.random() == 0.9077178546624601
    assert rng.shuffled(range(8)) == [1, 3, 0, 5, 7, 4, 2, 6]
    assert rng.sample("abcdefgh", 3) == ["d", "f", "c"]
    assert rng.choice("abcdefgh") == "f"
    assert rng.randint(-3, 3) == 0
    assert rng.below(10**30) == 553639684175402797954739357820


def test_same_numbers_under_every_hash_seed():
    code = (
        "from headway.envs.rng import Rng; r = Rng('a', 1).sub('b');"
        "print([r.below(99) for _ in range(9)], r.shuffled(['x', 'y', 'z']), r.random())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1 and outputs != {b""}


@given(PARTS, PARTS)
def test_different_keys_are_different_streams(one, two):
    same = [type(p) for p in one] == [type(p) for p in two] and one == two
    assert (draws(Rng(*one)) == draws(Rng(*two))) == same


def test_parts_of_a_key_do_not_run_together():
    keys = [("ab", "c"), ("a", "bc"), ("abc",), (1,), ("1",), ("a", ""), ("a",), ('a","b',)]
    keys += [("a", "b"), ("\U0001f378",), ("\ud83c\udf78",), (1, 2), (12,), (-1,)]
    assert len({tuple(draws(Rng(*key))) for key in keys}) == len(keys)


@pytest.mark.parametrize("key", [(True,), (1.0,), (None,), (("a", "b"),), ("a", b"b")])
def test_a_key_of_another_type_is_refused(key):
    with pytest.raises(TypeError, match="key must hold only str and int"):
        Rng(*key)


def test_an_empty_key_is_refused():
    with pytest.raises(ValueError, match="key must have"):
        Rng()
    with pytest.raises(ValueError, match="name must have"):
        Rng("a").sub()


def test_sub_streams_do_not_depend_on_what_was_drawn():
    rng = Rng("a", 1)
    fresh = draws(rng.sub("x"))
    before = draws(copy.deepcopy(rng))
    assert draws(rng) == before != fresh  # making a sub-stream moved nothing
    assert draws(rng.sub("x")) == fresh
    assert draws(rng.sub("y")) != fresh
    assert draws(rng.sub("x", 2)) == draws(rng.sub("x").sub(2)) == draws(Rng("a", 1, "x", 2))


@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
@pytest.mark.parametrize("drawn", range(6))
def test_copies_go_on_from_the_same_place_and_apart(twin, drawn):
    rng = Rng("a", 1)
    draws(rng, drawn)
    other, third = twin(rng), copy.deepcopy(rng)
    assert draws(other) == draws(rng) == draws(third)


@given(st.integers(1, 2**200), st.integers(0, 1000))
def test_below_is_in_range(n, key):
    assert 0 <= Rng(key).below(n) < n


@pytest.mark.parametrize("n", [0, -1, 2.0, True, None, "3"])
def test_below_refuses(n):
    with pytest.raises(ValueError, match="n must be an int of at least 1, got"):
        Rng("a").below(n)


def test_below_does_not_favour_small_numbers():
    """Taking the remainder of a whole word would give the lower third half of the draws."""
    rng = Rng("bias")
    low = sum(rng.below(EDGE) < 2**62 for _ in range(3000))
    assert 900 < low < 1100
    wide = Rng("wide")
    low = sum(wide.below(EDGE << 64) < 2**126 for _ in range(3000))
    assert 900 < low < 1100


def test_below_is_uniform():
    rng = Rng("dice")
    seen = Counter(rng.below(6) for _ in range(6000))
    assert sorted(seen) == list(range(6))
    assert all(880 < n < 1120 for n in seen.values())


def test_randint_reaches_both_ends():
    rng = Rng("ends")
    assert {rng.randint(-2, 2) for _ in range(200)} == {-2, -1, 0, 1, 2}
    assert rng.randint(7, 7) == 7
    with pytest.raises(ValueError, match="b must be at least a, got a=3, b=2"):
        rng.randint(3, 2)


def test_random_is_a_fraction_of_53_bits():
    rng = Rng("unit")
    values = [rng.random() for _ in range(2000)]
    assert all(0 <= v < 1 and v * 2**53 == int(v * 2**53) for v in values)
    assert any(v * 2**53 % 2 for v in values)
    assert 0.48 < sum(values) / len(values) < 0.52


def test_choice_takes_every_item():
    rng = Rng("pick")
    assert {rng.choice("abc") for _ in range(100)} == set("abc")
    with pytest.raises(ValueError, match="seq must have at least one item"):
        rng.choice([])


def test_every_order_is_as_likely():
    rng = Rng("orders")
    seen = Counter("".join(rng.shuffled("abc")) for _ in range(6000))
    assert len(seen) == 6
    assert all(880 < n < 1120 for n in seen.values())


@given(st.lists(st.integers()), st.integers(0, 99))
def test_shuffled_keeps_the_items_and_the_original(items, key):
    before = list(items)
    assert sorted(Rng(key).shuffled(items)) == sorted(before)
    assert items == before


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 99))
def test_sample_takes_from_different_places(size, k, key):
    if k > size:
        with pytest.raises(ValueError, match=rf"k must be in \[0, {size}\]"):
            Rng(key).sample(range(size), k)
    else:
        taken = Rng(key).sample(range(size), k)
        assert len(taken) == len(set(taken)) == k


def test_every_sample_is_as_likely():
    rng = Rng("pairs")
    seen = Counter("".join(rng.sample("abc", 2)) for _ in range(6000))
    assert len(seen) == 6
    assert all(880 < n < 1120 for n in seen.values())


def test_a_negative_sample_is_refused():
    with pytest.raises(ValueError, match="got -1"):
        Rng("a").sample("abc", -1)


@pytest.mark.parametrize("unordered", [{"a", "b"}, frozenset("ab"), {"a": 1}.keys()])
def test_what_has_no_order_is_refused(unordered):
    with pytest.raises(TypeError, match="seq must be a list or another sequence"):
        Rng("a").shuffled(unordered)
    with pytest.raises(TypeError, match="seq must be a list or another sequence"):
        Rng("a").sample(unordered, 1)


def test_it_shows_its_key():
    assert repr(Rng("a", 1)) == "Rng('a', 1)"
    assert repr(Rng("a")) == "Rng('a')"
