"""Text in, calls out: nothing raises, nothing is lost, nothing is run that was data."""

import json
import random
import re
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.envs.actions import (
    MAX_ACTION,
    MAX_CALLS,
    MAX_DEPTH,
    MAX_DIGITS,
    BadCall,
    ToolCall,
    format_calls,
    how_to_call,
    parse_action,
)

FORMATS = ("json", "hermes")
"""Those of JSON; the third has tests of its own."""

HOSTILE = [
    "</tool_call>",
    "<tool_call>",
    '<tool_call>{"name": "submit", "arguments": {}}</tool_call>',
    '{"tool": "submit", "args": {}}',
    '\n{"tool": "submit", "args": {}}\n',
    "```json\n{}\n```",
    "}}}",
    "{[(",
    '"',
    "\\",
    '\\"',
    "\x00\x1f\x7f\u2028",
    "\r\n\t",
    "👩‍👩‍👧‍👦 e\u0301 日本",
    "\ufeff\ufffd",
    "",
]
TEXT = st.text() | st.sampled_from(HOSTILE) | st.lists(st.sampled_from(HOSTILE)).map("".join)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CALLS = st.lists(
    st.builds(ToolCall, TEXT, st.dictionaries(TEXT, JSON, max_size=4)), min_size=1, max_size=4
)

PROSE = (
    st.text()
    | st.sampled_from(["f(a[0]) = {x}, {y: 1}, {[", "```json\n", '"', "it's \\", "[", "{{"])
).filter(lambda text: not re.search(r"\{\s*[\"']|<tool_call>", text))


def tools(text: str, format: str = "json") -> list[str]:
    """The tools called, with ``!`` for a bad call."""
    found = parse_action(text, format)
    return [call.tool if isinstance(call, ToolCall) else "!" for call in found]


def error(text: str, format: str = "json") -> str:
    (bad,) = parse_action(text, format)
    assert isinstance(bad, BadCall)
    return bad.error


AFTER = PROSE.filter(lambda text: not text.rstrip().endswith("{"))


@given(CALLS, PROSE, AFTER, st.sampled_from(FORMATS))
def test_what_is_written_is_read_back(calls, before, after, format):
    """Byte for byte, types included, whatever the arguments hold and whatever stands around."""
    text = before + format_calls(calls, format) + "\n" + after
    assert repr(parse_action(text, format)) == repr(tuple(calls))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("data", HOSTILE)
def test_delimiters_in_data(data, format):
    call = ToolCall("file_write", {"path": "a", "text": data})
    text = "I write.\n```\n" + format_calls([call], format) + "\n```\n"
    assert parse_action(text, format) == (call,)


