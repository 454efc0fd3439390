"""Who may ask: the Host list, the cookie, the Origin of changes, limits, and the headers of every answer.

A page on another origin can make a browser send requests to this machine, and a name that its owner rebinds to
127.0.0.1 even reads the answers. So the Host header is compared with a list (port stripped), every change must come
from an Origin on that list, and nothing is answered without a cookie that only the opened address gives.
"""

from __future__ import annotations

import dataclasses
import hmac
import secrets
import threading
import time
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ecbm.keep.sessions import LIFE_SECONDS, KeptSession, keep_sessions, read_sessions, session_digest, session_key
from ecbm.show.serve.schemas import Problem

__all__ = ["LOOPBACK", "Doorkeeper", "Guard", "Session", "host_of", "is_loopback", "refused"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# The largest body that is taken: a CSV of labels.
MOST_BYTES = 20_000_000
_MOST_SESSIONS = 1000
_TOKEN_SECONDS = 7 * 24 * 3600.0
_GUESSES_A_MINUTE = 10


def host_of(header: str) -> str:
    """The name in a Host header or an origin's place, without port and brackets.

    Examples
    --------
    >>> host_of("localhost:8080"), host_of("[::1]:80"), host_of("EVIL.example")
    ('localhost', '::1', 'evil.example')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    return host in LOOPBACK or host.startswith("127.")


@dataclasses.dataclass
class Session:
    """One browser. The person is who it says it is: all of them may do the same here."""

    person: str
    opened: float = 0.0


class Doorkeeper:
    """One-time tokens, sessions, and the password or the header of a reverse proxy.

    Parameters
    ----------
    port
        Where the server listens; part of the cookie's name, because cookies do not know ports.
    hosts
        Names by which it may be asked.
    person
        Who a new browser is taken for until it says otherwise.
    password
        Asked for where there is no token; ``None``: only tokens open.
    trusted_header
        A header that a reverse proxy in front sets to the name of the person it has let in.
    folder
        The workspace, where sessions are kept: a server that is started again goes on with them. ``None``: they
        end with the process.
    """

    def __init__(
        self,
        port: int,
        hosts: Iterable[str] = LOOPBACK,
        *,
        person: str,
        password: str | None = None,
        trusted_header: str | None = None,
        folder: Path | None = None,
    ) -> None:
        self.port, self.person, self._folder = port, person, folder
        self.hosts = frozenset(name.lower() for name in hosts)
        self.password, self.trusted_header = password, trusted_header
        self.cookie = f"ecbm-{port}"
        self._tokens: dict[str, float] = {}
        self._key = session_key(folder, password) if folder is not None else b""
        kept = read_sessions(folder) if folder is not None else []
        self._sessions = {one.digest: Session(one.person, one.opened) for one in kept if one.port == port}
        """By the digest of their cookie."""
        self._proxied: dict[str, Session] = {}
        self._guesses: list[float] = []
        self._lock = threading.Lock()

    def new_token(self) -> str:
        """A token that opens one browser, once, within a week."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[token] = time.monotonic() + _TOKEN_SECONDS
        return token

    def exchange(self, token: str) -> str | None:
        """The session of a token, which is used up; ``None`` for one that is not, or no longer, valid."""
        with self._lock:
            given = token.encode("utf-8", "surrogatepass")
            found = next((known for known in self._tokens if hmac.compare_digest(known.encode(), given)), None)
            if found is None or self._tokens.pop(found) < time.monotonic():
                return None
            return self._open()

    def guess(self, password: str) -> str | None:
        """The session for a password; ``None`` if it is wrong, or was guessed too often in the last minute."""
        with self._lock:
            start = time.monotonic() - 60
            self._guesses = [moment for moment in self._guesses if moment > start]
            if self.password is None or len(self._guesses) >= _GUESSES_A_MINUTE:
                return None
            if not hmac.compare_digest(self.password.encode(), password.encode("utf-8", "surrogatepass")):
                self._guesses.append(time.monotonic())
                return None
            return self._open()

    def _open(self) -> str:
        if len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda digest: self._sessions[digest].opened)]
        cookie = secrets.token_urlsafe(32)
        self._sessions[session_digest(self._key, cookie)] = Session(self.person, time.time())
        self._keep()
        return cookie

    def _keep(self) -> None:
        if self._folder is not None:
            known = list(self._sessions.items())
            kept = [KeptSession(digest, self.port, one.person, one.opened) for digest, one in known]
            keep_sessions(self._folder, self.port, kept)

    def rename(self, session: Session, person: str) -> None:
        """Somebody at a browser says who they are."""
        with self._lock:
            session.person = person
            self._keep()

    def session(self, headers: Headers) -> Session | None:
        """The session that a request's headers prove."""
        if self.trusted_header is not None:
            named = headers.get(self.trusted_header, "").strip()
            if named:
                return self._proxied.setdefault(named, Session(named[:100]))
            if self.password is None:
                return None
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        found = self._sessions.get(session_digest(self._key, cookie)) if cookie else None
        return found if found is not None and time.time() - found.opened < LIFE_SECONDS else None

    def set_cookie(self, response: Response, session: str) -> None:
        """Give a browser its session."""
        response.set_cookie(
            self.cookie, session, max_age=int(LIFE_SECONDS), httponly=True, samesite="strict", path="/"
        )

    def knows_host(self, header: str) -> bool:
        return host_of(header) in self.hosts if header else False

    def knows_origin(self, origin: str) -> bool:
        """Whether a change may come from this origin: a page that this server (or the proxy before it) has sent."""
        try:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or (parts.hostname or "") not in self.hosts:
                return False
            # Another program on this machine may serve pages on another port. A proxy is on the usual ones.
            return parts.port == self.port or (parts.port is None and not is_loopback(parts.hostname or ""))
        except ValueError:
            return False


