"""Command lines: what is written is read back, data is never run, and nothing raises."""

from __future__ import annotations

import json
import random
import time
from typing import Any, Literal

import gymnasium as gym
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.agents import AGENTS, evaluate
from headway.envs.actions import (
    MAX_ACTION,
    MAX_CALLS,
    MAX_DIGITS,
    BadCall,
    ToolCall,
    format_calls,
    how_to_call,
    parse_action,
)
from headway.envs.command import LOOKED_AT, MAX_ARGS, usage
from headway.envs.tools import Tool, ToolError, tool


@tool
def send(box: Any, to: str, amount: float, text: str, urgent: bool = False, cc: str = "") -> None:
    """Send.

    Args:
        box: State.
        to: Who.
        amount: How much.
        text: What.
        urgent: Now.
        cc: Who else.
    """


@tool
def find(box: Any, query: str, k: int = 5, of: Literal["a", "b c"] | None = None) -> None:
    """Find.

    Args:
        box: State.
        query: Words.
        k: How many.
        of: Where.
    """


@tool
def meet(
    box: Any,
    who: list[str],
    hours: list[int],
    note: str | None = None,
    also: list[str] | None = None,
    share: list[float] | None = None,
) -> None:
    """Meet.

    Args:
        box: State.
        who: People.
        hours: When.
        note: Why.
        also: Others.
        share: Parts.
    """


@tool
def kind(box: Any, kind: Literal["now", "later on"], level: Literal[1, 2]) -> None:
    """Choose.

    Args:
        box: State.
        kind: One.
        level: Another.
    """


@tool
def maybe(box: Any, text: str | None = None) -> None:
    """Perhaps.

    Args:
        box: State.
        text: What.
    """


@tool
def look(box: Any) -> None:
    """Look around."""


ODD = Tool(
    "odd",
    "Has names that no function could have.",
    {
        "type": "object",
        "properties": {
            "a b": {"type": "string"},
            "no-dash": {"type": ["integer", "null"]},
            "x:=y": {"type": "array", "items": {"type": "string"}},
            "last": {"type": "string"},
        },
        "required": ["no-dash", "a b"],
        "additionalProperties": False,
    },
    print,
)
NEEDED = Tool(
    "needed",
    "Needs what may be null.",
    {
        "type": "object",
        "properties": {"who": {"type": ["string", "null"]}, "what": {"type": ["string", "null"]}},
        "required": ["who", "what"],
        "additionalProperties": False,
    },
    print,
)
TOOLS = {one.name: one for one in (send, find, meet, kind, maybe, look, ODD, NEEDED)}


def read(text: str) -> tuple[ToolCall | BadCall, ...]:
    return parse_action(text, "command", TOOLS)


def write(tool: str, **args: Any) -> str:
    return format_calls([ToolCall(tool, args)], "command", TOOLS)


def args(text: str) -> dict[str, Any]:
    (call,) = read(text)
    assert isinstance(call, ToolCall), call
    return dict(call.args)


def error(text: str) -> str:
    (bad,) = read(text)
    assert isinstance(bad, BadCall), bad
    return bad.error


def kinds(text: str) -> list[str]:
    return [call.tool if isinstance(call, ToolCall) else "!" for call in read(text)]


SPECIAL = [
    *("", " ", "a", "a b", " a", "a ", "a  b", "a\tb", "\t", "null", "true", "5", "-0.5", "1e999"),
    *('"', '"a"', 'say "a" b', '"a', "it's", "\\", "\\n", "a\nb", "\n", "\r", "a\r", "\r\nb"),
    *("k=3", "a k=3", "a k=3 b", "x k:=3", "k =3", "a=b", "see a=b", "query=x y", "=", "a =", ":="),
    *("[", "[a", "[1,2]", "a,b", ",", "a, b", "{}", "(", "find a", "look", "a\nlook", "\nlook\n"),
    *(
        "\x00",
        "\x0b",
        "\x1c",
        "\x85",
        "\u2028",
        "\u00a0a\u00a0",
        "\ufeff",
        "日本語",
        "👩‍👩‍👧‍👦",
        "é=1",
    ),
    *("</tool_call>", '{"tool": "look"}', "```", "$(look)", "`look`", "' ", "last=1", "text=x"),
]
TEXT = st.sampled_from(SPECIAL) | st.text() | st.lists(st.sampled_from(SPECIAL)).map("".join)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FITTING = {"string": TEXT, "integer": st.integers(), "number": st.floats(-1e9, 1e9) | st.integers()}


