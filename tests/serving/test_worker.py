"""Small queries do not wait for large ones; the queue is bounded, and a bad request affects no other."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.layers import threads as layer_threads
from pcmcnet.models import PCMCNet
from pcmcnet.serving.app import create_app
from pcmcnet.serving.request_body import RequestError
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import Job, Worker


class Slow:
    """A model that waits until it may continue, and records its input."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.sizes: list[int] = []
        self.begun = threading.Semaphore(0)

    def predict_log_proba(self, data: ChoiceData) -> Any:
        self.sizes.append(len(data))
        self.begun.release()
        assert self.may_go.wait(60)
        if (data.features["price"].values == 13).any():
            raise InputError("13 is refused.")
        if (data.features["price"].values == 14).any():
            raise ZeroDivisionError
        if (data.features["price"].values == 15).any():
            return np.full(len(data.rows), np.nan)
        return -data.features["price"].values.astype(float)


def sets_of(*prices: float) -> ChoiceData:
    table = {"s": np.arange(len(prices)), "price": list(prices)}
    return ChoiceData.from_long(table, choice_set="s", features=["price"])


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def worker(slow: Slow) -> Iterator[Worker]:
    worker = Worker({"main": slow, "other": slow}, ServeSettings(queue=8, batch_sets=5, gather=60, large_threads=1))  # type: ignore[dict-item]
    yield worker
    slow.may_go.set()
    worker.close()


def submit(worker: Worker, *prices: float, model: str = "main") -> Any:
    with worker.admit() as admission:
        return admission.put(Job(model, "log_proba", sets_of(*prices)))


def test_waiting_requests_are_answered_in_one_batch(worker: Worker, slow: Slow) -> None:
    first = submit(worker, 1)
    assert slow.begun.acquire(timeout=60)
    later = [
        submit(worker, 2, 3),
        submit(worker, 4),
        submit(worker, 5, 6),
        submit(worker, 7),
    ]
    slow.may_go.set()
    assert [answer.result(60).tolist() for answer in (first, *later)] == [[-1], [-2, -3], [-4], [-5, -6], [-7]]
    assert slow.sizes == [1, 5, 1], "at most 5 sets at once"
    text = worker.metrics.text()
    assert "pcmcnet_sets_predicted_total 7" in text
    assert 'pcmcnet_batch_requests_bucket{le="2"} 2' in text


def test_requests_to_different_models_are_not_mixed(worker: Worker, slow: Slow) -> None:
    submit(worker, 1)
    assert slow.begun.acquire(timeout=60)
    later = [submit(worker, 2), submit(worker, 3, model="other"), submit(worker, 4)]
    slow.may_go.set()
    assert [answer.result(60).tolist() for answer in later] == [[-2], [-3], [-4]]
    assert slow.sizes == [1, 1, 1, 1]


def test_the_worker_waits_for_requests_that_are_being_read(worker: Worker, slow: Slow) -> None:
    slow.may_go.set()
    with worker.admit() as one, worker.admit() as two, worker.admit() as three:
        answers = [one.put(Job("main", "log_proba", sets_of(1))), two.put(Job("main", "log_proba", sets_of(2)))]
        assert slow.sizes == []
        answers.append(three.put(Job("main", "log_proba", sets_of(3))))
        assert [answer.result(60).tolist() for answer in answers] == [[-1], [-2], [-3]]
    assert slow.sizes == [3]


def test_the_worker_does_not_wait_for_cancelled_requests(worker: Worker, slow: Slow) -> None:
    slow.may_go.set()
    with worker.admit() as one:
        with worker.admit():
            answer = one.put(Job("main", "log_proba", sets_of(1)))
            assert slow.sizes == []
        assert answer.result(60).tolist() == [-1]


def test_large_requests_leave_a_core_to_small_ones(threads: Callable[[int], None]) -> None:
    threads(3)
    counts: list[tuple[int, int]] = []

    def predict(data: ChoiceData) -> Any:
        counts.append((len(data), layer_threads.threads()))
        return np.zeros(len(data.rows))

    model = SimpleNamespace(predict_log_proba=predict)
    worker = Worker({"main": model}, ServeSettings(batch_sets=5, large_threads=1))  # type: ignore[dict-item]
    for prices in ([1.0], [1.0] * 6):
        submit(worker, *prices).result(60)
    worker.close()
    assert counts == [(1, 3), (5, 2), (1, 2)]


