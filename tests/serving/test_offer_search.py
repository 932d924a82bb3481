"""Offers are searched for in a process of their own, one at a time, within a number and a time.

If the model must be called for every offer, its calls are large queries.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.offer_value import Logits
from pcmcnet.errors import InputError
from pcmcnet.models import PCMCNet, RandomForest
from pcmcnet.serving import offer_search, service
from pcmcnet.serving.app import create_app
from pcmcnet.serving.offer_search import FoundOffer, OfferSearcher, search_offer
from pcmcnet.serving.request_body import RequestError
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import QueuedModel, Worker

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


def search(searcher: OfferSearcher, seconds: float = 60) -> FoundOffer:
    return asyncio.run(searcher.search(VALUE, ROWS, ALL, time.monotonic() + seconds))


def test_a_process_searches_and_is_replaced_when_it_dies(searcher: OfferSearcher) -> None:
    """Alone, the second alternative earns 4; with the third, (4 + 2 * 3) / 3."""
    best, probabilities = search(searcher)
    assert (best.offer.tolist(), best.value, best.gap < 1e-6) == ([False, True, False], pytest.approx(4), True)
    np.testing.assert_allclose(probabilities, [[0, 1, 0], [1 / 4, 1 / 4, 1 / 2]], rtol=0, atol=1e-15)
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
        best = search_offer(VALUE, rows, ALL, 0.0).best
        assert rows.allow(best.offer[None])[0]
        assert best.value <= best.bound


def test_offers_beyond_the_limit_get_status_503(net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that is held up delays no other query, and the third offer is refused at once."""
    may_go = threading.Event()

    def held(*task: Any) -> FoundOffer:
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


# -- models that must be called for every offer ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def forest(make_trips: Any) -> RandomForest:
    data = ChoiceData.from_long(make_trips(), choice_set="trip", chosen="took", features=["price", "minutes"])
    model: RandomForest = RandomForest(trees=3).fit(data)
    return model


FOREST_SET = {"alternatives": [{"price": price, "minutes": 10} for price in (3, 5, 9)]}


def test_small_requests_do_not_wait_for_a_search_that_calls_the_model(
    forest: RandomForest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of the search, each with several sets, are held up."""
    threads: list[str] = []
    begun, may_go = threading.Event(), threading.Event()
    predict = forest.predict_log_proba

    def held(data: ChoiceData) -> Any:
        if len(data) > 1:
            threads.append(threading.current_thread().name)
            begun.set()
            assert may_go.wait(60)
        return predict(data)

    monkeypatch.setattr(forest, "predict_log_proba", held)
    monkeypatch.setattr(service, "shared_searcher", OfferSearcher)
    app = create_app(forest)

    async def run() -> tuple[httpx.Response, httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            offer = asyncio.create_task(client.post("/v1/offer", json={"set": FOREST_SET, "revenue": "price"}))
            assert await asyncio.to_thread(begun.wait, 60)
            async with asyncio.timeout(50):
                small = await client.post("/v1/probabilities", json={"sets": [FOREST_SET]})
            assert not offer.done()
            may_go.set()
            return small, await offer

    small, offer = asyncio.run(run())
    app.state.service.worker.close()
    assert (small.status_code, offer.status_code) == (200, 200)
    assert threads
    assert {name.rsplit("-", 1)[0] for name in threads} == {"pcmcnet-large"}


def test_a_search_that_waits_too_long_for_the_model_gets_status_504(forest: RandomForest) -> None:
    worker = Worker({"main": forest}, ServeSettings())
    data = ChoiceData.from_long(
        {"s": [0], "price": [3.0], "minutes": [9.0]}, choice_set="s", features=["price", "minutes"]
    )
    with worker.admit() as admission:
        with pytest.raises(RequestError, match="timeout during the search for the offer: try again later") as caught:
            QueuedModel("main", admission, until=0).predict_log_proba(data)
        assert caught.value.status == 504
        model = QueuedModel("main", admission, until=time.monotonic() + 60)
        assert model.predict_log_proba(data) == pytest.approx(0, abs=1e-12), "the only alternative is certain"
    worker.close()


def test_an_error_of_a_search_gets_status_422(
    forest: RandomForest, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*task: Any) -> FoundOffer:
        raise InputError("the sum is not 1.")

    monkeypatch.setattr(offer_search, "search_offer", fail)
    answer = make_client(forest).post("/v1/offer", json={"set": FOREST_SET, "revenue": "price"})
    assert (answer.status_code, answer.json()) == (422, {"error": "the sum is not 1."})
