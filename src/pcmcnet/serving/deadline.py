"""Work that is wanted: until its deadline, and as long as the client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request

from pcmcnet.serving.refusal import RefusalError

T = TypeVar("T")
CLIENT_GONE = 499  # nobody reads this answer: it is there to be counted


async def while_wanted(work: Awaitable[T], request: Request, seconds: float) -> T:
    """Await ``work`` for a request whose body has been read; cancel it at the deadline, or when the client leaves."""
    try:
        async with asyncio.timeout(seconds) as limit:
            watch = asyncio.create_task(_end_with_client(request, limit))
            try:
                return await work
            finally:
                watch.cancel()
    except TimeoutError:
        if not limit.expired():  # the work's own
            raise
        if watch.done():
            raise RefusalError(CLIENT_GONE, "the connection was closed before the answer was there.") from None
        message = f"there was no answer within {seconds:g} seconds: ask about fewer choice sets at once, or try again "
        raise RefusalError(504, message + "when there is less to do.") from None


async def _end_with_client(request: Request, limit: asyncio.Timeout) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    limit.reschedule(asyncio.get_running_loop().time())
