"""The application: routes, refusals and middleware put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from ecbm._version import __version__
from ecbm.errors import EcbmError
from ecbm.show.serve import (
    answering,
    behind,
    concepts,
    forget,
    history,
    learning,
    moving,
    overview,
    pictures,
    previewing,
    questions,
    sample,
    session,
    static,
)
from ecbm.show.serve.changes import MovedOn
from ecbm.show.serve.schemas import Problem
from ecbm.show.serve.security import Doorkeeper, Guard, refused
from ecbm.show.serve.state import Bench, RefusedError, problem_of

__all__ = ["make_app"]

_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "This browser has not been let in."},
    403: {"model": Problem, "description": "Not from the workbench's own page."},
    404: {"model": Problem, "description": "There is nothing of this name."},
    409: {"model": MovedOn | Problem, "description": "The model moved on, is busy, or there is none."},
    413: {"model": Problem, "description": "Too large."},
    422: {"model": Problem, "description": "Wrong input."},
    503: {"model": Problem, "description": "The model is still being read."},
    507: {"model": Problem, "description": "The disk is full."},
}
_ROUTERS = (
    session, static, overview, pictures, questions, learning, sample, behind, concepts, answering, previewing,
    moving, history, forget,
)  # fmt: skip


def make_app(bench: Bench, door: Doorkeeper) -> FastAPI:
    """The workbench of one workspace as an ASGI application.

    Parameters
    ----------
    bench
        The workspace and everything about it; started and stopped with the application.
    door
        Who may ask.
    """

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        bench.start()
        try:
            yield
        finally:
            bench.stop()

    # The framework's documentation pages load scripts from another host: off.
    app = FastAPI(
        title="ecbm workbench",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        responses=_REFUSALS,
    )
    app.state.bench, app.state.door = bench, door
    for family in _ROUTERS:
        app.include_router(family.router)
    _tell_refusals(app)
    _describe_refusals(app)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)
    app.add_middleware(Guard, door=door)
    return app


def _describe_refusals(app: FastAPI) -> None:
    """A refusal is JSON, or a page for who opened an address, whatever the route answers otherwise."""
    described = app.openapi()
    for operations in described["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    told: dict[str, Any] = next(iter(answer.get("content", {}).values()), {})
                    answer["content"] = {"application/json": told, "text/html": {"schema": {"type": "string"}}}


def _tell_refusals(app: FastAPI) -> None:
    @app.exception_handler(RefusedError)
    async def refuse(request: Request, error: RefusedError) -> Response:
        answer = refused(request, error.status, error.problem)
        if error.status == 503:
            answer.headers["Retry-After"] = "1"
        return answer

    @app.exception_handler(EcbmError)
    @app.exception_handler(OSError)
    async def explain(request: Request, error: Exception) -> Response:
        return refused(request, *problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        text = f"{where}: {first['msg']}" if where else str(first["msg"])
        problem = Problem(
            kind="input", what=text.encode("utf-8", "replace").decode()[:500], todo="Send it as /openapi.json says."
        )
        return JSONResponse(problem.model_dump(), 422)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        kind = "unknown" if error.status_code == 404 else "input"
        problem = Problem(kind=kind, what=f"{error.detail}.", todo="Go back to the first page.")  # type: ignore[arg-type]
        answer = refused(request, error.status_code, problem)
        answer.headers.update(error.headers or {})
        return answer
