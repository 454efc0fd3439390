"""The page's own files: only those that lie in the folder ``page``, by name."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse

from ecbm.show.serve.state import refuse_unknown

__all__ = ["FOLDER", "STORIES", "router"]

router = APIRouter()
FOLDER = Path(__file__).parent / "page"
# Colours and sizes, the same file for the page, the reports and the demo.
TOKENS = Path(__file__).parent.parent / "assets" / "tokens.css"
STORIES = (
    "",
    "overview",
    "queue",
    "pictures",
    "sample",
    "concepts",
    "preview",
    "history",
    "forget",
    "audit",
    "components",
)
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
_read: dict[str, tuple[int, bytes, str]] = {}


def _files() -> dict[str, Path]:
    """Every file of the page by its name below the folder: no other name leads anywhere."""
    own = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.is_file()}
    return {**own, "tokens.css": TOKENS}


def _answer(request: Request, name: str) -> Response:
    path = _files().get(name)
    if path is None:
        raise refuse_unknown("file of the page called", name)
    changed = path.stat().st_mtime_ns
    if name not in _read or _read[name][0] != changed:
        content = path.read_bytes()
        _read[name] = changed, content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    _, content, tag = _read[name]
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in [one.strip() for one in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    kind = _KINDS.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return Response(content, headers={**headers, "Content-Type": kind + charset})


@router.get("/page/{name:path}", response_class=Response, responses={304: {"description": "Not changed."}})
def page_file(request: Request, name: Annotated[str, PathParameter(max_length=300)]) -> Response:
    """A file of the page."""
    return _answer(request, name)


def index(request: Request) -> Response:
    """The page."""
    return _answer(request, "index.html")


for _story in STORIES:
    router.add_api_route(
        f"/{_story}", index, response_class=HTMLResponse, name=f"index {_story}", include_in_schema=False
    )
