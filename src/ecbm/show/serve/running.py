"""A server that runs: its socket, its address, its browser, and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

import uvicorn

from ecbm.errors import InputError
from ecbm.show.serve.app import make_app
from ecbm.show.serve.security import LOOPBACK, Doorkeeper, is_loopback
from ecbm.show.serve.state import Bench

__all__ = ["Place", "run_server"]

_ANY = ("0.0.0.0", "::", "")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a server listens, by which other names it is asked, and how people from elsewhere are let in."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    password: str | None = None
    trusted_header: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names on the list that the Host header is compared with."""
        own = () if self.host in _ANY else (self.host,)
        return tuple(dict.fromkeys([*LOOPBACK, *own, *self.names]))


def _bound(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    # Named as TCP, because asyncio sends at once (TCP_NODELAY) only on sockets that say so: an answer in two parts
    # would otherwise wait for the browser's delayed acknowledgement, 40 ms.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((place.host, place.port))
    except OSError as error:
        opened.close()
        hint = "choose another with --port, or --port 0 for a free one" if place.port else "check --host"
        raise InputError(f"cannot listen on {place.host}, port {place.port} ({error.strerror}); {hint}") from None
    return opened


def run_server(
    workspace: Path,
    place: Place,
    *,
    person: str,
    device: str | None = None,
    browser: bool = True,
    tell: Callable[..., None] = print,
    by: str | None = None,
) -> None:
    """Serve a workspace until Ctrl-C.

    Parameters
    ----------
    workspace
        The folder.
    place
        Where to listen.
    person
        Who is at a browser that has not said so.
    device
        Where networks run.
    browser
        Open the address in a browser.
    tell
        Prints a line.
    by
        Who labelled what: a file and a column of it.
    """
    everybody = not is_loopback(place.host)
    if everybody and not (place.password or place.trusted_header):
        raise InputError(
            f"--host {place.host}: other machines could reach this; give a password (--password-file FILE or "
            "ECBM_PASSWORD), or the header of a reverse proxy that lets people in (--trust-header NAME)"
        )
    bench = Bench(str(workspace), person=person, device=device, by=by)
    with contextlib.closing(_bound(place)) as opened:
        port = int(opened.getsockname()[1])
        door = Doorkeeper(
            port, place.hosts, person=person, password=place.password, trusted_header=place.trusted_header,
            folder=bench.folder,
        )  # fmt: skip
        shown = "127.0.0.1" if place.host in _ANY else place.host
        shown = f"[{shown}]" if ":" in shown else shown
        address = f"http://{shown}:{port}/enter?token={door.new_token()}"
        config = uvicorn.Config(
            make_app(bench, door),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=3,
            server_header=False,
        )
        server = _Server(config, lambda: _ready(address, everybody, place, browser, tell))
        with contextlib.suppress(KeyboardInterrupt):  # how a server is stopped
            server.run([opened])
    if not bench.ended:
        # A computation that cannot be interrupted: the interpreter must not be taken down around it. Nothing is
        # being written, for a writer was waited for.
        sys.stdout.flush()
        os._exit(0)


def _ready(address: str, everybody: bool, place: Place, browser: bool, tell: Callable[..., None]) -> None:
    tell(f"open {address}")
    if everybody:
        how = "with the password" if place.password else f"through the proxy that sets {place.trusted_header}"
        tell(f"others get in {how}; without a proxy that encrypts, the traffic can be read on the way")
    tell("Ctrl-C stops it; what is staged is kept")
    if browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


class _Server(uvicorn.Server):
    """Says when it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell_ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell_ready()
