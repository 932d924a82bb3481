"""Bytes -> plain values, by strict JSON of bounded depth and size.

Depth and number of values are counted in the bytes, before any object is made of them: four million bytes of ``[]``
would become hundreds of megabytes of empty lists. Beyond what Python's own reader refuses, so are NaN and infinities,
names that occur twice in an object, and text that is no valid Unicode: each would mean something else to the next
reader.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pcmcnet.errors import shown
from pcmcnet.serving.refusal import RefusalError

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a pair, which may lack the other half
_QUOTE, _COMMA = ord('"'), ord(",")
_STEPS = np.zeros(256, np.int8)  # what a byte outside of strings adds to the depth
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


class Size(NamedTuple):
    """How deep a text of JSON is nested, and at most how many values it holds."""

    depth: int
    values: int


def size_of(content: bytes) -> Size:
    r"""Count brackets and commas outside of strings.

    Every value but the first follows a bracket or a comma. Where the text is no JSON, the counts hold up to the first
    mistake, which is as far as a reader goes.

    Examples
    --------
    >>> size_of(b'[{"name": "[[,,\\""}, 2]')
    Size(depth=2, values=4)
    """
    plain = content.replace(rb"\\", b"").replace(rb"\"", b"")  # pairs first: what is left before a quote escapes it
    text = np.frombuffer(plain, np.uint8)
    outside = text[np.cumsum(text == _QUOTE, dtype=np.uint8) % 2 == 0]
    steps = _STEPS[outside]
    steps = steps[steps != 0]
    values = 1 + np.count_nonzero(outside == _COMMA) + np.count_nonzero(steps > 0)
    return Size(int(np.cumsum(steps, dtype=np.int32).max(initial=0)), int(values))


def parse(content: bytes, most: Size) -> Any:
    """Parse strict JSON; raises :class:`RefusalError`.

    Examples
    --------
    >>> parse(b'{"price": 3.5}', Size(depth=32, values=1_000))
    {'price': 3.5}
    """
    brackets = content.count(b"[") + content.count(b"{")  # most requests are within the bounds by these counts alone
    within = brackets <= most.depth and brackets + content.count(b",") < most.values
    size = most if within else size_of(content)
    if size.depth > most.depth:
        raise RefusalError(400, f"the body is nested too deeply: expected at most {most.depth} levels.")
    if size.values > most.values:
        message = f"the body holds more than {most.values:,} values: ask about fewer choice sets at once, or raise "
        raise RefusalError(413, message + "--max-values.")
    try:
        value = json.loads(content.decode(), parse_constant=_refuse_constant, object_pairs_hook=_object)
        if _SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise RefusalError(400, "the body is not valid Unicode: expected JSON in UTF-8.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RefusalError(400, f"the body is not valid JSON: {error.msg} ({where}).") from None
    except ValueError:  # a whole number of thousands of digits
        raise RefusalError(400, "the body holds a number with too many digits.") from None
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise RefusalError(400, f"the body holds {word}, which JSON does not know: leave the value out, or write null.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise RefusalError(400, f"{shown(twice)} stands twice in one object: keep one.")
    return found