def fitting(schema: Any) -> st.SearchStrategy[Any]:
    """Values of the kind that the schema names."""
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    if kind == "array":
        return st.lists(fitting(schema["items"]), max_size=3)
    return FITTING.get(kind, st.booleans())


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    """A call of a tool that is there, of fitting arguments or of any, some left out or added."""
    name = draw(st.sampled_from(sorted(TOOLS)))
    found: dict[str, Any] = {}
    for parameter, schema in TOOLS[name].parameters["properties"].items():
        how = draw(st.sampled_from(["fits", "fits", "fits", "any", "none"]))
        if how != "none":
            found[parameter] = draw(fitting(schema) if how == "fits" else JSON)
    if draw(st.booleans()):
        extra = draw(st.dictionaries(TEXT, JSON, max_size=2))
        found |= {key: value for key, value in extra.items() if key not in found}
    return ToolCall(name, dict(draw(st.permutations(list(found.items())))))


def typed(value: Any) -> Any:
    """Equal only for the same value of the same type; the order of arguments is no matter."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else repr(value)


PROSE = st.sampled_from(["", "I think.", "The answer:\n\n", "```\n", "1. first\n2) then\n", "- \n"])


@given(st.lists(calls(), min_size=1, max_size=3), PROSE, PROSE)
@example([ToolCall("find", {"query": "a k=3 b"})], "", "")
@example([ToolCall("maybe", {"text": "null"})], "", "")
@example([ToolCall("maybe", {"text": None})], "", "")
@example([ToolCall("send", {"to": None, "amount": "1", "text": 5})], "", "")
def test_what_is_written_is_read_back(made, before, after):
    text = format_calls(made, "command", TOOLS)
    assert len(text.split("\n")) == len(made)
    found = parse_action(f"{before}\n{text}\n{after}", "command", TOOLS)
    assert [call.tool for call in found] == [call.tool for call in made]
    assert [typed(call.args) for call in found] == [typed(call.args) for call in made]


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_odd_texts_in_every_place(name):
    """Alone, in a list, and with all other places taken."""
    properties = TOOLS[name].parameters["properties"]
    others = {n: [] if part["type"] == "array" else "x" for n, part in properties.items()}
    for place in properties:
        for text in SPECIAL:
            for value in (text, [text], [text, "a"], None, True, 5):
                for args in ({place: value}, {**others, place: value}):
                    call = ToolCall(name, args)
                    (found,) = read(format_calls([call], "command", TOOLS))
                    assert (found.tool, typed(found.args)) == (name, typed(args))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (("look", {}), "look"),
        (("find", {"query": "old mill"}), "find old mill"),
        (("find", {"query": "old mill", "k": 3}), "find old mill k=3"),
        (("find", {"query": "", "of": "b c"}), 'find "" of="b c"'),
        (("find", {"k": 3}), "find k=3"),
        (("find", {"query": "is k=3 right"}), 'find "is k=3 right"'),
        (("find", {"query": "is n=3 right"}), "find is n=3 right"),
        (("find", {"query": "n=3"}), 'find "n=3"'),
        (("find", {"query": 'he said "no"'}), 'find he said "no"'),
        (("find", {"query": '"no" he said'}), 'find "\\"no\\" he said"'),
        (("find", {"query": "two\nlines"}), 'find "two\\nlines"'),
        (("find", {"query": "null"}), "find null"),
        (("maybe", {"text": "null"}), 'maybe text="null"'),
        (("maybe", {"text": None}), "maybe text=null"),
        (
            ("send", {"to": "a b", "amount": 2.5, "text": "Hi, é", "cc": "x y", "urgent": True}),
            'send "a b" 2.5 Hi, é urgent=true cc="x y"',
        ),
        (("send", {"to": "a", "text": "x y"}), 'send a text="x y"'),
        (("send", {"to": "5", "amount": "5", "text": "5"}), 'send 5 "5" 5'),
        (("send", {"to": 5, "amount": 5, "text": "5"}), "send to:=5 5 5"),
        (("send", {"to": "null", "amount": 1, "text": "null"}), "send null 1 null"),
        (("meet", {"who": ["a", "b"], "hours": [9, 10]}), "meet a,b 9,10"),
        (("meet", {"who": ["a b", "c"], "hours": []}), 'meet "a b",c []'),
        (("meet", {"who": ["[x"], "hours": [1]}), 'meet "[x" 1'),
        (("meet", {"who": ["null"], "hours": [1], "also": ["null"]}), 'meet null 1 also=["null"]'),
        (("meet", {"who": [1], "hours": ["1"]}), 'meet [1] ["1"]'),
        (("kind", {"kind": "later on", "level": 2}), 'kind "later on" 2'),
        (("needed", {"who": "null", "what": "null"}), 'needed "null" "null"'),
        (("needed", {"who": None, "what": None}), "needed null null"),
        (("odd", {"no-dash": None, "a b": "c d"}), "odd null c d"),
        (("odd", {"no-dash": 1, "a b": "c", "last": "e f"}), 'odd 1 c last="e f"'),
        (("odd", {"a b": "c"}), 'odd "a b":="c"'),
        (("look", {"why": [1], "a b": None}), 'look why:=[1] "a b":=null'),
    ],
)
def test_the_shortest_text(call, text):
    """By hand; none of these is to become longer."""
    assert write(call[0], **call[1]) == text
    assert read(text) == (ToolCall(*call),)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('find "old mill"', {"query": "old mill"}),
        ("  find\told  mill \r", {"query": "old  mill"}),
        ("find k=3 old mill", {"query": "old mill", "k": 3}),
        ("find query=mill k=3", {"query": "mill", "k": 3}),
        ("find query=mill of=a", {"query": "mill", "of": "a"}),
        ("find k=three mill", {"query": "mill", "k": "three"}),
        ("find k=[1] mill", {"query": "mill", "k": "[1]"}),
        ('find k="3" mill', {"query": "mill", "k": "3"}),
        ('find k:="3" mill', {"query": "mill", "k": "3"}),
        ("find k= mill", {"query": "mill", "k": ""}),
        ("find of=null mill", {"query": "mill", "of": None}),
        ("find mill kk=3", {"query": "mill kk=3"}),
        ("find kk=3 mill", {"query": "mill", "kk": "3"}),
        ("send a 1e3 now", {"to": "a", "amount": 1000.0, "text": "now"}),
        ("send a 1,5 now", {"to": "a", "amount": "1,5", "text": "now"}),
        ("send a NaN now", {"to": "a", "amount": "NaN", "text": "now"}),
        ("send a true now", {"to": "a", "amount": True, "text": "now"}),
        (
            "send a 1 now cc=b urgent=no",
            {"to": "a", "amount": 1, "text": "now", "cc": "b", "urgent": "no"},
        ),
        (
            'send a 1 "now" true b c',
            {"to": "a", "amount": 1, "text": "now", "urgent": True, "cc": "b c"},
        ),
        ("meet a, b 9", {"who": ["a", "b"], "hours": [9]}),
        ('meet "a,b", c 9,x', {"who": ["a,b", "c"], "hours": [9, "x"]}),
        ('meet ["a", "b c"] [9, 10]', {"who": ["a", "b c"], "hours": [9, 10]}),
        (
            'meet "a" 9 null null null',
            {"who": ["a"], "hours": [9], "note": None, "also": None, "share": None},
        ),
        ("meet a 9 x", {"who": ["a"], "hours": [9], "note": "x"}),
        ("meet a 9 x y", {"who": ["a"], "hours": [9], "note": "x", "also": ["y"]}),
        ("maybe see you", {"text": "see you"}),
        ("maybe null", {"text": None}),
        ("maybe nullify", {"text": "nullify"}),
        ("kind later 2", {"kind": "later", "level": 2}),
        ('find "\\u00e9 \\ud83c\\udf78"', {"query": "é 🍸"}),
    ],
)
def test_what_else_is_understood(text, found):
    assert typed(args(text)) == typed(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('find "old mill', 'find: a text that begins with " must end with " on the same line'),
        ("kind now 2 mill", 'nothing is left to be given, got "mill"'),
        ('find "old"mill', 'a blank must follow query, got "mill"'),
        ('find "old\tmill"', "not valid JSON"),
        ('find "old \\x mill"', "not valid JSON"),
        ("find k:=3x mill", 'a blank must follow k, got "x mill"'),
        ("find k:= mill", "not valid JSON"),
        ("find old k=3 k=4", "k is given twice"),
        ("find old query=new", "query is given twice"),
        ('find(query="old")', "after the name comes a blank and no bracket"),
        ("meet a,,b 9", "a list is written a,b or []"),
        ("meet a, 9,", "a list is written a,b or []"),
        ("meet ,a 9", "a list is written a,b or []"),
        ("meet [a 9", "not valid JSON"),
        ("look closely", 'nothing is left to be given, got "closely"'),
        ("find k:=" + "[" * 70, "nested more than 64 levels deep"),
    ],
)
def test_what_is_wrong_is_said_with_how_to_write_it(text, message):
    found = error(text)
    assert message in found and found.endswith(f"; write {usage(TOOLS[found.split(':')[0]])}")
    assert len(found) < 400


def test_usage():
    assert usage(send) == 'send TO AMOUNT TEXT [urgent=false] [cc=""]'
    assert usage(find) == 'find QUERY [k=5] [of=a|"b c"|null]'
    assert usage(meet) == "meet WHO,... HOURS,... [note=NOTE] [also=ALSO,...] [share=SHARE,...]"
    assert usage(kind) == 'kind now|"later on" 1|2'
    assert usage(look) == "look"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("look\nlook", ["look", "look"]),
        ("look\r\nlook\r\n", ["look", "look"]),
        ("Let me look around.\nlook\nThat is all.", ["look"]),
        ("```\nlook\n```", ["look"]),
        ("find x\n\nfnd y\nfind z", ["find", "fnd", "find"]),
        ("Find x", ["Find"]),
        ("Mind the gap.\nhook it", ["!"]),
        ("finds x", ["finds"]),
        ("note_it down", ["note_it"]),
        ("_ _x __\nlook", ["look"]),
        ("f(x) = find(x)\nlook", ["look"]),
        ("find: x\nlook", ["look"]),
        ("find(x)\nlook", ["!", "look"]),
        ('{"tool": "look", "args": {}}', ["!"]),
        ("I would like to find it", ["!"]),
        ("", ["!"]),
        ("\n \n\t", ["!"]),
    ],
)
def test_which_lines_are_calls(text, found):
    assert kinds(text) == found


def test_data_in_a_broken_call_is_not_run():
    """Line breaks that were not escaped, with and without an end."""
    assert kinds('find "a\nlook\nb"\nlook') == ["!", "look"]
    assert kinds('find "a\nlook\nsaid \\" so\nlook"') == ["!"]
    assert kinds('find "a\nlook\nlook') == ["!"]
    assert kinds('meet a,"b\nlook" 9\nlook') == ["!", "look"]
    assert kinds('find k="\nlook\n" x\nlook') == ["!", "look"]
    assert kinds('find "a "b\nlook') == ["!", "look"]


def test_prose_makes_no_errors_and_costs_little():
    assert kinds("Now I think about it again and again.\n" * 2000 + "look") == ["look"]
    near = "".join(f"find{n} x\n" for n in range(LOOKED_AT))
    assert kinds(near + "look")[-1] != "look"  # so many calls of a turn are not read
    words = "".join(f"w{n} x\n" for n in range(LOOKED_AT))
    assert kinds(words + "fnd x\nlook") == ["look"]
    assert kinds(words[:-5] + "\nfnd x\nlook")[-1] == "look"


def test_no_call_names_the_tools():
    assert error("what now?") == (
        "no tool call found: no line begins with the name of a tool, "
        f"{', '.join(TOOLS)}; write one a line: NAME VALUE VALUE"
    )
    (bad,) = parse_action("look", "command")
    assert bad == BadCall("no tool call found; write one a line: NAME VALUE VALUE")


def test_limits():
    text = f"find k={'9' * MAX_DIGITS} x"
    assert args(text)["k"] == 10**MAX_DIGITS - 1
    assert args(f"find k=9{'9' * MAX_DIGITS} x")["k"] == "9" * (MAX_DIGITS + 1)
    most = " ".join(f"x{n}=1" for n in range(MAX_ARGS))
    assert len(args(f"look {most}")) == MAX_ARGS
    assert f"only {MAX_ARGS} arguments are read" in error(f"look {most} y=1")
    long = "find " + "x" * (MAX_ACTION - 5)
    assert len(args(long)["query"]) == MAX_ACTION - 5
    assert str(MAX_ACTION) in error(long + "x")
    *good, last = read("look\n" * (MAX_CALLS + 5))
    assert good == [ToolCall("look", {})] * MAX_CALLS
    assert isinstance(last, BadCall) and str(MAX_CALLS) in last.error


N = MAX_ACTION
LONG = {
    "lines": "\n" * N,
    "words": "a\n" * (N // 2),
    "different words": "\n".join(f"w{n}" for n in range(N // 7)),
    "blanks": "find " + " " * (N - 5),
    "blanks in text": "find a" + " " * (N - 7) + "b",
    "gaps": "find " + "a " * (N // 2 - 3),
    "names": "find " + "ab=" * (N // 3 - 2),
    "gaps and names": "find " + "a b=" * (N // 4 - 2),
    "one name": "find x " + "b" * (N - 8),
    "quotes": "find " + '"' * (N - 5),
    "backslashes": 'find "' + "\\" * (N - 6),
    "open quotes": 'find "a\n' * (N // 8),
    "items": "meet " + "a," * (N // 2 - 3),
    "quoted items": "meet " + '"a",' * (N // 4 - 2),
    "open lists": "meet " + "[" * (N - 5),
    "arguments": "look " + " ".join(f"x{n}:=1" for n in range(9000)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_malformed_texts_are_read_once(name):
    """A scan that starts over at each character takes minutes here."""
    start = time.process_time()
    found = read(LONG[name])
    assert time.process_time() - start < 2
    assert len(found) <= MAX_CALLS + 1


@given(st.text(st.characters(codec=None)) | TEXT)
def test_any_text_gets_an_answer(text):
    for action in (text, f"find {text}", f'meet "{text}" {text}', f"send {text}\nlook"):
        for call in read(action):
            repr(call).encode()


def test_fuzz():
    """Texts torn out of real calls: never an exception, always a bounded and encodable answer."""
    rng = random.Random(0)
    seeds = [write("send", to=t, amount=1.5, text=t, cc=t) for t in SPECIAL]
    seeds += [write("meet", who=[t, "b"], hours=[1, 2], note=t) for t in SPECIAL]
    seeds.append("look\n" * 30)
    scraps = [*SPECIAL, *'"[]{},:=\\\n ', "\ud83d", "\\ud83d", "NaN", "look\n"]
    read_types = set()
    for _ in range(6_000):
        text = rng.choice(seeds)
        for _ in range(rng.randrange(1, 5)):
            a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            middle = rng.choice(["", rng.choice(scraps), text[a:b] * 2])
            text = rng.choice([text[:a], text[a:], text[:a] + middle + text[b:]])
        found = read(text)
        assert 1 <= len(found) <= MAX_CALLS + 1
        for call in found:
            read_types.add(type(call))
            if isinstance(call, BadCall):
                assert len(call.error) < 600
                call.error.encode()
            else:
                json.dumps([call.tool, call.args], ensure_ascii=False, allow_nan=False).encode()
                again = format_calls([call], "command", TOOLS)
                if call.tool in TOOLS:
                    assert parse_action(again, "command", TOOLS) == (call,)
    assert read_types == {ToolCall, BadCall}


def test_what_cannot_be_written():
    with pytest.raises(ValueError, match="tool must be letters, digits and underscores, got 'a b'"):
        write("a b")
    for name in ("", "é", "x" * 65, "find\n", " find"):
        with pytest.raises(ValueError, match="tool must be"):
            write(name)
    for bad in (float("nan"), [float("inf")]):
        with pytest.raises(ValueError):
            write("send", amount=bad)
    assert write("nosuch", x="a b", y=None) == 'nosuch x:="a b" y:=null'


def test_the_explanation_has_an_example_that_reads():
    text = how_to_call(ToolCall("find", {"query": "old mill"}), "command", TOOLS)
    assert text.splitlines()[1] == "find old mill" and str(MAX_CALLS) in text
    assert read(text) == (ToolCall("find", {"query": "old mill"}),)


def test_arguments_that_do_not_fit_are_refused_by_the_tool():
    assert send.bind(args("send a 1 hi urgent=true")) == {
        **{"to": "a", "amount": 1.0, "text": "hi", "urgent": True}
    }
    for text, message in (
        ("send a much hi", 'amount must be a number, got "much" (string)'),
        ("send a 1 hi urgent=yes", 'urgent must be true or false, got "yes" (string)'),
        ("send a 1", 'missing argument "text"'),
        ("send a 1 txt=x", 'unknown argument "txt" (did you mean text?)'),
    ):
        with pytest.raises(ToolError) as refused:
            send.bind(args(text))
        assert message in str(refused.value)


@pytest.mark.parametrize("id", ["headway/Apps-v0", "headway/House-v0", "headway/HopSearch-v0"])
@pytest.mark.parametrize("difficulty", [1, 3])
def test_solutions_and_guesses_of_every_world_are_read_back(id, difficulty):
    env = gym.make(id, action_format="command", difficulty=difficulty)
    for seed in range(2):
        env.reset(seed=seed)
        world = env.unwrapped
        for action in world.instance.solution():
            text = world.format(action.tool, action.args)
            assert parse_action(text, "command", world.instance.toolbox) == (
                ToolCall(action.tool, action.args),
            )
            reward = env.step(text)[1]
        assert reward == 1.0


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_writes_it(agent):
    """They ask the environment how a call is written, so what they earn is the same."""
    found = [
        evaluate("headway/Apps-v0", agent, episodes=4, action_format=format)
        for format in ("json", "command")
    ]
    assert found[0].played == found[1].played