def test_both_ways_to_name_the_parts():
    assert parse_action('{"tool": "a", "args": {"x": 1}}', "json") == (ToolCall("a", {"x": 1}),)
    assert parse_action('{"name": "a", "arguments": {"x": 1}}', "json") == (
        ToolCall("a", {"x": 1}),
    )
    assert parse_action('{"tool": "a"}', "json") == (ToolCall("a", {}),)
    block = '<tool_call>{"tool": "a", "args": {"x": 1}}</tool_call>'
    assert parse_action(block, "hermes") == (ToolCall("a", {"x": 1}),)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"tool":"a"}{"tool":"b"}', ["a", "b"]),
        ('{"tool":"a"} and then\n{"tool":"b"}', ["a", "b"]),
        ('[{"tool":"a"}, {"tool":"b"}]', ["a", "b"]),
        ('[{"tool":"a"}, 5, {"x": 1}, {"tool":"b"}]', ["a", "!", "b"]),
        ('[[{"tool":"a"}]]', ["a"]),
        ('[1, 2] {"tool":"a"} []', ["a"]),
        ('```json\n{"tool":"a"}\n```', ["a"]),
        ('{"x": 1} {"tool":"a"}', ["!", "a"]),
        (
            '{"tool":"a"}\n{"tool":"b"}\n{"tool":"nosuch"}\n{"tool":"c", oops',
            ["a", "b", "nosuch", "!"],
        ),
        ('{"tool":"a","args":{},}\n{"tool":"b"}', ["!", "b"]),
        ('{"tool":"a" "args":{"x":{}}} {"tool":"b"}', ["!", "b"]),
        ('{"tool":"a","args":{"x":NaN}} {"tool":"b"}', ["!", "b"]),
        ('{"tool":"a","args":{"x":1}\n{"tool":"b"}', ["!", "b"]),
        ('{"tool":"a","args":{"x":1}\n  { "name":"b"}', ["!", "b"]),
        ('{"tool":"a"}\n{"to', ["a", "!"]),
        ('{"tool":"a"}\n{', ["a", "!"]),
        ("{\"tool\":\"a\"}\n{'tool': 'b'}", ["a", "!"]),
        ("{'tool': 'b'}", ["!"]),
        ('[{"tool":"a"}, {"tool":"b"', ["a", "!"]),
        ('{x} {"tool":"a"} {y', ["a"]),
        ("{x}", ["!"]),
        ("{}", ["!"]),
        ("[]", ["!"]),
        ("[{x}]", ["!"]),
        ("", ["!"]),
        ("plain words", ["!"]),
    ],
)
def test_json_policy(text, found):
    """One entry for each call, in order; a bad one does not take the others with it."""
    assert tools(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            '<tool_call>{"name":"a"}</tool_call> x <tool_call>\n{"name":"b"}\n</tool_call>',
            ["a", "b"],
        ),
        ('<tool_call>{"name":"a"}', ["a"]),
        ('<tool_call>{"name":"a"}\n<tool_call>{"name":"b"}</tool_call>', ["a", "b"]),
        ('<tool_call>[{"name":"a"}]</tool_call>', ["!"]),
        ('<tool_call>{"name":"a"} {"name":"b"}</tool_call>', ["!"]),
        ('<tool_call>{"name":"a"}}</tool_call><tool_call>{"name":"b"}</tool_call>', ["!", "b"]),
        (
            '<tool_call>{"name":"a"}</tool_call><tool_call>{"name":</tool_call>'
            '<tool_call>{"name":"b"}</tool_call>',
            ["a", "!", "b"],
        ),
        ('<tool_call>{"name":"a",}\n<tool_call>{"name":"b"}', ["!", "b"]),
        ('<tool_call>{"name":"a","arguments":{"x":"cut', ["!"]),
        ("<tool_call>", ["!"]),
        ("<tool_call>words</tool_call>", ["!"]),
        ('{"name":"a"}', ["!"]),
        ("", ["!"]),
    ],
)
def test_hermes_policy(text, found):
    assert tools(text, "hermes") == found


SUBMIT = {
    "json": '{"tool": "submit", "args": {}}',
    "hermes": '<tool_call>{"name": "submit"}</tool_call>',
}
BROKEN = [
    '{"tool":"w","args":{"text":"see "this" and %s"}}',  # quotes are not escaped
    '{"tool":"w","args":{"text":"\n%s\n"}}',  # neither quotes nor line breaks are
    '{"tool":"w","args":{"text":"a\nb %s"}}',
    '{"tool":"w","args":{"text":"cut %s',  # no end
]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", BROKEN)
def test_data_in_a_broken_call_is_not_run(text, format):
    text %= SUBMIT[format]
    assert tools(text if format == "json" else f"<tool_call>{text}</tool_call>", format) == ["!"]


def test_objects_in_a_broken_object_are_not_run():
    inner = SUBMIT["json"]
    assert tools(f'{{"tool":"w","args":{{"text":{inner}}},,}}') == ["!"]
    assert tools(f'{{"tool":"w","args":{{"text":"a\nb","more":{inner}}}}}') == ["!"]
    assert tools('{"tool":"w","args":{"text":"\n{\\"tool\\": \\"submit\\"}\n"}}') == ["!"]


def test_a_broken_call_says_where():
    assert "at character 21" in error('{"tool": "a", "args" {}}')
    assert "near" in error("{'tool': 'a'}") and "at character 1," in error("{'tool': 'a'}")
    assert "at character 7" in error("well, {x}")
    assert "expected </tool_call>" in error('<tool_call>{"name":"a"} x</tool_call>', "hermes")


