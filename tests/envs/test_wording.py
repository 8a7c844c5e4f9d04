"""What observations are made of: bounded, whole, in literal characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.envs.wording import LISTED, SHOWN, brief, cut, listed, near, quoted, reply_text, whole

ANY_TEXT = st.text(st.characters(codec=None))  # surrogates too


@given(ANY_TEXT)
def test_whole_text_can_be_encoded(text):
    whole(text).encode()


@given(st.text())
def test_whole_leaves_sound_text_alone(text):
    assert whole(text) == text


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        ("a\ud83c\udf78b", "a\U0001f378b"),
        ("\ud83d", "\ufffd"),
        ("\ud83dx", "\ufffdx"),
        ("\udf78\ud83c", "\ufffd\ufffd"),
        ("\ufeffé\udf78", "\ufeffé\ufffd"),
    ],
)
def test_surrogates_are_joined_or_replaced(broken, mended):
    assert whole(broken) == mended


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("\ud83c\udf78", "\U0001f378"),
        (b"caf\xc3\xa9 \xb0", "café \ufffd"),
        ({"b": "é🍸", "a": [1, 2.5, None, True]}, '{"b":"é🍸","a":[1,2.5,null,true]}'),
        (["\ud83d"], '["\ufffd"]'),
        (None, "null"),
        (3, "3"),
    ],
)
def test_replies_are_literal(value, text):
    assert reply_text(value) == text


def test_a_reply_that_is_not_json_is_the_tools_fault():
    with pytest.raises(TypeError):
        reply_text({"a": {1, 2}})


@given(st.text(max_size=300), st.integers(0, 300))
def test_cut_text_fits_and_says_what_is_gone(text, limit):
    short = cut(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    elif limit >= 30:
        kept, _, mark = short.rpartition("… [")
        assert text.startswith(kept) and mark == f"{len(text) - len(kept)} characters cut]"
        assert len(short) >= limit - 1
    elif limit:
        assert "…" in short


def test_cut_by_hand():
    assert cut("x" * 100, 30) == "xxxxxxxx… [92 characters cut]"
    assert cut("x" * 100, 3) == "xx…"
    assert cut("x", 0) == ""
    with pytest.raises(ValueError, match="limit must be at least 0, got -1"):
        cut("x", -1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true (boolean)"),
        (5, "5 (integer)"),
        (10**SHOWN, "a huge integer"),
        (2.5, "2.5 (number)"),
        (float("nan"), "nan (number)"),
        ('é"\n', '"é\\"\\n" (string)'),
        ([[]] * 7, "a list of 7"),
        ({"a": 1}, "an object"),
        (b"x", "a bytes"),
    ],
)
def test_values_are_shown_by_type(value, text):
    assert brief(value) == text


def test_long_names_and_lists_are_bounded():
    assert len(quoted("x" * 5000)) == SHOWN + 2
    assert len(brief("\n" * 5000)) < 3 * SHOWN
    assert brief(10**5000) == "a huge integer"
    assert quoted("a", "b") == '"a", "b"'
    assert listed(["a"] * LISTED, "; ") == "a; a; a; a; a"
    assert listed(["a"] * (LISTED + 2), "; ") == "a; a; a; a; a; 2 more"


def test_the_nearest_name():
    assert near("mail_sned", ["pay_send", "mail_send"]) == " (did you mean mail_send?)"
    assert near("zzz", ["mail_send"]) == near("", ["mail_send"]) == near("a", []) == ""
