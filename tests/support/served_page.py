"""The page of a served model in a real browser: servers, and values read from the page and the server."""

import base64
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from browser import PATIENCE

playwright: Any = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install -c constraints.txt playwright"
)
uvicorn: Any = pytest.importorskip(
    "uvicorn", reason="needs the extra serve: pip install -c constraints.txt -e '.[serve]'"
)
from pcmcnet.serving.app import create_app  # noqa: E402  # needs the extra
from pcmcnet.serving.server import bind, server_url  # noqa: E402
from pcmcnet.serving.settings import ServeSettings  # noqa: E402

expect = playwright.expect
expect.set_options(timeout=PATIENCE)


@contextmanager
def serving(*models: Any, table: Path | None = None, **settings: Any) -> Iterator[str]:
    """Serve models on a free port; yield the address."""
    app = create_app(*models, settings=ServeSettings(**settings), table=table)
    with bind("127.0.0.1", 0) as listening:
        config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield server_url(listening) + "/"
        finally:
            server.should_exit = True
            thread.join(timeout=20)


class Seen(NamedTuple):
    """Errors that must not occur on a page, and the HTTP statuses that a test expects."""

    faults: list[str]
    hosts: set[str]
    refusals: set[int]


def watch(page: Any, seen: Seen) -> None:
    """Record every error, except for requests that the page itself cancelled."""

    def console(message: Any) -> None:
        status = re.search(r"status of (\d+)", message.text)
        if message.type in ("error", "warning") and not (status and int(status[1]) in seen.refusals):
            seen.faults.append(f"console: {message.text}")

    def failed(request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":
            seen.faults.append(f"request: {request.url} {request.failure}")

    page.on("console", console)
    page.on("pageerror", lambda error: seen.faults.append(f"exception: {error}"))
    page.on("requestfailed", failed)
    page.on("request", lambda request: seen.hosts.add(re.sub(r"^\w+://([^/:]+).*", r"\1", request.url, flags=re.S)))


def settled(page: Any) -> Any:
    """Wait until no request is in progress."""
    expect(page.locator("#table tbody tr").first).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    return page


def with_pictures(page: Any) -> Any:
    """Open the preference map and the flows, and wait for them."""
    settled(page).get_by_text("Context effects: preference map").click()
    return settled(page)


def probabilities(page: Any, kind: str = "main") -> list[float]:
    shown = settled(page).locator(f".bar.{kind}").evaluate_all("bars => bars.map(bar => Number(bar.dataset.p))")
    return list(shown)


def cell(page: Any, column: str, name: str) -> Any:
    return page.get_by_label(f"{column} of {name}", exact=True)


def get(address: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def link(address: str, *, take: int) -> str:
    """Return the address of the page with the first few alternatives of the example."""
    schema, example = get(address, "v1/schema"), get(address, "v1/example")["sets"][0]
    features = [c["name"] for c in schema["columns"] if c["role"] != "individual"]
    state = {
        "v": 1,
        "columns": [c["name"] for c in schema["columns"]],
        "individual": [example["individual"][c["name"]] for c in schema["columns"] if c["role"] == "individual"],
        "rows": [["ABCDE"[k], None, *map(example["alternatives"][k].get, features)] for k in range(take)],
        "map": [-1, -1, -1, None, None, "main", "three"],
    }
    return address + "#" + base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


def answer(address: str, take: int | None = None, **changes: Any) -> list[float]:
    """Request probabilities of the example, or a part of it, with other values for its first alternative."""
    example = get(address, "v1/example")["sets"][0]
    first, *rest = example["alternatives"][:take]
    sets = [{"individual": example["individual"], "alternatives": [{**first, **changes}, *rest]}]
    response = get(address, "v1/probabilities", {"sets": sets, "model": "main"})
    return list(response["sets"][0]["probabilities"])
