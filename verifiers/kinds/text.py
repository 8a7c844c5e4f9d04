"""What a text says, as typed tokens: the one grammar of dates, times, numbers and addresses.

Tools, checks and guards all read text through :func:`tokens`. A check compares the *whole* set of
tokens, so a mail that lists every hour does not pass where one hour was asked for, in whatever
notation the others are written: every digit of a text lies in exactly one token, and what the
grammar cannot read is a token too.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from itertools import groupby, islice
from typing import Literal

MAX_TEXT = 100_000
"""Longer texts are not read: to :func:`tokens` they are one raw token."""

SHORT = 2000
"""Texts up to this length, the longest mail, are read once while they are the latest hundred."""

MAX_TOKEN = 400
"""Longer texts are not a single number, date or address."""

MAX_MARKS = 30
"""Combining marks kept in a row: Unicode normalisation is quadratic in their number (measured)."""


@dataclass(frozen=True, slots=True)
class Token:
    """One thing that a text states, in a form in which equal statements are equal strings.

    Attributes:
        kind: ``"raw"`` is anything with a digit or an ``@`` that is none of the others.
        value: A date as ``2031-05-01``, a time as ``09:00``, a number or a percentage as a plain
            decimal (``1234.5``, without currency), a mail address in lower case, raw as written.
    """

    kind: Literal["date", "time", "number", "percent", "mail", "raw"]
    value: str


def tokens(text: str) -> tuple[Token, ...]:
    """Every token of ``text`` in order; never raises, in time linear in the length.

    Dates are read year first (``2031-05-01``, ``2031/5/1``), with the month's name
    (``1 May 2031``, ``May 1st, 2031``, ``2031 May 1``) or year last where only one day can be
    meant (``13/05/2031``, ``05/13/2031``); ``05/01/2031`` is ambiguous and raw. Times are
    ``9:00``, ``9:00h``, ``9h00``, ``9 am``, ``9:30 PM``, ``9 o'clock am``; a bare ``9 o'clock`` is
    the number 9. ``2031-05-01T09:00:00Z`` is a date and a time. A number may have a sign,
    thousands separated by commas, a decimal point, an exponent and a currency before or after it;
    a space may follow the sign at the start of a text and after a colon (``Balance: - 70``).
    Numbers with leading zeros, and digits joined to letters or to each other by other signs, are
    codes: raw.
    """
    if len(text) > MAX_TEXT:
        return (Token("raw", f"a text of {len(text)} characters"),)
    return _short_tokens(text) if len(text) <= SHORT else _tokens(text)


def _tokens(text: str) -> tuple[Token, ...]:
    plain = _plain(text)
    if not _OF_INTEREST.search(plain):
        return ()
    return tuple(
        _read(found)
        for found in _TOKEN.finditer(plain)
        if found.lastgroup and (found.lastgroup != "run" or _OF_INTEREST.search(found[0]))
    )


_short_tokens = lru_cache(maxsize=128)(_tokens)
# Every check that may concern a mail reads it: what was just read is kept. Long texts are not, or
# an agent could fill the memory: 128 texts that are all tokens take 20 MB (measured).


def read_token(text: str) -> Token | None:
    """The token that is the whole of ``text``, white space at the ends aside; None without one."""
    return _read_token(text) if len(text) <= MAX_TOKEN else None


@lru_cache(maxsize=256)
def _read_token(text: str) -> Token | None:
    plain = _plain(text)
    found = _TOKEN.match(plain)
    if found is None or not found.lastgroup or found.end() != len(plain):
        return None
    return _read(found) if _OF_INTEREST.search(plain) else None


def read_number(text: str) -> Decimal | None:
    """The number that is the whole of ``text``, with its printed decimals; None without one."""
    return _read_number(text) if len(text) <= MAX_TOKEN else None


@lru_cache(maxsize=256)
def _read_number(text: str) -> Decimal | None:
    found = _NUMBER_ONLY.fullmatch(_plain(text))
    return None if found is None or found["percent"] else _decimal(found)


def read_address(text: str) -> str | None:
    """The mail address that is the whole of ``text``, as it compares; None without one."""
    token = read_token(text)
    return token.value if token is not None and token.kind == "mail" else None


def tidy_address(text: str) -> str:
    """The form in which mail addresses compare: in lower case, white space at the ends removed.

    Local parts are compared without case too, as the mail domains of the field do.
    """
    return _plain(text).lower() if len(text) <= MAX_TOKEN else text


def same_text(a: str, b: str) -> bool:
    """Whether two texts agree up to Unicode composition and white space.

    Words, their order and their case count. Runs of white space are one space; spaces at the
    ends and just inside brackets do not count. Texts beyond ``MAX_TEXT`` must be identical.
    """
    return tidy(a) == tidy(b)


def tidy(text: str) -> str:
    """The form in which :func:`same_text` compares."""
    if len(text) > MAX_TEXT:
        return text
    if not text.isascii():
        text = unicodedata.normalize("NFC", _few_marks(text))
    return _INSIDE_BRACKETS.sub("", " ".join(text.split()))


def _plain(text: str) -> str:
    """Compatibility forms resolved, digits and dashes in ASCII, nothing invisible, single spaces.

    An em dash is punctuation and gets spaces; shorter dashes are hyphens or minus signs, but for
    those that begin an entry of a list.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _few_marks(text))
        text = _NOT_ASCII.sub(lambda found: _fold(found[0]), text)
    return " ".join(_BULLET.sub("\n\u2022", text).split())


