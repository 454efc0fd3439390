"""One browser for all tests of the page, and workspaces that are made once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

import ecbm
from ecbm.show.demo_repair import careless
from kit import tabular
from page_kit import Served, Visitor, launch, served

playwright = pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One worker for all of them: they share a browser."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("page"))


@pytest.fixture(scope="session")
def player() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(player: Any) -> Iterator[Any]:
    found = launch(player)
    yield found
    found.close()


@pytest.fixture(scope="session")
def ward_made(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn birds whose small marks one of two annotators has overlooked."""
    data = careless(ecbm.datasets.birds(n=240, seed=3, size=32), 3)
    folder = tmp_path_factory.mktemp("made") / "ward"
    workspace = ecbm.Workspace.create(folder, data, ecbm.Recipe(backbone="convnet", epochs=4, seed=3))
    workspace.train(author="marta", reason="first model")
    # Suspicious labels are looked for once and kept with the workspace.
    running = Served(folder)
    Visitor(browser, running).leave_when_suspicious_labels_are_known()
    running.stop()
    return folder


@pytest.fixture(scope="session")
def table_made(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "clinic"
    ecbm.Workspace.create(folder, tabular(120), ecbm.Recipe(backbone="linear")).train(author="marta")
    return folder


@pytest.fixture(scope="session")
def at_ward(browser: Any, ward_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """For tests that make no version."""
    with served(ward_made, tmp_path_factory.mktemp("ward")) as running:
        yield Visitor(browser, running)


@pytest.fixture(scope="session")
def at_changing_ward(browser: Any, ward_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """For tests that make versions."""
    with served(ward_made, tmp_path_factory.mktemp("changing")) as running:
        yield Visitor(browser, running)


@pytest.fixture
def anna(request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """Anna at the ward, with nothing staged; the page must neither complain nor ask another host."""
    changes = getattr(request.module, "CHANGES_VERSIONS", False)
    visitor: Visitor = request.getfixturevalue("at_changing_ward" if changes else "at_ward")
    visitor.asked.clear()
    visitor.complaints.clear()
    yield visitor
    visitor.nothing_staged()
    outside = [url for url in visitor.asked if not url.startswith((visitor.served.base + "/", "data:", "blob:"))]
    assert outside == []
    assert visitor.complaints == []


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A browser on a loaded machine may draw late: what fails here is tried once more, and a warning says so."""
    if item.path.parent != Path(__file__).parent:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in reports):
        warnings.warn(f"{item.nodeid} failed and is tried once more", stacklevel=1)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
