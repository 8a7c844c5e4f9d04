"""Short calls as a person types them."""

from __future__ import annotations

import pytest

from headway.agents.person import parse_line
from headway.envs.actions import ToolCall
from headway.envs.tools import ToolError, tool


@tool
def mix(
    state: object,
    text: str,
    count: int = 0,
    share: float = 0.0,
    sure: bool = False,
    names: list[str] | None = None,
    sizes: list[int] | None = None,
) -> str:
    """Take one of each.

    Args:
        text: Some text.
        count: How many.
        share: How much.
        sure: Whether.
        names: Some names.
        sizes: Some sizes.
    """
    return text


@tool
def find(state: object, query: str) -> str:
    """Find something.

    Args:
        query: What.
    """
    return query


TOOLS = {"mix": mix, "find": find}


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("mix text=hi", {"text": "hi"}),
        ("mix text='two words' count=3", {"text": "two words", "count": 3}),
        ('mix text="it\'s" share=2.50', {"text": "it's", "share": 2.5}),
        ("mix text= sure=true", {"text": "", "sure": True}),
        ("mix text=a=b sure=false", {"text": "a=b", "sure": False}),
        ("mix text=5 share=5", {"text": "5", "share": 5.0}),
        ("mix text=null names=null", {"text": "null", "names": None}),
        ("mix text=t names=a,b", {"text": "t", "names": ["a", "b"]}),
        ("mix text=t names=", {"text": "t", "names": []}),
        ("mix text=t sizes=1,-2", {"text": "t", "sizes": [1, -2]}),
        ("mix text=Zoë", {"text": "Zoë"}),
        ('mix(text="a, b", count=3)', {"text": "a, b", "count": 3}),
        ("mix (text='(t)' names='a,b')", {"text": "(t)", "names": ["a", "b"]}),
    ],
)
def test_values_are_read_by_the_schema(line, args):
    call = parse_line(line, TOOLS)
    assert call == ToolCall("mix", args)
    assert {type(value) for value in call.args.values()} == {type(v) for v in args.values()}


@pytest.mark.parametrize(
    "line",
    [
        *('find query="team lunch"', "find 'team lunch'", "find team lunch"),
        *('find(query="team lunch")', 'find("team lunch")'),
    ],
)
def test_the_value_of_a_single_parameter_may_stand_alone(line):
    assert parse_line(line, TOOLS) == ToolCall("find", {"query": "team lunch"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("mixx text=t", r'unknown tool "mixx" \(did you mean mix\?\)'),
        ("mix", 'missing argument "text"'),
        ("mix txt=t", r'unknown argument "txt" \(did you mean text\?\)'),
        ("mix text", "expected name=value after mix, got 'text'"),
        ("find qury=t", r'unknown argument "qury" \(did you mean query\?\)'),
        ("find()", 'missing argument "query"'),
        ("mix('t)", "no closing quotation"),
        ("mix text=a text=b", "text is given twice"),
        ("mix text=t count=few", 'count must be an integer, got "few"'),
        ("mix text=t share=nan", "share must be a number"),
        ("mix text=t sure=yes", 'sure must be true or false, got "yes"'),
        ("mix text=t sizes=1,x", r'sizes\[1\] must be an integer, got "x"'),
        ("mix text='t", "no closing quotation; put quotes around"),
    ],
)
def test_a_line_that_is_no_call_says_why(line, says):
    with pytest.raises(ToolError, match=says):
        parse_line(line, TOOLS)
