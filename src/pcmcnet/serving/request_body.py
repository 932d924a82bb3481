"""Read request bodies as strict JSON within size and time limits, and report errors with a status and a reason."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import ClientDisconnect, Request

from pcmcnet.errors import describe_value
from pcmcnet.serving.settings import ServeSettings

# -- Errors ------------------------------------------------------------------------------------------------------------


class RequestError(Exception):
    """An error in a request, with an HTTP status. The response is ``{"error": message}``."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def unprocessable(message: str) -> RequestError:
    """Return the error for a request that is valid JSON but not a valid query (status 422)."""
    return RequestError(422, message)


def busy(reason: str, *, close: bool = False) -> RequestError:
    """Return the error for a request that cannot be processed now (status 503). ``close`` closes the connection."""
    headers = {"Retry-After": "1"} | ({"Connection": "close"} if close else {})
    return RequestError(503, f"{reason}: try again in a moment.", headers)


# -- Strict JSON -------------------------------------------------------------------------------------------------------
# Depth and number of values are counted in the bytes before any object is created: four million bytes of `[]` would
# become hundreds of megabytes of empty lists. In addition to the errors of Python's own parser, NaN and infinities,
# duplicate names in an object and invalid Unicode are errors, since other parsers read them differently.


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a surrogate pair; the other half may be missing
_QUOTE, _COMMA = ord('"'), ord(",")
_STEPS = np.zeros(256, np.int8)  # change of the nesting depth at each byte outside of strings
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


class JsonSize(NamedTuple):
    """The nesting depth of a JSON text, and an upper bound on its number of values."""

    depth: int
    values: int


def json_size(content: bytes) -> JsonSize:
    r"""Return the depth and the number of values of a JSON text, by counting brackets and commas outside strings.

    Every value but the first follows a bracket or a comma. If the text is not valid JSON, the counts hold up to the
    first error, where a parser stops.

    Examples
    --------
    >>> json_size(b'[{"name": "[[,,\\""}, 2]')
    JsonSize(depth=2, values=4)
    """
    plain = content.replace(rb"\\", b"").replace(rb"\"", b"")  # escaped backslashes first, then escaped quotes
    text = np.frombuffer(plain, np.uint8)
    outside = text[np.cumsum(text == _QUOTE, dtype=np.uint8) % 2 == 0]
    steps = _STEPS[outside]
    steps = steps[steps != 0]
    values = 1 + np.count_nonzero(outside == _COMMA) + np.count_nonzero(steps > 0)
    return JsonSize(int(np.cumsum(steps, dtype=np.int32).max(initial=0)), int(values))


