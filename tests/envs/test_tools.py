"""Tools from functions: their schema, and one strict rule for arguments."""

import copy
import dataclasses
import json
import pickle
from typing import Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.envs.tools import (
    FORMATS,
    MAX_INT,
    MAX_ITEMS,
    MAX_STRING,
    Tool,
    ToolCall,
    ToolError,
    describe,
    parse_action,
    tool,
    unknown_tool,
)


@tool(writes=True, idempotent=False)
def pay_send(
    box: list[Any],
    payee: str,
    amount: float,
    copies: int = 1,
    urgent: bool = False,
    kind: Literal["once", "monthly"] = "once",
    level: Literal[1, 2, 3] = 1,
    cc: list[str] | None = None,
    rows: Optional[list[int]] = None,  # noqa: UP045  # the older spelling counts too
    shares: list[float] | None = None,
    memo: str | None = None,
    note: Literal["a", "b"] | None = None,
) -> str:
    """Pay an amount.

    The payee is told.

    Args:
        box: What was paid so far; not the agent's.
        payee: Who gets it: a name
            from the contacts.
        amount (float): How much, in euros.
        copies: How many times.
        urgent: Pay today.
        kind: How often.
        level: Who has to agree.
        cc: Who is told.
        rows: Lines of the ledger.
        shares: Parts of the whole.
        memo: What for.
        note: A mark.

    Returns:
        Nothing of interest.
    """
    box.append((payee, amount))
    return f"paid {payee}"


@tool
def look(box: object) -> str:
    """Look around."""
    return "nothing"


GOOD = {"payee": "Zoë", "amount": 2.5}


def refusal(**args: Any) -> str:
    with pytest.raises(ToolError) as caught:
        pay_send.bind(GOOD | args)
    return str(caught.value)


def test_the_schema_by_hand():
    assert look.schema() == {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look around.",
            "parameters": {
                "type": "object",
                "properties": {},
                "required": [],
                "additionalProperties": False,
            },
        },
    }
    function = pay_send.schema()["function"]
    assert function["description"] == "Pay an amount. The payee is told."
    assert function["parameters"]["required"] == ["payee", "amount"]
    assert function["parameters"]["additionalProperties"] is False
    properties = function["parameters"]["properties"]
    assert list(properties)[:3] == ["payee", "amount", "copies"]
    assert properties["payee"] == {
        "type": "string",
        "description": "Who gets it: a name from the contacts.",
    }
    assert properties["amount"]["type"] == "number"
    assert properties["copies"] == {
        "type": "integer",
        "description": "How many times.",
        "default": 1,
    }
    assert properties["urgent"]["type"] == "boolean" and properties["urgent"]["default"] is False
    assert properties["kind"]["enum"] == ["once", "monthly"]
    assert (properties["level"]["type"], properties["level"]["enum"]) == ("integer", [1, 2, 3])
    assert (properties["cc"]["type"], properties["cc"]["items"]) == (
        ["array", "null"],
        {"type": "string"},
    )
    assert properties["rows"]["items"] == {"type": "integer"}
    assert properties["shares"]["items"] == {"type": "number"}
    assert properties["note"]["enum"] == ["a", "b", None]
    json.dumps(pay_send.schema())


def test_the_schema_is_fresh():
    pay_send.schema()["function"]["parameters"]["properties"]["payee"]["type"] = "number"
    assert pay_send.schema()["function"]["parameters"]["properties"]["payee"]["type"] == "string"


def test_flags_of_the_decorator():
    assert (pay_send.writes, pay_send.idempotent) == (True, False)
    assert (look.writes, look.idempotent) == (False, True)
    made = Tool.from_function(look.function, writes=True)
    assert (made.name, made.writes, made.idempotent) == ("look", True, True)


