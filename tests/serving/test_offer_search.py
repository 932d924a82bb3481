"""Offers are searched for in a process of their own, one at a time, within a number and a time."""

import asyncio
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from pcmcnet.decisions.branch_and_bound import SearchResult
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.offer_value import Logits
from pcmcnet.models import PCMCNet
from pcmcnet.serving import offer_search, service
from pcmcnet.serving.app import create_app
from pcmcnet.serving.offer_search import OfferSearcher, search_offer
from pcmcnet.serving.request_body import RequestError

VALUE = Logits(np.ones((1, 1)), np.array([[[1.0, 1.0, 2.0]]]), np.array([1.0, 4.0, 3.0]))
ROWS = ConstraintRows.unconstrained(np.zeros(3, np.bool_))
ALL = np.ones(3, np.bool_)


@pytest.fixture
def searcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[OfferSearcher]:
    """Yield a searcher that uses a process."""
    monkeypatch.setattr("pcmcnet.serving.offer_search.can_start_interpreter", lambda: True)
    searcher = OfferSearcher(most=2)
    yield searcher
    searcher.close()


def search(searcher: OfferSearcher, seconds: float = 60) -> SearchResult:
    return asyncio.run(searcher.search(VALUE, ROWS, ALL, time.monotonic() + seconds))


def test_a_process_searches_and_is_replaced_when_it_dies(searcher: OfferSearcher) -> None:
    """Alone, the second alternative earns 4; with the third, (4 + 2 * 3) / 3."""
    best = search(searcher)
    assert (best.offer.tolist(), best.value, best.gap < 1e-6) == ([False, True, False], pytest.approx(4), True)
    first = searcher._process
    assert first is not None
    first.process.kill()
    first.process.wait()
    with pytest.raises(RequestError, match="the search for the offer ended unexpectedly: try again") as caught:
        search(searcher)
    assert caught.value.status == 503
    assert first.tasks.closed
    assert searcher._process is None, "the next search starts a process"


def test_a_search_that_cannot_begin_in_time_gets_status_504(searcher: OfferSearcher) -> None:
    """The process has not started yet."""
    searcher._process = SimpleNamespace(ready=threading.Event(), end=lambda kill: None)  # type: ignore[assignment]
    with pytest.raises(RequestError, match="timeout before the search for the offer began") as caught:
        search(searcher, seconds=0)
    assert caught.value.status == 504


def test_a_search_without_time_returns_a_feasible_offer_with_a_bound() -> None:
    for rows in (ROWS, ROWS._replace(always=np.array([True, False, False]))):
        best = search_offer(VALUE, rows, ALL, 0.0)
        assert rows.allow(best.offer[None])[0]
        assert best.value <= best.bound


def test_offers_beyond_the_limit_get_status_503(net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that is held up delays no other query, and the third offer is refused at once."""
    may_go = threading.Event()

    def held(*task: Any) -> SearchResult:
        assert may_go.wait(60)
        return search_offer(*task)

    monkeypatch.setattr(offer_search, "search_offer", held)
    monkeypatch.setattr(service, "shared_searcher", lambda: OfferSearcher(most=2))
    app = create_app(net)
    body = {"set": sets[0], "revenue": "price"}

    async def run() -> tuple[list[httpx.Response], httpx.Response, list[httpx.Response]]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            offers = [asyncio.create_task(client.post("/v1/offer", json=body)) for _ in range(2)]
            while app.state.service._searcher.in_progress < 2:
                await asyncio.sleep(0.001)
            refused = await client.post("/v1/offer", json=body)
            others = [
                await client.post("/v1/probabilities", json={"sets": sets * 25}),  # read in a thread
                await client.post("/v1/rates", json={"set": sets[0]}),
            ]
            may_go.set()
            return list(await asyncio.gather(*offers)), refused, others

    offers, refused, others = asyncio.run(run())
    app.state.service.worker.close()
    assert [answer.status_code for answer in (*offers, *others)] == [200] * 4
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json() == {"error": "the server has 2 offers in progress: try again in a moment."}
