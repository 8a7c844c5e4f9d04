"""JSON lines that give back exactly what was put in, written whole or not at all.

JSON has no NaN, no infinity, no tuple, and no way to keep two halves of a surrogate pair apart.
:func:`encode` writes those few as objects of one key that begins with ``$``; all else is plain::

    {"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}
    {"$text": [piece, ...]}          pieces of one text, cut between the halves of a pair
    {"$tuple": [value, ...]}
    {"$map": [[key, value], ...]}    a mapping with a key that is no text, or begins with $

No other object has a key that begins with ``$``. A file is UTF-8 with one object a line. A writer
opens it, locks it, adds a line and waits until the disk has it, so any number of processes and
threads may write to one file, and one that is killed loses only what it had not finished. Windows
has no such lock: there, give each process a file of its own.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any, NoReturn

if sys.platform != "win32":
    import fcntl

LEVELS = 100
"""Of nesting in one object: more than any call may have, and little enough to be walked through."""

_PAIR = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
_HALF = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_STEPS = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


def encode(value: Any) -> Any:
    """``value`` in what JSON has, a copy, from which :func:`decode` makes the same again.

    Numbers of other libraries become the ``int`` and ``float`` that they equal.

    Raises:
        TypeError: There is something in it that is no plain data.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = str(value)
        pieces = [text] if text.isascii() else _PAIR.split(text)
        return {"$text": pieces} if len(pieces) > 1 else text
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        amount = float(value)
        return amount if math.isfinite(amount) else {"$float": repr(amount)}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        if all(map(_plain_key, value)):
            return {key: encode(item) for key, item in value.items()}
        return {"$map": [[encode(key), encode(item)] for key, item in value.items()]}
    raise TypeError(
        "what is recorded must be plain data (None, bool, int, float, str, list, tuple, mapping), "
        f"got {type(value).__name__}: {value!r:.100}"
    )


def decode(value: Any, levels: int = LEVELS) -> Any:
    """What :func:`encode` was given.

    Args:
        value: What JSON gave.
        levels: Of nesting that it may have.

    Raises:
        ValueError: It is nothing that ``encode`` makes, or nested deeper.
        TypeError: The same.
    """
    if levels < 0:
        raise ValueError(f"nested more than {LEVELS} levels deep")
    below = levels - 1
    if isinstance(value, list):
        return [decode(item, below) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: decode(item, below) for key, item in value.items()}
    if len(value) > 1:
        raise ValueError(f"no value is written as {value!r:.100}")
    inner = value[tag]
    if tag == "$float" and inner in ("nan", "inf", "-inf"):
        return float(inner)
    if tag == "$text" and isinstance(inner, list):
        return "".join(inner)
    if tag == "$tuple" and isinstance(inner, list):
        return tuple(decode(item, below) for item in inner)
    if tag == "$map" and isinstance(inner, list):
        return {decode(key, below): decode(item, below) for key, item in inner}
    raise ValueError(f"no value is written as {value!r:.100}")


def append(file: str, value: Mapping[str, Any]) -> None:
    """Adds one line and waits until it is on the disk.

    After a line that is torn it begins a new one. If it cannot be written whole nothing of it is
    left, unless the process is killed in the middle.

    Args:
        file: Made if it is not there.
        value: What :func:`encode` made.

    Raises:
        OSError: It cannot be written.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    with open(file, "a+b", buffering=0) as stream:
        if sys.platform != "win32":
            fcntl.flock(stream, fcntl.LOCK_EX)  # given back by closing, however that comes
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 1))
        torn = stream.read(1) not in (b"", b"\n")
        rest = memoryview(b"\n" * torn + text.encode() + b"\n")
        try:
            while rest:
                rest = rest[stream.write(rest) :]
            os.fsync(stream.fileno())
        except BaseException:
            stream.truncate(size)
            raise


def read(
    file: str, torn: Callable[[int, int], None], wrong: Callable[[int, str], None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """``(number, object)`` of every line that is whole, counted from 1; empty ones are passed over.

    What is added while it is read is not read: the file ends where it ended at first.

    Args:
        file: Its name.
        torn: ``torn(number, bytes)`` hears of every line that ends before its object does: its
            writer was killed, or the disk was full.
        wrong: ``wrong(number, reason)`` hears of every line that is no JSON object, or one too
            deep to be read, and not the beginning of one either.

    Raises:
        OSError: It cannot be read.
    """
    with open(file, "rb") as stream:
        found = os.fstat(stream.fileno())
        left = found.st_size if stat.S_ISREG(found.st_mode) else sys.maxsize
        number = 0
        while data := stream.readline(left):
            left -= len(data)
            number += 1
            if not (line := data.strip()):
                continue
            try:
                value = json.loads(line, parse_constant=_refuse)
                if not isinstance(value, dict):
                    raise ValueError(f"a line must be an object, got {value!r:.100}")
            except (ValueError, RecursionError) as error:
                if _unfinished(line):
                    torn(number, len(data))
                else:
                    wrong(number, str(error))
            else:
                yield number, value


def _plain_key(key: Any) -> bool:
    return isinstance(key, str) and not key.startswith("$") and not _PAIR.search(key)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unfinished(line: bytes) -> bool:
    """Whether a line is an object that something follows: every beginning of a line is."""
    depth = 0
    for token in _TOKEN.finditer(line):
        if token.start() and depth == 0:
            return False
        depth += _STEPS.get(token[0], 0)
    return line.startswith(b"{") and depth > 0