def refused(request: Request, status: int, problem: Problem) -> Response:
    """A refusal: JSON for the page's own requests, a page for somebody who opened an address."""
    if "text/html" not in request.headers.get("accept", "") or request.url.path.startswith("/api/"):
        return JSONResponse(problem.model_dump(), status)
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>Not opened</title><link rel=stylesheet href=/page/refused.css><main>"
        f"<h1>{escape(problem.what)}</h1><p>{escape(problem.todo)}</p></main></html>"
    )
    return HTMLResponse(page, status)


_NO_HOST = Problem(
    kind="not_allowed",
    what="This name does not belong to the workbench.",
    todo="Open the address that 'ecbm serve' has printed. Behind a reverse proxy, start it with --name NAME.",
)
_NO_ORIGIN = Problem(
    kind="not_allowed",
    what="Another page tried to change something here, and was refused.",
    todo="Changes are taken from the workbench's own page alone. Open the address that 'ecbm serve' has printed.",
)
_NO_COOKIE = Problem(
    kind="not_allowed",
    what="This browser has not been let in.",
    todo="Open the address that 'ecbm serve' has printed; each one opens one browser, once. A browser that is in "
    "can make another address.",
)
_TOO_LARGE = Problem(
    kind="too_large",
    what="This is larger than the workbench takes.",
    todo=f"Send at most {MOST_BYTES // 10**6} MB.",
)


class Guard:
    """Refuses before anything else happens, and puts the protective headers on every answer."""

    def __init__(self, app: ASGIApp, door: Doorkeeper) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refusal(request)
        if answer is not None:
            await answer(scope, receive, send_safely)
            return
        scope.setdefault("state", {})["session"] = self.door.session(request.headers)
        taken = 0

        async def receive_some() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_BYTES:
                raise TooLargeError
            return message

        try:
            await self.app(scope, receive_some, send_safely)
        except TooLargeError:
            await refused(request, 413, _TOO_LARGE)(scope, receive, send_safely)

    def _refusal(self, request: Request) -> Response | None:
        headers, path = request.headers, request.url.path
        if not self.door.knows_host(headers.get("host", "")):
            return refused(request, 403, _NO_HOST)
        if request.method not in ("GET", "HEAD"):
            origin = headers.get("origin", "")
            if not self.door.knows_origin(origin) or headers.get("sec-fetch-site", "same-origin") != "same-origin":
                return refused(request, 403, _NO_ORIGIN)
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                return refused(request, 413, _TOO_LARGE)
        open_to_all = path == "/enter" or path == "/page/refused.css"
        if not open_to_all and self.door.session(headers) is None:
            return refused(request, 401, _NO_COOKIE)
        return None


class TooLargeError(Exception):
    """A body went on beyond what is taken."""
