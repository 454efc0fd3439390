"""The command ``serve``: the workbench in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ecbm.errors import InputError
from ecbm.show.cli.common import AuthorOption, DeviceOption, WorkspaceArgument, say

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Look")(serve)


def serve(
    workspace: WorkspaceArgument,
    port: Annotated[int, typer.Option(help="Where it listens; 0 finds a free port.", min=0, max=65535)] = 8765,
    host: Annotated[
        str, typer.Option(help="The address it listens on; others than this machine need a password.")
    ] = ("127.0.0.1"),
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Another name by which browsers reach it, such as that of a reverse proxy."),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the password that others must give. Or set ECBM_PASSWORD.", show_default=False
        ),
    ] = None,
    trust_header: Annotated[
        str | None,
        typer.Option(
            help="A header in which a reverse proxy says whom it let in. The port must be closed to all others.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="Who labelled what: a table's column, samples.csv:annotator. Shown beside pictures, and a filter.",
            show_default=False,
        ),
    ] = None,
    author: AuthorOption = "",
    device: DeviceOption = None,
) -> None:
    """Open the workbench: a page on which the model is looked at, corrected, and taken back.

    Prints an address that opens one browser, once. Only this machine can reach it, unless --host says otherwise;
    then a password or the header of a reverse proxy is needed, and the traffic is not encrypted without a proxy.
    """
    from ecbm.keep.signature import Signature
    from ecbm.show.serve.running import Place, run_server

    person = str(Signature(author).details()[0].content)
    place = Place(host, port, tuple(name or ()), _password(password_file), trust_header)
    run_server(workspace, place, person=person, device=device, browser=not no_browser, tell=say, by=by)


def _password(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("ECBM_PASSWORD") or None
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read as a password ({error}); give a text file with one line"
        ) from None
    if not text:
        raise InputError(f"{path}: is empty; write the password into it")
    return text
