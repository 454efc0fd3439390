"""The report of a version as a page to read and print: what was done, by whom, and what is proven."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fastapi.responses import HTMLResponse

from ecbm.keep.explain import explain

if TYPE_CHECKING:
    from ecbm.show.serve.state import Bench

__all__ = ["report_page"]

# A document of its own: no script runs in it, and it loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline' 'self'; img-src data:; frame-ancestors 'self'; sandbox"


def report_page(bench: Bench, number: int) -> HTMLResponse:
    """The report of a version."""
    version = bench.records.version(number)
    item = bench.records.described([version])[0]
    lines = "".join(f"<p>{escape(line)}</p>" for line in explain(item, bench.head.version) if line)
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Version {number}</title><link rel=stylesheet href=/page/refused.css>"
        f"<main><h1>{escape(bench.name)}, version {number}</h1>{lines}</main></html>"
    )
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})