@pytest.mark.parametrize(
    ("args", "bound"),
    [
        ({"amount": 3}, {"amount": 3.0}),
        ({"amount": -MAX_INT}, {"amount": float(-MAX_INT)}),
        ({"amount": 1e300}, {"amount": 1e300}),
        ({"copies": 3.0}, {"copies": 3}),
        ({"copies": MAX_INT}, {"copies": MAX_INT}),
        ({"copies": -MAX_INT}, {"copies": -MAX_INT}),
        ({"urgent": True}, {"urgent": True}),
        ({"kind": "monthly"}, {"kind": "monthly"}),
        ({"level": 2.0}, {"level": 2}),
        ({"cc": []}, {"cc": []}),
        ({"cc": ["a"] * MAX_ITEMS}, {"cc": ["a"] * MAX_ITEMS}),
        ({"rows": [1, 2.0]}, {"rows": [1, 2]}),
        ({"shares": [1, 2.5]}, {"shares": [1.0, 2.5]}),
        ({"cc": None, "memo": None, "note": None}, {"cc": None, "memo": None, "note": None}),
        ({"memo": "x" * MAX_STRING}, {"memo": "x" * MAX_STRING}),
        ({"memo": ""}, {"memo": ""}),
    ],
)
def test_arguments_that_fit(args, bound):
    """Types of the result are exactly those of the annotations, so 25 and 25.0 are one amount."""
    assert repr(pay_send.bind(GOOD | args)) == repr(GOOD | bound)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"payee": 5}, "payee must be a string, got 5 (integer)"),
        ({"payee": None}, "payee must be a string, got null"),
        ({"payee": ["a"]}, "payee must be a string, got a list of 1"),
        ({"payee": "x" * (MAX_STRING + 1)}, "payee must have at most 10000 characters, got 10001"),
        ({"amount": "100"}, 'amount must be a number, got "100" (string)'),
        ({"amount": True}, "amount must be a number, got true (boolean)"),
        ({"amount": float("nan")}, "amount must be a number, got nan (number)"),
        ({"amount": float("-inf")}, "amount must be a number, got -inf (number)"),
        ({"amount": MAX_INT + 1}, "amount must be at most 9007199254740992 in size"),
        ({"amount": 10**5000}, "amount must be at most 9007199254740992 in size"),
        ({"amount": None}, "amount must be a number, got null"),
        ({"copies": 2.5}, "copies must be an integer, got 2.5 (number)"),
        ({"copies": "3"}, 'copies must be an integer, got "3" (string)'),
        ({"copies": False}, "copies must be an integer, got false (boolean)"),
        ({"copies": None}, "copies must be an integer, got null"),
        ({"copies": float("inf")}, "copies must be an integer, got inf"),
        ({"copies": 1e300}, "copies must be an integer, got 1e+300"),
        ({"copies": -MAX_INT - 1}, "copies must be at most"),
        ({"urgent": "true"}, 'urgent must be true or false, got "true" (string)'),
        ({"urgent": 1}, "urgent must be true or false, got 1 (integer)"),
        ({"kind": "montly"}, 'kind must be one of "once", "monthly", got "montly" (string)'),
        ({"kind": "montly"}, "(did you mean monthly?)"),
        ({"level": True}, "level must be one of 1, 2, 3, got true (boolean)"),
        ({"level": 4}, "level must be one of 1, 2, 3, got 4 (integer)"),
        ({"note": "c"}, 'note must be one of "a", "b", null, got "c"'),
        ({"cc": "a"}, 'cc must be a list of strings or null, got "a" (string)'),
        ({"cc": {"a": 1}}, "cc must be a list of strings or null, got an object"),
        ({"cc": ("a",)}, "cc must be a list of strings or null, got a tuple"),
        ({"cc": ["a", 5]}, "cc[1] must be a string, got 5 (integer)"),
        ({"cc": ["a", None]}, "cc[1] must be a string, got null"),
        ({"cc": ["x" * (MAX_STRING + 1)]}, "cc[0] must have at most 10000 characters"),
        ({"cc": ["a"] * (MAX_ITEMS + 1)}, "cc must have at most 100 items, got 101"),
        ({"rows": [True]}, "rows[0] must be an integer, got true (boolean)"),
        ({"shares": [float("inf")]}, "shares[0] must be a number, got inf"),
        ({"amout": 5}, 'unknown argument "amout" (did you mean amount?)'),
        ({"zzz": 5}, 'unknown argument "zzz"'),
    ],
)
def test_arguments_that_do_not_fit(args, message):
    text = refusal(**args)
    assert text.startswith("pay_send: ") and message in text


