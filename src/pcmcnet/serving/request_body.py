"""Requests: strict JSON within limits of size and time, and refusals with a status and a reason."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
from starlette.requests import ClientDisconnect, Request

from pcmcnet.errors import describe_value
from pcmcnet.serving.settings import ServeSettings

# -- Refusal -----------------------------------------------------------------------------------------------------------
# Requests that are turned away: a status and one sentence that says what, where and what to do.


class RefusalError(Exception):
    """A request is turned away; it becomes the answer ``{"error": message}``."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def unusable(message: str) -> RefusalError:
    """Build the refusal of a request that is well-formed JSON but not what is expected."""
    return RefusalError(422, message)


def busy(what: str, *, close: bool = False) -> RefusalError:
    """Build the refusal of a request that comes at the wrong moment; ``close`` ends its connection."""
    headers = {"Retry-After": "1"} | ({"Connection": "close"} if close else {})
    return RefusalError(503, f"{what}: try again in a moment.", headers)


# -- Strict json -------------------------------------------------------------------------------------------------------
# Bytes -> plain values, by strict JSON of bounded depth and size.
#
# Depth and number of values are counted in the bytes, before any object is made of them: four million bytes of `[]`
# would become hundreds of megabytes of empty lists. Beyond what Python's own reader refuses, so are NaN and infinities,
# names that occur twice in an object, and text that is no valid Unicode: each would mean something else to the next
# reader.


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
        raise RefusalError(400, f"{describe_value(twice)} stands twice in one object: keep one.")
    return found


# -- Request limits ----------------------------------------------------------------------------------------------------
# The bytes of a request's body, bounded while they arrive: in length, in time, and over all requests together.
#
# A request takes no place among those under way before its body is complete, so that slow senders keep nobody out. What
# they can take is memory, and of that large bodies have a bounded share; small ones are always read.


LARGE = 65_536  # bytes from which a body counts as large, and reading it would hold up other requests
_JSON = re.compile(r"application/(json|[\w.-]+\+json)\s*(;.*)?", re.IGNORECASE)


class Bodies:
    """Reads bodies, and counts the bytes of the large ones that are held."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.most = max(settings.max_bodies, settings.max_body)
        self.held = 0

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Make a place for one body, which is held until the end of the block."""
        place = Place(self)
        try:
            yield place
        finally:
            self.held -= place.held


class Place:
    """The place of one body."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.held = 0

    async def read(self, request: Request) -> bytes:
        """Read the whole body; raises :class:`RefusalError`."""
        kind = request.headers.get("content-type", "")
        if not _JSON.fullmatch(kind.strip()):
            raise RefusalError(
                415, f"content-type: expected application/json, got {describe_value(kind) if kind else 'none'}."
            )
        seconds = self._bodies.settings.body_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._read(request)
        except TimeoutError:
            message = f"the body did not arrive within {seconds:g} seconds."
            raise RefusalError(408, message, {"Connection": "close"}) from None
        except ClientDisconnect:
            raise RefusalError(400, "the connection was closed before the body had arrived.") from None

    async def _read(self, request: Request) -> bytes:
        limit = self._bodies.settings.max_body
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit)
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > limit:
                raise _too_large(limit)
            self._hold(len(content))
        return bytes(content)

    def _hold(self, length: int) -> None:
        """Count a body that has become larger."""
        if length > LARGE:
            more = length - self.held
            if self._bodies.held + more > self._bodies.most:
                raise busy("the server holds as many large requests as it can", close=True)
            self._bodies.held += more
            self.held = length


def _too_large(limit: int) -> RefusalError:
    message = f"the body is larger than {limit:,} bytes: ask about fewer choice sets at once, or raise --max-body."
    return RefusalError(413, message, {"Connection": "close"})