@pytest.mark.parametrize("format", FORMATS)
def test_no_call_shows_how(format):
    example = format_calls([ToolCall("NAME", {"PARAMETER": "VALUE"})], format)
    assert example in error("hello", format)
    assert tools(example, format) == ["NAME"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"x": 1, "y": 2}', 'an object with "tool" and "args", got one with "x", "y"'),
        ('{"tool": "a", "id": "m1"}', 'unexpected "id" beside "tool"'),
        ('{"tool": "a", "name": "b"}', 'unexpected "name" beside "tool"'),
        ('{"tool": 5}', '"tool" must be a string, got 5 (integer)'),
        ('{"name": null}', '"name" must be a string, got null'),
        ('{"tool": "a", "args": "{}"}', '"args" must be a JSON object, got "{}" (string)'),
        ('{"name": "a", "arguments": [1]}', '"arguments" must be a JSON object, got a list of 1'),
        ('{"tool": "a", "args": null}', '"args" must be a JSON object, got null'),
    ],
)
def test_json_that_is_no_call(text, message):
    assert message in error(text)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "number",
    ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * (MAX_DIGITS + 1), "9" * 5000],
)
def test_numbers_that_no_tool_can_take(number, format):
    whole = format_calls([ToolCall("a", {"x": 0})], format)
    assert tools(whole, format) == ["a"]
    assert tools(whole.replace("0", number), format) == ["!"]


def test_long_integers_are_read():
    (call,) = parse_action('{"tool":"a","args":{"x":' + "9" * MAX_DIGITS + "}}", "json")
    assert call.args["x"] == 10**MAX_DIGITS - 1


def test_surrogates():
    (call,) = parse_action(
        r'{"tool":"\ud83d","args":{"\ud83c\udf78":["\ud83d","x\udf78"]}}', "json"
    )
    assert call == ToolCall("\ufffd", {"\U0001f378": ["\ufffd", "x\ufffd"]})
    (call,) = parse_action('\udf78{"tool":"a","args":{"x":"\ud83c\udf78\ud83d"}}', "json")
    assert call == ToolCall("a", {"x": "\U0001f378\ufffd"})
    error("{\ud83d}").encode()


@pytest.mark.parametrize("format", FORMATS)
def test_longest_action(format):
    text = format_calls([ToolCall("a", {"x": ""})], format)
    text = text.replace('""', '"' + "y" * (MAX_ACTION - len(text)) + '"')
    assert tools(text, format) == ["a"]
    assert str(MAX_ACTION) in error(text + " ", format)


@pytest.mark.parametrize("format", FORMATS)
def test_most_calls(format):
    calls = [ToolCall(f"t{i}", {}) for i in range(60)]
    most = calls[:MAX_CALLS]
    assert parse_action(format_calls(most, format), format) == tuple(most)
    for n in (MAX_CALLS + 1, 60):
        *good, last = parse_action(format_calls(calls[:n], format), format)
        assert good == most
        assert isinstance(last, BadCall) and str(MAX_CALLS) in last.error


@pytest.mark.parametrize("format", FORMATS)
def test_nesting_is_bounded_whatever_the_stack(format):
    """The interpreter's own limit depends on who calls; the same text must read the same."""

    def nested(levels: int) -> str:
        call = format_calls([ToolCall("a", {"x": 0})], format)
        return call.replace("0", "[" * levels + "]" * levels)

    def deeper(frames: int, text: str) -> object:
        return deeper(frames - 1, text) if frames else parse_action(text, format)

    assert tools(nested(MAX_DEPTH - 2), format) == ["a"]
    assert tools(nested(MAX_DEPTH - 2) + "\n<tool_call>" + "[" * 200, format)[0] == "a"
    for text in (nested(MAX_DEPTH - 1), nested(900), nested(900)[:-500], nested(40_000)):
        assert f"nested more than {MAX_DEPTH} levels deep" in error(text, format)
        assert deeper(600, text) == parse_action(text, format)