def parse_strict_json(content: bytes, most: JsonSize) -> Any:
    """Parse strict JSON within limits. Raise :class:`RequestError` if the text is not valid JSON or exceeds a limit.

    Examples
    --------
    >>> parse_strict_json(b'{"price": 3.5}', JsonSize(depth=32, values=1_000))
    {'price': 3.5}
    """
    # 1. Check the limits: simple counts, which include strings, suffice for most requests.
    brackets = content.count(b"[") + content.count(b"{")
    within = brackets <= most.depth and brackets + content.count(b",") < most.values
    size = most if within else json_size(content)
    if size.depth > most.depth:
        raise RequestError(400, f"the body is nested too deeply: expected at most {most.depth} levels.")
    if size.values > most.values:
        message = f"the body has more than {most.values:,} values: send fewer choice sets, or raise --max-values."
        raise RequestError(413, message)
    # 2. Parse the text, and check that its strings are valid Unicode.
    try:
        value = json.loads(content.decode(), parse_constant=_reject_constant, object_pairs_hook=_object)
        if _SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise RequestError(400, "the body is not valid Unicode: expected JSON in UTF-8.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestError(400, f"the body is not valid JSON: {error.msg} ({where}).") from None
    except ValueError:  # an integer with thousands of digits
        raise RequestError(400, "the body contains a number with too many digits.") from None
    return value


def _reject_constant(word: str) -> NoReturn:
    raise RequestError(400, f"the body contains {word}, which is not valid JSON: use null, or omit the value.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raise RequestError if a name occurs twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = next(name for name, count in counts.items() if count > 1)
        raise RequestError(400, f"{describe_value(duplicate)} occurs twice in one object: remove one of them.")
    return values


def json_by_rows(result: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, so that other threads can run meanwhile.

    Each entry of its lists is encoded by itself. Matrices are encoded by Arrow, which does not hold the interpreter
    lock: predictions need the lock for every operation, and would otherwise wait for a row of the matrix each time.

    Examples
    --------
    >>> json_by_rows({"rates": np.array([[0, 0.5], [1e-9, 0]]), "probabilities": [0.25, 0.75], "exact": True})
    b'{"rates":[[0,0.5],[1e-9,0]],"probabilities":[0.25,0.75],"exact":true}'
    """
    entries = [f"{_encode(name)}:{_encode_by_rows(value)}" for name, value in result.items()]
    return f"{{{','.join(entries)}}}".encode()


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _encode_by_rows(value: Any) -> str:
    """Return a JSON value. Numbers are written with as many digits as are needed to read them back unchanged."""
    if isinstance(value, np.ndarray):  # a matrix of finite numbers
        texts = pa.array(value.ravel()).cast(pa.string())
        rows = pa.ListArray.from_arrays(np.arange(0, value.size + 1, value.shape[1], dtype=np.int32), texts)
        return f"[{','.join(f'[{row}]' for row in pc.binary_join(rows, ',').to_pylist())}]"
    return f"[{','.join(map(_encode, value))}]" if isinstance(value, list) else _encode(value)


# -- Request limits ----------------------------------------------------------------------------------------------------
# Bodies are limited while they arrive: in length, in time, and in the total of all requests.
#
# A request counts as in progress only when its body is complete, so that slow senders block no one. They can only use
# memory, so the total size of large bodies is limited; small bodies are always read.


LARGE_BODY_BYTES = 65_536  # a larger body is parsed in a thread, so that it does not block other requests
_JSON = re.compile(r"application/(json|[\w.-]+\+json)\s*(;.*)?", re.IGNORECASE)


class BodyReader:
    """Reader of request bodies that limits the total size of large bodies in memory."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.most = max(settings.max_bodies, settings.max_body)
        self.held = 0

    @contextmanager
    def slot(self) -> Iterator[BodySlot]:
        """Yield a slot for one body, whose memory is counted until the end of the block."""
        slot = BodySlot(self)
        try:
            yield slot
        finally:
            self.held -= slot.held


class BodySlot:
    """One request body and the memory that it occupies."""

    def __init__(self, bodies: BodyReader) -> None:
        self._bodies = bodies
        self.held = 0

    async def read(self, request: Request, most: int | None = None) -> bytes:
        """Read the body, of at most ``most`` bytes (default ``max_body``).

        Raise RequestError if the body is too large, arrives too slowly or is not declared as JSON.
        """
        kind = request.headers.get("content-type", "")
        if not _JSON.fullmatch(kind.strip()):
            raise RequestError(
                415, f"content-type: expected application/json, got {describe_value(kind) if kind else 'none'}."
            )
        seconds = self._bodies.settings.body_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._read(request, min(most or self._bodies.settings.max_body, self._bodies.most))
        except TimeoutError:
            message = f"the body did not arrive within {seconds:g} seconds."
            raise RequestError(408, message, {"Connection": "close"}) from None
        except ClientDisconnect:
            raise RequestError(400, "the connection was closed before the body was complete.") from None

    async def _read(self, request: Request, limit: int) -> bytes:
        option = "--max-body" if limit == self._bodies.settings.max_body else "--max-market-bytes"
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit, option)
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > limit:
                raise _too_large(limit, option)
            self._hold(len(content))
        return bytes(content)

    def _hold(self, length: int) -> None:
        """Count the memory of the ``length`` bytes read so far. Raise RequestError if the memory limit is reached."""
        if length > LARGE_BODY_BYTES:
            more = length - self.held
            if self._bodies.held + more > self._bodies.most:
                raise busy("the server is reading too many large requests")
            self._bodies.held += more
            self.held = length


def _too_large(limit: int, option: str) -> RequestError:
    message = f"the body is larger than {limit:,} bytes: send fewer choice sets, or raise {option}."
    return RequestError(413, message)