def _few_marks(text: str) -> str:
    runs = groupby(text, lambda char: unicodedata.combining(char) > 0)
    return "".join("".join(islice(run, MAX_MARKS) if marks else run) for marks, run in runs)


def _fold(char: str) -> str:
    if char in _FOLDED:
        return _FOLDED[char]
    category = unicodedata.category(char)
    if category == "Pd":
        return "-"
    if category == "Cf" or "\ufe00" <= char <= "\ufe0f":  # zero-width, direction, variants
        return ""
    if char.isnumeric() and not char.isalpha():  # digits of all scripts, and circled ones
        return f"{unicodedata.numeric(char):g}"
    return char


def _read(found: re.Match[str]) -> Token:
    match found.lastgroup:
        case "mail":
            return Token("mail", found[0].lower())
        case "number":
            return Token("percent" if found["percent"] else "number", _canonical(_decimal(found)))
        case "date" if (day := _date(found[0])) is not None:
            return Token("date", day)
        case "time" if (hour := _time(found[0])) is not None:
            return Token("time", hour)
    return Token("raw", found[0])


def _date(text: str) -> str | None:
    """ISO form of a matched date; None for 30 February, and where two days may be meant."""
    found = re.findall("[0-9]+", text)
    year = int(found.pop(next(i for i, digits in enumerate(found) if len(digits) == 4)))
    numbers = [int(digits) for digits in found]
    if len(numbers) == 1:
        month = next(i for i, name in enumerate(_MONTHS, 1) if name in text.lower())
        orders = [(month, numbers[0])]
    elif text[:4].isdigit():
        orders = [(numbers[0], numbers[1])]
    else:
        orders = [(numbers[0], numbers[1]), (numbers[1], numbers[0])]
    meant = {day for order in orders if (day := _iso(year, *order)) is not None}
    return meant.pop() if len(meant) == 1 else None


def _iso(year: int, month: int, day: int) -> str | None:
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _time(text: str) -> str | None:
    """``HH:MM`` of a matched time; None for 25:61 and 13 pm."""
    hour, minute = [*(int(digits) for digits in re.findall("[0-9]+", text)), 0][:2]
    half = next((letter for letter in text.lower() if letter in "ap"), "")
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour:02d}:{minute:02d}" if hour < 24 and minute < 60 else None


def _decimal(found: re.Match[str]) -> Decimal:
    digits = found["digits"].replace(",", "")
    return Decimal(f"{found['sign'] or ''}{digits}{found['exponent'] or ''}")


