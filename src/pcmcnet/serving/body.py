"""The body of a request -> plain values, by strict JSON.

Bytes are counted while they arrive, so that a body without a declared length is bounded too. Beyond what Python's own
reader refuses, so are NaN and infinities, names that occur twice in an object, and text that is no valid Unicode: each
would mean something else to the next reader.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import Any, NoReturn

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from pcmcnet.serving.refusal import RefusalError, shown

_LARGE = 65_536  # bytes from which reading would hold up other requests
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a pair, which may lack the other half
_JSON = re.compile(r"application/(json|[\w.-]+\+json)\s*(;.*)?", re.IGNORECASE)


async def read_json(request: Request, *, limit: int, timeout: float) -> Any:
    """Read the whole body; raises :class:`RefusalError`."""
    kind = request.headers.get("content-type", "")
    if not _JSON.fullmatch(kind.strip()):
        raise RefusalError(415, f"content-type: expected application/json, got {shown(kind) if kind else 'none'}.")
    try:
        async with asyncio.timeout(timeout):
            content = await _read(request, limit)
    except TimeoutError:
        raise RefusalError(
            408, f"the body did not arrive within {timeout:g} seconds.", {"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise RefusalError(400, "the connection was closed before the body had arrived.") from None
    return await run_in_threadpool(parse, content) if len(content) > _LARGE else parse(content)


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > limit:
            raise _too_large(limit)
    return bytes(content)


def _too_large(limit: int) -> RefusalError:
    message = f"the body is larger than {limit:,} bytes: ask about fewer choice sets at once, or raise --max-body."
    return RefusalError(413, message, {"Connection": "close"})


def parse(content: bytes) -> Any:
    """Parse strict JSON.

    Examples
    --------
    >>> parse(b'{"price": 3.5}')
    {'price': 3.5}
    """
    try:
        value = json.loads(content.decode(), parse_constant=_refuse_constant, object_pairs_hook=_object)
        if _SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise RefusalError(400, "the body is not valid Unicode: expected JSON in UTF-8.") from None
    except RecursionError:
        raise RefusalError(400, "the body is nested too deeply.") from None
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