def test_a_missing_argument_is_named():
    with pytest.raises(ToolError, match=r'^pay_send: missing argument "amount", a number$'):
        pay_send.bind({"payee": "a"})
    with pytest.raises(ToolError, match='missing argument "payee", a string; missing argument "am'):
        pay_send.bind({})
    assert look.bind({}) == {}


def test_all_complaints_come_at_once_and_bounded():
    text = refusal(payee=1, amount="1", copy=1, memo=1)
    assert text.count("must be") == 3 and "did you mean copies" in text
    many = {str(i) * 500: "x" * 9000 for i in range(2000)}
    assert len(refusal(**many)) < 1500
    assert "2000 more" not in refusal(**many) and "1995 more" in refusal(**many)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*pay_send.parameters["properties"], "x"]), JSON))
def test_any_json_is_bound_or_refused(args):
    """What gets through has the annotated types; nothing but ToolError is raised."""
    try:
        bound = pay_send.bind(args)
    except ToolError as error:
        assert len(str(error)) < 1500 and str(error).encode()
        return
    types = {"payee": str, "amount": float, "copies": int, "urgent": bool, "kind": str}
    for name, value in bound.items():
        assert name not in types or type(value) is types[name]
    pay_send.function([], **bound)


def test_the_tool_runs_on_the_state():
    box: list[Any] = []
    assert pay_send.function(box, **pay_send.bind({"payee": "Zoë", "amount": 3})) == "paid Zoë"
    assert repr(box) == "[('Zoë', 3.0)]"


def define(source: str) -> Tool:
    space: dict[str, Any] = {"Any": Any, "Literal": Literal}
    exec(source, space)
    return Tool.from_function(space["broken"])


DOC = '"""Do it.\n\n    Args:\n        x: A thing.\n    """'


@pytest.mark.parametrize(
    ("signature", "doc", "message"),
    [
        ("box, x", DOC, "parameter x has no annotation"),
        ("box, x: dict", DOC, "parameter x is annotated"),
        ("box, x: Any", DOC, "parameter x is annotated"),
        ("box, x: list", DOC, "parameter x is annotated"),
        ("box, x: list[bool]", DOC, "parameter x is annotated"),
        ("box, x: list[list[str]]", DOC, "parameter x is annotated"),
        ("box, x: int | str", DOC, "parameter x is annotated"),
        ("box, x: int | str | None = None", DOC, "parameter x is annotated"),
        ("box, x: Literal['a', 1]", DOC, "parameter x is annotated"),
        ("box, x: Literal[True]", DOC, "parameter x is annotated"),
        ("box, x: int | None", DOC, "parameter x may be None, so it must have a default"),
        ("box, x: int = 'a'", DOC, "parameter x must be an integer, got the default 'a'"),
        ("box, x: int = None", DOC, "parameter x must be an integer, got the default None"),
        ("box, *x: int", DOC, "parameter x must be one that is passed by name"),
        ("box, **x: int", DOC, "parameter x must be one that is passed by name"),
        ("box, x: int, /", DOC, "parameter x must be one that is passed by name"),
        ("box, x: 'Nowhere'", DOC, "name 'Nowhere' is not defined"),
        ("box, x: int", '"""Do it."""', "parameter x has no line under Args"),
        ("box, x: int", DOC.replace("A thing.", ""), "parameter x has no line under Args"),
        ("box, y: int", DOC, "Args describes x"),
        ("box, x: int", "pass", "the docstring is missing"),
        ("", DOC, "no first parameter for the state"),
    ],
)
def test_bad_definitions_are_refused_at_once(signature, doc, message):
    with pytest.raises(TypeError) as caught:
        define(f"def broken({signature}):\n    {doc}\n")
    assert str(caught.value).startswith("tool broken: ") and message in str(caught.value)


def test_good_definitions_with_rarer_signatures():
    made = define(f"def broken(box, /, *, x: 'int' = 5):\n    {DOC}\n")
    assert made.bind({"x": 6}) == {"x": 6}
    made = define(f"def broken(box, x: float = 1):\n    {DOC}\n")
    assert made.schema()["function"]["parameters"]["properties"]["x"]["default"] == 1


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", "x" * 65, "a\n"])
def test_bad_names_are_refused(name):
    with pytest.raises(ValueError, match="name must be 1 to 64"):
        dataclasses.replace(look, name=name)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "array"},
        {"type": []},
        {"type": ["string", "integer"]},
        {"type": "integer", "minimum": 3},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}},
        {"type": "array", "items": {"type": "array"}},
    ],
)
def test_a_schema_of_another_kind_is_refused(schema):
    parameters = {"properties": {"x": schema}, "required": []}
    with pytest.raises(TypeError, match="tool look: parameter x has an unsupported schema"):
        dataclasses.replace(look, parameters=parameters)