@pytest.mark.parametrize("query", ["log_proba", "rates", "offer"])
def test_small_requests_do_not_wait_for_large_ones(query: Any, slow: Slow) -> None:
    """100 pairs of a prediction are small. A prediction of 21^2 = 441 pairs is large, as are other queries of 100."""
    begun, may_go = threading.Event(), threading.Event()

    def held(data: Any) -> Any:
        begun.set()
        assert may_go.wait(60)
        return [np.zeros((data.n_rows, data.n_rows))] if query == "rates" else np.zeros(data.n_rows)

    def predict(data: ChoiceData) -> Any:
        return held(data) if len(data.rows) > 10 else -data.features["price"].values.astype(float)

    model = SimpleNamespace(predict_log_proba=predict, rates=held)
    worker = Worker({"main": model}, ServeSettings(batch_pairs=100))  # type: ignore[dict-item]
    large = ChoiceData.from_long(
        {"s": [0] * (21 if query == "log_proba" else 10), "price": range(21 if query == "log_proba" else 10)},
        choice_set="s",
        features=["price"],
    )
    with worker.admit() as admission:
        pending = admission.put(Job("main", query, large, evaluate=lambda model: held(large)))
    assert begun.wait(60)
    assert submit(worker, 3, 4).result(60).tolist() == [-3, -4]
    assert not pending.done()
    may_go.set()
    assert not np.any(pending.result(60))
    worker.close()


def test_large_requests_of_similar_cost_finish_one_after_another(worker: Worker, slow: Slow) -> None:
    """Each has three chunks. If they took turns, the first one would finish after the seventh chunk."""
    requests = [submit(worker, *range(20, 35))]
    assert slow.begun.acquire(timeout=60)
    requests += [submit(worker, *range(first, first + 15)) for first in (40, 60)]
    chunks: list[tuple[int, int]] = []  # number of a finished request, and of all chunks that were computed before
    for number, request in enumerate(requests):
        request.add_done_callback(lambda _, number=number: chunks.append((number, len(slow.sizes))))
    slow.may_go.set()
    assert [len(request.result(60)) for request in requests] == [15, 15, 15]
    worker.close(60)
    assert chunks == [(0, 3), (1, 6), (2, 9)]


def test_large_requests_of_different_cost_take_turns(worker: Worker, slow: Slow) -> None:
    """A prediction of three chunks does not wait for one of twenty, and neither do the rates that arrive last."""
    order = []

    def rates(data: ChoiceData) -> Any:
        order.append("rates")
        return [np.ones((150, 150))]

    slow.rates = rates  # type: ignore[attr-defined]
    large = [submit(worker, *range(20, 120)), submit(worker, *range(40, 55))]
    wide = ChoiceData.from_long({"s": [0] * 150, "price": range(150)}, choice_set="s", features=["price"])
    assert slow.begun.acquire(timeout=60)
    with worker.admit() as admission:
        pending = admission.put(Job("main", "rates", wide))
    pending.add_done_callback(lambda _: order.append(len(slow.sizes)))
    large[1].add_done_callback(lambda _: order.append(len(slow.sizes)))
    slow.may_go.set()
    assert [len(answer.result(60)) for answer in large] == [100, 15]
    assert large[1].result().tolist() == [-float(price) for price in range(40, 55)]
    assert order == ["rates", 2, 6], "after the first chunk of each prediction, and after its third chunk"
    assert slow.sizes == [5] * 23


