"""The ASGI application: its paths, and the responses to queries and errors.

POST /v1/probabilities, /v1/rates, /v1/map, /v1/offer, /v1/market, /v1/market/set
GET /v1/schema, /v1/example, /v1/examples, /openapi.json, /health, /live, /ready, /metrics, / and the files of the page
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving import openapi
from pcmcnet.serving.middleware import CONTENT_TYPE, GateMiddleware, run_until_deadline
from pcmcnet.serving.request_body import RequestError
from pcmcnet.serving.service import Service
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import Admission
from pcmcnet.storage import package_version

# -- Page --------------------------------------------------------------------------------------------------------------
# The files of the page are read once, when the server starts; a request can only name one of them.


MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
}


class PageFile(NamedTuple):
    """The content of a file and its media type."""

    content: bytes
    kind: str


def page_files() -> dict[str, PageFile]:
    """Return the files of the page by URL path, or an empty dict if the page is not installed."""
    folder = files("pcmcnet.serving") / "page"
    by_path = dict(_files_under(folder, "/")) if folder.is_dir() else {}
    index = by_path.pop("/index.html", None)
    return {} if index is None else {"/": index, **by_path}


def _files_under(folder: Traversable, path: str) -> Iterator[tuple[str, PageFile]]:
    for entry in folder.iterdir():
        _, dot, suffix = entry.name.rpartition(".")
        if entry.is_dir():
            yield from _files_under(entry, f"{path}{entry.name}/")
        elif dot + suffix in MEDIA_TYPES:
            yield path + entry.name, PageFile(entry.read_bytes(), MEDIA_TYPES[dot + suffix])


# -- App ---------------------------------------------------------------------------------------------------------------


QueryHandler = Callable[[Any, Admission], Awaitable[dict[str, Any]]]
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": openapi.Error, "description": description}
    for status, description in {
        400: "The body is not strict JSON.",
        408: "The body did not arrive in time.",
        413: "The body is too large, or has too many values.",
        415: "The body is not declared as JSON.",
        422: "The query is not valid; the message gives the reason.",
        503: "Too many requests are in progress, or the server is stopping: try again.",
        504: "The request timed out.",
    }.items()
}
_TOKEN: dict[int | str, dict[str, Any]] = {401: {"model": openapi.Error, "description": "A token is required."}}


def create_app(
    main: ChoiceModel,
    baseline: ChoiceModel | None = None,
    settings: ServeSettings | None = None,
    table: str | Path | None = None,
) -> FastAPI:
    """Return the ASGI application that serves a fitted model.

    Parameters
    ----------
    main
        The model to serve.
    baseline
        Optional second model to compare with, whose columns must be among those of ``main``.
    settings
        Request limits and access control (default :class:`~pcmcnet.serving.settings.ServeSettings`).
    table
        Optional table of choice sets that represent the market, for the page and for ``/v1/market``.

    Returns
    -------
    FastAPI
        An ASGI application. If the server does not run lifespan events, close ``app.state.service.worker`` yourself.

    Raises
    ------
    ConfigError
        If the baseline reads a column that ``main`` does not read, a model has an outside option, or the table is too
        large.
    """
    settings = settings or ServeSettings()
    service = Service(main, baseline, settings, table)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.worker.open()
        yield
        await asyncio.to_thread(service.worker.close, settings.drain)  # cancelled requests get a response meanwhile

    app = FastAPI(
        title="pcmcnet",
        version=package_version("pcmcnet"),
        description="Choice probabilities of a fitted model.",
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))]
        if settings.token
        else [],  # documents the token in /openapi.json
    )
    app.state.service = service
    _add_queries(app, service)
    _add_information(app, service)
    pages = page_files()
    _add_page(app, pages)
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(
        GateMiddleware,
        settings=settings,
        open_paths={"/", "/health", "/live", "/ready", *pages},
        routes={route.path for route in app.routes if hasattr(route, "path")},
        metrics=service.worker.metrics,
        stopping=lambda: service.worker.stopping,
    )
    return app


def _add_queries(app: FastAPI, service: Service) -> None:
    """Add the paths that query a model."""
    schemas = openapi.RequestSchemas(service.models, service.settings)

    settings = service.settings

    def add(
        path: str,
        handler: QueryHandler,
        schema: dict[str, Any],
        response: type,
        summary: str,
        most: int | None = None,
    ) -> None:
        async def respond(content: bytes, admission: Admission) -> Response:
            result = await handler(await service.parse(content), admission)
            return Response(await service.render(result), media_type="application/json")

        async def handle(request: Request) -> Response:
            with service.bodies.slot() as slot:
                content = await slot.read(request, most)
                with service.worker.admit() as admission:
                    return await run_until_deadline(respond(content, admission), request, service.settings.deadline)

        app.add_api_route(
            path,
            handle,
            methods=["POST"],
            name=path.rpartition("/")[2],
            summary=summary,
            response_model=response,
            responses=_ERRORS | (_TOKEN if service.settings.token else {}),
            openapi_extra=openapi.request_body(schema),
        )

    about_sets = "Probabilities of the alternatives of choice sets"
    about_map = "Share of one alternative against another as two features of an alternative vary"
    add("/v1/probabilities", service.probabilities, schemas.probabilities(), openapi.Probabilities, about_sets)
    add("/v1/rates", service.rates, schemas.rates(), openapi.Rates, "Rates between the alternatives of a choice set")
    add("/v1/map", service.map, schemas.map(), openapi.Map, about_map)
    about_offer = (
        "The alternatives to show for the largest expected revenue, or for the largest probability of one alternative"
    )
    add("/v1/offer", service.offer, schemas.offer(), openapi.OfferResponse, about_offer)
    about_market = "Shares, volumes, revenue and margin over many choice sets, before and after changes"
    most = settings.max_market_bytes
    add("/v1/market", service.market, schemas.market(), openapi.Market, about_market, most)
    about_set = "One choice set of a market, before and after changes"
    add("/v1/market/set", service.market_set, schemas.market_set(), openapi.MarketSet, about_set, most)


def _add_information(app: FastAPI, service: Service) -> None:
    """Add the paths that describe the served models and the state of the server."""
    token = _TOKEN if service.settings.token else {}
    missing: dict[int | str, dict[str, Any]] = {404: {"model": openapi.Error, "description": "There is no example."}}
    busy: dict[int | str, dict[str, Any]] = {503: _ERRORS[503]}
    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get(
        "/v1/schema",
        response_model=openapi.About,
        responses=token,
        summary="The served models and the limits on requests",
    )
    async def schema() -> Response:
        return JSONResponse(service.about)

    @app.get("/v1/example", response_model=openapi.Example, responses=token | missing, summary="An example choice set")
    async def example() -> Response:
        return JSONResponse(service.example_request(1))

    @app.get("/v1/examples", response_model=openapi.Example, responses=token | missing, summary="Choice sets to try")
    async def examples() -> Response:
        return JSONResponse(service.example_request())

    @app.get("/health", response_model=openapi.Health, summary="Health: whether the server responds")
    @app.get("/live", response_model=openapi.Health, summary="Liveness: if this check fails, restart the process")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get(
        "/ready", response_model=openapi.Health, responses=busy, summary="Readiness: whether requests are accepted now"
    )
    async def ready() -> Response:
        if (refusal := service.worker.refusal()) is not None:
            raise refusal
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", response_class=Response, responses=token | text, summary="Metrics for Prometheus")
    async def metrics() -> Response:
        return Response(service.worker.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def _add_page(app: FastAPI, pages: dict[str, PageFile]) -> None:
    """Add the files of the page. If there is no page, ``/`` lists the other paths."""

    def add(path: str, file: PageFile) -> None:
        async def show() -> Response:
            return Response(file.content, headers={"Content-Type": file.kind})

        app.add_api_route(path, show, methods=["GET", "HEAD"], include_in_schema=False)

    for path, file in pages.items():
        add(path, file)
    if not pages:
        about = b'{"schema": "/v1/schema", "example": "/v1/example", "openapi": "/openapi.json"}'
        add("/", PageFile(about, "application/json"))


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse({"error": error.message}, error.status, error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: "unknown path: see /openapi.json", 405: "this path does not support this method"}
    message = messages.get(error.status_code, str(error.detail))
    return JSONResponse({"error": f"{message}."}, error.status_code, error.headers)