def test_pickles_and_copies():
    """A decorated function cannot be pickled by its name, which is the tool's now."""
    renamed = dataclasses.replace(pay_send, name="send")
    for one in (pay_send, look, renamed):
        twin = pickle.loads(pickle.dumps(one))
        assert twin == one and twin.function is one.function
    assert pickle.loads(pickle.dumps(pay_send)).bind({"payee": "a", "amount": 1})
    assert copy.deepcopy({"tools": [pay_send]})["tools"][0] is pay_send


def test_unknown_tools_are_answered_within_bounds():
    names = ["mail_send", "mail_read", "submit"]
    assert unknown_tool("mail_sned", names) == (
        'unknown tool "mail_sned" (did you mean mail_send?); '
        "the tools are mail_send, mail_read, submit"
    )
    assert unknown_tool("", iter(names)).startswith('unknown tool ""; the tools are mail_send,')
    for name in ("x" * 5000, "\n" * 5000, '"' * 5000):
        assert len(unknown_tool(name, names)) < 250
    assert "\n" not in unknown_tool("a\nb", names)


@pytest.mark.parametrize("format", ["json", "hermes"])
def test_the_description(format):
    text = describe([pay_send, look], format)
    lines = text.splitlines()
    assert lines[1] == (
        "- pay_send(payee: string, amount: number, copies: integer = 1, urgent: boolean = false, "
        'kind: "once" | "monthly" = "once", level: 1 | 2 | 3 = 1, '
        "cc: list of string | null = null, rows: list of integer | null = null, "
        "shares: list of number | null = null, memo: string | null = null, "
        'note: "a" | "b" | null = null): Pay an amount. The payee is told. '
        "(payee: Who gets it: a name from the contacts; amount: How much, in euros; "
        "copies: How many times; urgent: Pay today; kind: How often; level: Who has to agree; "
        "cc: Who is told; rows: Lines of the ledger; shares: Parts of the whole; memo: What for; "
        "note: A mark)"
    )
    assert lines[2] == "- look(): Look around."
    assert "its own reply" in text
    assert parse_action(text, format) == (ToolCall("pay_send", {"payee": "...", "amount": 1.5}),)
    pay_send.bind({"payee": "...", "amount": 1.5})


def test_the_description_for_command_lines():
    text = describe([pay_send, look], "command")
    lines = text.splitlines()
    assert lines[1].startswith(
        "pay_send PAYEE AMOUNT [copies=1] [urgent=false] [kind=once|monthly] [level=1|2|3] "
        "[cc=CC,...] [rows=ROWS,...] [shares=SHARES,...] [memo=MEMO] [note=a|b|null]: "
        "Pay an amount. The payee is told. (payee: Who gets it: a name from the contacts; amount:"
    )
    assert lines[2] == "look: Look around."
    known = {"pay_send": pay_send}
    example = ToolCall("pay_send", {"payee": "...", "amount": 1.5})
    assert lines[4] == "pay_send ... 1.5"
    assert parse_action(lines[4], "command", known) == (example,)


@pytest.mark.parametrize("format", FORMATS)
def test_the_example_of_every_kind_of_parameter_binds(format):
    every = define(
        "def broken(box, a: str, b: int, c: float, d: bool, e: list[int], f: Literal['u', 'v']):\n"
        '    """Do.\n\n    Args:\n        a: A.\n        b: B.\n        c: C.\n        d: D.\n'
        '        e: E.\n        f: F.\n    """\n'
    )
    *_, call = parse_action(describe([every], format), format, {every.name: every})
    assert isinstance(call, ToolCall) and set(every.bind(call.args)) == set("abcdef")


def test_no_tools_cannot_be_described():
    with pytest.raises(ValueError, match="at least one tool"):
        describe([], "json")
    with pytest.raises(ValueError, match="format must be one of"):
        describe([look], "xml")