def _canonical(number: Decimal) -> str:
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FOLDED = {"\u2212": "-", "\u2044": "/", "\u2215": "/", "\u2014": " \u2014 ", "\u2015": " \u2014 "}
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_BULLET = re.compile(r"\n[^\S\n]*+[-+](?=\s)")
_INSIDE_BRACKETS = re.compile(r"(?<=[(\[{]) | (?=[)\]}])")
_OF_INTEREST = re.compile("[0-9@]")

# All repetitions below are bounded or possessive, and a match starts only where the last one
# ended: time is linear in the length of the text.
_MONTH = (
    "(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t|tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = "[0-9]{1,2}(?i:st|nd|rd|th)?"
_HALF = r"\ ?(?i:[ap]\.?m)\b\.?"
_MONEY = (
    r"(?:[$\u20ac\xa3\xa5\u20b9]"
    "|(?i:EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK)(?![^\\W0-9_]))"
)
_NUMBER = rf"""
    (?: (?P<sign>(?<![\w%])[-+]) (?: (?<=\A[-+])\  | (?<=:[-+])\  | (?<=:\ [-+])\  )? )?
    (?:{_MONEY}\ ?)?
    (?P<digits>
        (?:[1-9][0-9]{{0,2}}(?:,[0-9]{{3}}){{1,9}}+ | 0 | [1-9][0-9]{{0,29}}+) (?:\.[0-9]{{1,30}}+)?
        | (?<![\w.])\.[0-9]{{1,30}}+
    )
    (?P<exponent>[eE][-+]?[0-9]{{1,3}}+)?
    (?:\ ?(?P<percent>% | (?i:per\ ?cent)\b) | \ ?{_MONEY})?
"""
_TOKEN = re.compile(
    rf"""
    (?: [^\W0-9_]++ (?! [\w@%+/'&\\-] | \.\S | \.?\ ?[0-9] ) (?: \.?\  | [,;:!?] )*+ )++
    | (?P<mail>\w[\w.+%'-]{{0,63}}+@\w+(?:-+\w+)*+(?:\.\w+(?:-+\w+)*+)++(?![@+/&]))
    | (?P<date>
        (?:
            [0-9]{{4}}(?P<sep>[-/.])[0-9]{{1,2}}(?P=sep)[0-9]{{1,2}}
            | {_DAY}(?:\ of\ |[\ -]){_MONTH},?[\ -][0-9]{{4}}
            | {_MONTH}\ {_DAY}(?:,\ ?|\ )[0-9]{{4}}
            | [0-9]{{4}}[\ -]{_MONTH}[\ -]{_DAY}
              (?! ,?\ [0-9]{{4}}\b (?! [-/] | \ {_MONTH} ) )  # 1500 May 13, 2031: a number first
            | [0-9]{{1,2}}(?P<mark>[-/.])[0-9]{{1,2}}(?P=mark)[0-9]{{4}}
        )
        (?: (?=T[0-9]{{2}}:[0-9]{{2}}) | (?! [\w@] | [-.+&\\]\w | '(?!s\b)\w | :[0-9] ) )
    )
    | (?P<time>
        (?:
            (?<=[0-9])T[0-9]{{2}}:[0-9]{{2}}(?::00)?Z?
            | [0-9]{{1,2}}[:hH][0-9]{{2}}(?::00)?(?:[hH]|{_HALF})?
            | [0-9]{{1,2}}(?:\.[0-9]{{2}}|\ o['\u2019]clock)?{_HALF}
        )
        (?! [\w@] | [.+'&\\]\w | :[0-9] )
    )
    | (?P<number> {_NUMBER} (?! [\w@%] | [-.+'&\\]\w | [,:/][0-9] ) )
    | (?P<run> \w++ (?: (?: [-.+/'&@\\] | (?<=[0-9])[,:](?=[0-9]) ) \w++ )*+ )
    """,
    re.VERBOSE,
)
_NUMBER_ONLY = re.compile(_NUMBER, re.VERBOSE)
