"""The application: paths, and how questions, refusals and mishaps become answers.

POST /v1/probabilities, /v1/rates, /v1/map, /v1/offer        GET /v1/schema, /v1/example, /v1/examples, /openapi.json
GET /health, /live, /ready, /metrics               GET / and the files of the page
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.serving import openapi
from pcmcnet.serving.middleware import CONTENT_TYPE, Gate, while_wanted
from pcmcnet.serving.request_body import RefusalError
from pcmcnet.serving.service import Service
from pcmcnet.serving.settings import ServeSettings
from pcmcnet.serving.worker import Admission
from pcmcnet.storage import package_version

# -- Page --------------------------------------------------------------------------------------------------------------
# The files of the page, read once when the server starts: a request names one of them or none.


TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
}


class File(NamedTuple):
    """The content of a file, and its media type."""

    content: bytes
    kind: str


def page_files() -> dict[str, File]:
    """Return the files by path, ``/`` for index.html; none where the page is not installed."""
    folder = files("pcmcnet.serving") / "page"
    found = dict(_walk(folder, "/")) if folder.is_dir() else {}
    index = found.pop("/index.html", None)
    return {} if index is None else {"/": index, **found}


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, File]]:
    for entry in folder.iterdir():
        _, dot, suffix = entry.name.rpartition(".")
        if entry.is_dir():
            yield from _walk(entry, f"{path}{entry.name}/")
        elif dot + suffix in TYPES:
            yield path + entry.name, File(entry.read_bytes(), TYPES[dot + suffix])


# -- App ---------------------------------------------------------------------------------------------------------------


Answer = Callable[[Any, Admission], Awaitable[dict[str, Any]]]
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": openapi.Error, "description": what}
    for status, what in {
        400: "The body is not strict JSON.",
        408: "The body did not arrive in time.",
        413: "The body is too large, or holds too many values.",
        415: "The body is not declared as JSON.",
        422: "The question cannot be answered; the message says why.",
        503: "Too much is under way, or the server is stopping: try again.",
        504: "There was no answer in time.",
    }.items()
}
_TOKEN: dict[int | str, dict[str, Any]] = {401: {"model": openapi.Error, "description": "A token is required."}}


def create_app(
    main: ChoiceModel, baseline: ChoiceModel | None = None, settings: ServeSettings | None = None
) -> FastAPI:
    """Make the application that serves a fitted model.

    Parameters
    ----------
    main
        The model.
    baseline
        A second one to compare with, that reads no other columns.
    settings
        Limits and access.

    Returns
    -------
    FastAPI
        An ASGI application; ``app.state.service.worker`` is to be closed where the server runs no lifespan.
    """
    settings = settings or ServeSettings()
    service = Service(main, baseline, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.worker.open()
        yield
        await asyncio.to_thread(service.worker.close, settings.drain)  # what was cut off is told so meanwhile

    app = FastAPI(
        title="pcmcnet",
        version=package_version("pcmcnet"),
        description="Choice probabilities of a fitted model.",
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if settings.token else [],  # for /openapi.json alone
    )
    app.state.service = service
    _add_questions(app, service)
    _add_facts(app, service)
    pages = page_files()
    _add_page(app, pages)
    app.add_exception_handler(RefusalError, _refused)
    app.add_exception_handler(HTTPException, _not_here)
    app.add_middleware(
        Gate,
        settings=settings,
        open_paths={"/", "/health", "/live", "/ready", *pages},
        routes={route.path for route in app.routes if hasattr(route, "path")},
        metrics=service.worker.metrics,
        stopping=lambda: service.worker.stopping,
    )
    return app


def _add_questions(app: FastAPI, service: Service) -> None:
    """Add the paths that ask a model."""
    schemas = openapi.RequestSchemas(service.models, service.settings)

    def add(path: str, answer: Answer, schema: dict[str, Any], response: type, summary: str) -> None:
        async def respond(content: bytes, admission: Admission) -> Response:
            return JSONResponse(await answer(await service.parse(content), admission))

        async def handle(request: Request) -> Response:
            with service.bodies.place() as place:
                content = await place.read(request)
                with service.worker.admit() as admission:
                    return await while_wanted(respond(content, admission), request, service.settings.deadline)

        app.add_api_route(
            path,
            handle,
            methods=["POST"],
            name=path.rpartition("/")[2],
            summary=summary,
            response_model=response,
            responses=_REFUSALS | (_TOKEN if service.settings.token else {}),
            openapi_extra=openapi.request_body(schema),
        )

    about_sets = "Probabilities of the alternatives of some choice sets"
    about_map = "Share of one alternative against another as an alternative moves"
    add("/v1/probabilities", service.probabilities, schemas.probabilities(), openapi.Probabilities, about_sets)
    add("/v1/rates", service.rates, schemas.rates(), openapi.Rates, "Rates between the alternatives of a choice set")
    add("/v1/map", service.map, schemas.map(), openapi.Map, about_map)
    about_offer = "Which of the alternatives to show, for the largest expected revenue or probability of one"
    add("/v1/offer", service.offer, schemas.offer(), openapi.OfferResponse, about_offer)


def _add_facts(app: FastAPI, service: Service) -> None:
    """Add the paths that tell what is served, and how it goes."""
    token = _TOKEN if service.settings.token else {}
    missing: dict[int | str, dict[str, Any]] = {404: {"model": openapi.Error, "description": "There is no example."}}
    turned_away: dict[int | str, dict[str, Any]] = {503: _REFUSALS[503]}
    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/v1/schema", response_model=openapi.About, responses=token, summary="What is served")
    async def schema() -> Response:
        return JSONResponse(service.about)

    @app.get("/v1/example", response_model=openapi.Example, responses=token | missing, summary="A choice set to try")
    async def example() -> Response:
        return JSONResponse(service.shown_examples(1))

    @app.get("/v1/examples", response_model=openapi.Example, responses=token | missing, summary="Choice sets to try")
    async def examples() -> Response:
        return JSONResponse(service.shown_examples())

    @app.get("/health", response_model=openapi.Health, summary="Whether the server answers")
    @app.get("/live", response_model=openapi.Health, summary="Whether the process lives: if not, start it again")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/ready", response_model=openapi.Health, responses=turned_away, summary="Whether questions are taken now")
    async def ready() -> Response:
        if (refusal := service.worker.refusal()) is not None:
            raise refusal
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", response_class=Response, responses=token | text, summary="Counts, for Prometheus")
    async def metrics() -> Response:
        return Response(service.worker.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def _add_page(app: FastAPI, pages: dict[str, File]) -> None:
    """Add the files of the page; where there are none, say where the rest is."""

    def add(path: str, file: File) -> None:
        async def show() -> Response:
            return Response(file.content, headers={"Content-Type": file.kind})

        app.add_api_route(path, show, methods=["GET", "HEAD"], include_in_schema=False)

    for path, file in pages.items():
        add(path, file)
    if not pages:
        about = b'{"schema": "/v1/schema", "example": "/v1/example", "openapi": "/openapi.json"}'
        add("/", File(about, "application/json"))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusalError)
    return JSONResponse({"error": error.message}, error.status, error.headers)


async def _not_here(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: "there is nothing at this path: see /openapi.json", 405: "this path does not take this method"}
    message = what.get(error.status_code, str(error.detail))
    return JSONResponse({"error": f"{message}."}, error.status_code, error.headers)
