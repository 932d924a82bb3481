"""Models of a small table of trips, and clients of an application in this process."""

import asyncio
import base64
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import numpy as np
import pytest

import choice_tables
from browser import chromium
from choice_tables import picture
from pcmcnet.data import ChoiceData
from pcmcnet.datasets import airline
from pcmcnet.models import MNL, PCMCNet
from pcmcnet.serving.app import create_app
from pcmcnet.serving.settings import ServeSettings

ROLES = {**choice_tables.ROLES, "weight": None}


class Client:
    """Sends requests to an application in this process, one at a time."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.runner = asyncio.Runner()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.runner.run(self.http.get(path, **options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.runner.run(self.http.post(path, **options))

    def close(self) -> None:
        self.runner.run(self.http.aclose())
        self.runner.close()
        self.app.state.service.worker.close()


def trips(sets: int = 60, seed: int = 0) -> dict[str, Any]:
    """Return trips in which cheap modes are chosen more often."""
    return choice_tables.trips(sets, seed, slope=-1 / 8)


def requests_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sets of a table as a client would send them."""
    sets = []
    for trip in np.unique(table["trip"]):
        rows = np.flatnonzero(table["trip"] == trip)
        columns = ("mode", "price", "minutes", "comfort", "open")
        alternatives = [{name: table[name][row].item() for name in columns} for row in rows]
        individual = {name: table[name][rows[0]].item() for name in ("income", "purpose")}
        sets.append({"individual": individual, "alternatives": alternatives})
    return sets


@pytest.fixture(autouse=True)
def search_in_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for offers in a thread, because a process takes seconds to start."""
    monkeypatch.setattr("pcmcnet.serving.offer_search.can_start_interpreter", lambda: False)


@pytest.fixture(scope="session")
def make_trips() -> Callable[..., dict[str, Any]]:
    return trips


@pytest.fixture(scope="session")
def as_requests() -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    return requests_of


@pytest.fixture(scope="session")
def net() -> PCMCNet:
    data = ChoiceData.from_long(trips(), **ROLES)
    model: PCMCNet = PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0, batch_size=16).fit(data, progress=False)
    return model


@pytest.fixture(scope="session")
def logit() -> MNL:
    model: MNL = MNL(formula="price + minutes").fit(ChoiceData.from_long(trips(), **ROLES), progress=False)
    return model


@pytest.fixture(scope="module")
def make_client() -> Iterator[Callable[..., Client]]:
    """Return a function that makes clients; all are closed at the end."""
    opened: list[Client] = []

    def make(*models: Any, **settings: Any) -> Client:
        client = Client(create_app(*models, settings=ServeSettings(**settings)))
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.close()


@pytest.fixture(scope="session")
def one_client() -> Callable[..., closing[Client]]:
    """Return a context manager with a client."""
    return lambda *models, **options: closing(Client(create_app(*models, **options)))


@pytest.fixture
def sets() -> list[dict[str, Any]]:
    """Return sets that were not in training. Tests may change them."""
    return requests_of(trips(8, seed=1))


# -- columns of contents ------------------------------------------------------------------------------------------

KINDS = {"photo": "image", "about": "text", "taste": "vector", "services": "multi", "at": "datetime"}


def rooms(sets: int = 40, seed: int = 0, n: int = 3) -> dict[str, Any]:
    """Return rooms with a column of each kind that a request may have."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(n, size=sets)
    return {
        "search": np.repeat(np.arange(sets), n),
        "booked": (np.arange(n) == chosen[:, None]).astype(int).ravel(),
        "price": rng.uniform(50, 200, sets * n),
        "stars": rng.uniform(1, 5, sets * n),
        "photo": [picture(int(light)) for light in rng.integers(255, size=sets * n)],
        "about": [["A quiet room", "In a lively street"][k] for k in rng.integers(2, size=sets * n)],
        "taste": rng.normal(size=(sets * n, 4)).astype(np.float32),
        "services": [[["wifi"], ["pool", "wifi"], []][k] for k in rng.integers(3, size=sets * n)],
        "at": np.repeat(np.datetime64("2024-03-01T08:00", "s") + rng.integers(10**6, size=sets), n),
    }


ROOM_ROLES: dict[str, Any] = {
    "choice_set": "search",
    "chosen": "booked",
    "features": ["price", "stars", "photo", "about", "taste", "services"],
    "individual": ["at"],
    "kinds": KINDS,
}


@pytest.fixture(scope="session")
def draw() -> Callable[..., bytes]:
    return picture


@pytest.fixture(scope="session")
def rich() -> PCMCNet:
    """Return a network that reads pictures, texts, vectors, lists and instants."""
    data = ChoiceData.from_long(rooms(), **ROOM_ROLES)
    model: PCMCNet = PCMCNet(hidden=(8,), epochs=2, weight_decay=0.0, batch_size=16).fit(data, progress=False)
    return model


@pytest.fixture
def room_table() -> dict[str, Any]:
    """Return rooms that were not in training."""
    return rooms(5, seed=1)


@pytest.fixture
def room_sets(room_table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the same rooms as a client would send them. Tests may change them."""
    sets = []
    for k in range(0, len(room_table["search"]), 3):
        alternatives = [
            {
                **{name: float(room_table[name][row]) for name in ("price", "stars")},
                "photo": base64.b64encode(room_table["photo"][row]).decode(),
                "about": room_table["about"][row],
                "taste": room_table["taste"][row].tolist(),
                "services": room_table["services"][row],
            }
            for row in range(k, k + 3)
        ]
        sets.append({"individual": {"at": str(room_table["at"][k])}, "alternatives": alternatives})
    return sets


# -- the page in a browser ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models() -> tuple[PCMCNet, MNL]:
    data = ChoiceData.from_long(airline.simulate(400, seed=0), **airline.ROLES)
    net = PCMCNet(hidden=(16, 16), epochs=2, weight_decay=2.0, utility="none").fit(data, progress=False)
    return net, MNL(formula="totalPrice + totalTripDurationMinutes + nFlights").fit(data, progress=False)


@pytest.fixture(scope="module")
def address(models: tuple[PCMCNet, MNL]) -> Iterator[str]:
    from served_page import serving

    with serving(*models) as where:
        yield where


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open pages as a new visitor with reduced motion. Check at the end that there were no errors or foreign hosts."""
    from served_page import PATIENCE, Seen, watch

    seen, contexts = Seen([], set(), set()), []

    def open_(url: str, *, width: int = 1280, height: int = 900, refusals: tuple[int, ...] = (), **options: Any) -> Any:
        options = {"reduced_motion": "reduce", **options}  # transitions take time
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        seen.refusals.update(refusals)
        watch(page, seen)
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert seen.faults == []
    assert seen.hosts == {"127.0.0.1"}