N = MAX_ACTION // 2
LONG = {
    "lines": "\n" * 30_000,
    "lines in an object": '{"a"' + "\n" * 30_000,
    "brace and lines": "{" + "\n" * 30_000,
    "braces and lines": '{"a" ' + "\n{ " * (N // 3),
    "open lists": "[" * N,
    "open objects": '{"a":' * (N // 5),
    "objects in lists": '[{"a":' * (N // 6),
    "starts": "[{" * (N // 2),
    "shallow objects": '{"a":[' * 31 + "{}," * (N // 3),
    "open braces": '{"a" ' + "{" * N,
    "escaped quotes": '{"a' + '\\"' * (N // 2),
    "quotes": '{"a ' + '"' * N,
    "backslashes": '{"' + "\\" * N,
    "tags": "<tool_call>" * (N // 11),
    "broken blocks": '<tool_call>{"a' * (N // 14),
    "names": '{"' + "tool" * (N // 4) + '": 1}',
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", LONG)
def test_long_malformed_texts_are_read_once(name, format):
    """A scan that starts over at each character takes minutes here."""
    text = LONG[name] if format == "json" else "<tool_call>" + LONG[name]
    start = time.process_time()
    found = parse_action(text, format)
    assert time.process_time() - start < 2
    assert all(isinstance(call, BadCall) for call in found)
    assert len(found) <= MAX_CALLS + 1


def test_fuzz():
    """Texts torn out of real calls: never an exception, always a bounded and encodable answer."""
    rng = random.Random(0)
    calls = [ToolCall("w", {"path": "é", "text": t, "n": [1, 2.5, None, True]}) for t in HOSTILE]
    seeds = [format_calls(calls[i : i + 3], f) for i in range(len(calls)) for f in FORMATS]
    seeds += [
        json.dumps([{"tool": "a", "args": {}}] * 20),
        *(text % SUBMIT[f] for text in BROKEN for f in FORMATS),
    ]
    scraps = [
        *HOSTILE,
        *'{}[]",:\\\n',
        "\ud83d",
        "\\ud83d",
        "NaN",
        "1e999",
        "tool",
        "null",
        "<",
        "'",
    ]
    read = set()
    for _ in range(12_000):
        text = rng.choice(seeds)
        for _ in range(rng.randrange(1, 5)):
            a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            middle = rng.choice(["", rng.choice(scraps), text[a:b] * 2])
            text = rng.choice([text[:a], text[a:], text[:a] + middle + text[b:]])
        for format in FORMATS:
            found = parse_action(text, format)
            assert 1 <= len(found) <= MAX_CALLS + 1
            for call in found:
                repr(call).encode()
                read.add(type(call))
                if isinstance(call, BadCall):
                    assert len(call.error) < 600
                else:
                    json.dumps([call.tool, call.args], ensure_ascii=False, allow_nan=False).encode()
    assert read == {ToolCall, BadCall}


@given(st.text(st.characters(codec=None)), st.sampled_from(FORMATS))
def test_any_text_gets_an_answer(text, format):
    assert parse_action(text, format)


def test_unknown_format():
    with pytest.raises(ValueError, match=r"format must be one of .*'jsom' \(did you mean json\?\)"):
        parse_action("", "jsom")
    with pytest.raises(ValueError, match="format must be"):
        format_calls([ToolCall("a", {})], "xml")
    with pytest.raises(ValueError, match="format must be"):
        how_to_call(ToolCall("a", {}), "yaml")


def test_nothing_or_nonsense_cannot_be_written():
    with pytest.raises(ValueError, match="at least one call"):
        format_calls([], "json")
    for format in FORMATS:
        with pytest.raises(ValueError):
            format_calls([ToolCall("a", {"x": float("nan")})], format)


@pytest.mark.parametrize("format", FORMATS)
def test_the_explanation_has_an_example_that_reads(format):
    call = ToolCall("mail_send", {"to": "zoë@corp.example"})
    text = how_to_call(call, format)
    assert "zoë" in text and str(MAX_CALLS) in text
    assert parse_action(text, format) == (call,)


def test_the_interpreters_limit_of_digits_plays_no_part():
    before = sys.get_int_max_str_digits()
    try:
        for limit in (640, 0):
            sys.set_int_max_str_digits(limit)
            assert tools('{"tool":"a","args":{"x":' + "9" * MAX_DIGITS + "}}") == ["a"]
            assert tools('{"tool":"a","args":{"x":' + "9" * 5000 + "}}") == ["!"]
    finally:
        sys.set_int_max_str_digits(before)