def test_two_threads_compute_large_requests_until_a_small_one_arrives(
    slow: Slow, threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten sets in two chunks, the first one with two alternatives: it comes last, but its rows keep their place."""
    threads(2)
    monkeypatch.setattr("pcmcnet.serving.worker.QUIET_SECONDS", 1e6)
    worker = Worker({"main": slow}, ServeSettings(batch_sets=5))  # type: ignore[dict-item]
    table = {"s": [0, 0, *range(1, 10)], "price": np.arange(20.0, 31.0)}
    data = ChoiceData.from_long(table, choice_set="s", features=["price"])
    with worker.admit() as admission:
        pending = admission.put(Job("main", "log_proba", data))
    assert slow.begun.acquire(timeout=60)
    assert slow.begun.acquire(timeout=60), "the second chunk begins before the first one ends"
    slow.may_go.set()
    assert pending.result(60).tolist() == [-float(price) for price in table["price"]]
    assert submit(worker, 3).result(60).tolist() == [-3]
    assert slow.begun.acquire(timeout=60)
    slow.may_go.clear()
    large = submit(worker, *range(20, 35))
    assert slow.begun.acquire(timeout=60)
    assert not slow.begun.acquire(timeout=0.2), "after the small request, the second thread waits"
    slow.may_go.set()
    assert len(large.result(60)) == 15
    worker.close(60)


def test_a_cancelled_large_request_stops_between_chunks(worker: Worker, slow: Slow) -> None:
    large = submit(worker, *range(20, 80))
    assert slow.begun.acquire(timeout=60)
    assert large.cancel()
    slow.may_go.set()
    assert submit(worker, 3).result(60).tolist() == [-3]
    assert slow.sizes == [5, 1]


@pytest.mark.parametrize(("price", "message"), [(13, "13 is refused"), (15, "too far from its training data")])
def test_a_large_request_with_a_bad_chunk_is_rejected(price: float, message: str, worker: Worker, slow: Slow) -> None:
    slow.may_go.set()
    with pytest.raises(RequestError, match=message):
        submit(worker, *range(20, 27), price, *range(30, 50)).result(60)
    assert submit(worker, 3).result(60).tolist() == [-3]
    assert slow.sizes == [5, 5, 1], "what comes after the bad piece is not asked"


def test_a_large_request_gets_the_predictions_of_the_model(
    net: PCMCNet, make_client: Any, make_trips: Any, as_requests: Any
) -> None:
    table = make_trips(40, seed=3)
    client = make_client(net, batch_sets=7, batch_pairs=60)
    answer = client.post("/v1/probabilities", json={"sets": as_requests(table)})
    probabilities = np.concatenate([entry["probabilities"] for entry in answer.json()["sets"]])
    np.testing.assert_allclose(probabilities, net.predict_proba(table), rtol=0, atol=1e-6)
    assert "pcmcnet_sets_predicted_total 40" in client.app.state.service.worker.metrics.text()


def test_a_cancelled_request_is_not_computed(worker: Worker, slow: Slow) -> None:
    submit(worker, 1)
    assert slow.begun.acquire(timeout=60)
    assert submit(worker, 2).cancel()
    last = submit(worker, 3)
    slow.may_go.set()
    assert last.result(60).tolist() == [-3]
    assert slow.sizes == [1, 1]


def test_a_bad_request_affects_no_other(worker: Worker, slow: Slow) -> None:
    submit(worker, 1)
    assert slow.begun.acquire(timeout=60)
    good, refused, broken, nothing = submit(worker, 2), submit(worker, 13), submit(worker, 14), submit(worker, 15)
    slow.may_go.set()
    assert good.result(60).tolist() == [-2]
    with pytest.raises(RequestError, match="13 is refused"):
        refused.result(60)
    with pytest.raises(ZeroDivisionError):
        broken.result(60)
    with pytest.raises(RequestError, match="too far from its training data"):
        nothing.result(60)
    assert submit(worker, 3).result(60).tolist() == [-3], "the thread goes on"


def test_a_full_queue_rejects_requests_until_it_has_room(worker: Worker) -> None:
    from contextlib import ExitStack

    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(worker.admit())
        with pytest.raises(RequestError, match="has 8 requests in progress") as refusal, worker.admit():
            pass
        assert (refusal.value.status, refusal.value.headers) == (503, {"Retry-After": "1"})
        assert worker.refusal() is not None
        assert "pcmcnet_queue_length 8" in worker.metrics.text()
    with worker.admit():
        assert worker.in_flight == 1
    assert worker.in_flight == 0


def test_closing_answers_waiting_requests_and_rejects_new_ones(worker: Worker, slow: Slow) -> None:
    answers = [submit(worker, 1)]
    assert slow.begun.acquire(timeout=60)
    answers.append(submit(worker, 2))
    closing = threading.Thread(target=worker.close)
    closing.start()
    slow.may_go.set()
    closing.join(60)
    assert not closing.is_alive()
    assert [answer.result(0).tolist() for answer in answers] == [[-1], [-2]]
    with pytest.raises(RequestError, match="the server is stopping"), worker.admit():
        pass


def test_a_full_server_returns_503_and_stays_healthy(net: PCMCNet, sets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go = threading.Event(), threading.Event()
    predict = net.predict_log_proba

    def held(data: Any) -> Any:
        begun.set()
        assert may_go.wait(60)
        return predict(data)

    monkeypatch.setattr(net, "predict_log_proba", held, raising=False)
    app = create_app(net, settings=ServeSettings(queue=3))

    async def run() -> tuple[list[httpx.Response], httpx.Response, httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            in_flight = [asyncio.create_task(client.post("/v1/probabilities", json={"sets": sets})) for _ in range(3)]
            while app.state.service.worker.in_flight < 3 or not begun.is_set():
                await asyncio.sleep(0.001)
            refused = await client.post("/v1/probabilities", json={"sets": sets})
            health = await client.get("/health")
            may_go.set()
            return list(await asyncio.gather(*in_flight)), refused, health

    answered, refused, health = asyncio.run(run())
    app.state.service.worker.close()
    assert [answer.status_code for answer in answered] == [200, 200, 200]
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json() == {"error": "the server has 3 requests in progress: try again in a moment."}
    assert health.status_code == 200


def test_a_failing_model_gives_a_500_with_a_message(
    net: PCMCNet, sets: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(data: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(net, "predict_log_proba", broken, raising=False)
    answer = make_client(net).post("/v1/probabilities", json={"sets": sets})
    assert answer.status_code == 500
    assert answer.json() == {"error": "internal error: see the server log."}
    assert answer.headers["x-content-type-options"] == "nosniff"


# -- Jobs --------------------------------------------------------------------------------------------------------------
# The size of a request.


def test_a_set_of_n_alternatives_has_n_squared_ordered_pairs() -> None:
    """Sets of 2, 3 and 1: 4 + 9 + 1."""
    table = {"trip": np.repeat([0, 1, 2], [2, 3, 1]), "price": np.arange(6.0)}
    data = ChoiceData.from_long(table, choice_set="trip", features=["price"])
    assert Job("main", "log_proba", data).pairs == 14
