"""The report of a version as a page to read and print."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from fastapi.responses import HTMLResponse

if TYPE_CHECKING:
    from ecbm.show.serve.state import Bench

__all__ = ["Reports", "report_page"]

# A document of its own: its style sheet is inside, no script runs in it, and it loads nothing.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox allow-modals"
)
_MOST = 4


class Reports:
    """The last reports; each is the same until somebody adds to the ledger."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], str] = OrderedDict()

    def page(self, bench: Bench, number: int) -> str:
        """The report as HTML."""
        from ecbm.show.report.audit import kept_audit
        from ecbm.show.report.content import gather
        from ecbm.show.report.layout import page_of

        key = number, bench.records.ledger_hash()
        if key not in self._kept:
            workspace = bench.another_workspace()
            self._kept[key] = page_of(gather(workspace, number, kept_audit(workspace, number))).html()
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return self._kept[key]

    def forget(self) -> None:
        """Drop all of them, after an erasure."""
        self._kept.clear()


def report_page(bench: Bench, number: int) -> HTMLResponse:
    """The report of a version."""
    return HTMLResponse(bench.reports.page(bench, number), headers={"Content-Security-Policy": _POLICY})
