"""Who may ask the workbench: tokens, cookies, names, origins, sizes, and what every answer forbids."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from ecbm.show.serve.security import Doorkeeper, host_of
from kit import in_own_thread
from serve_kit import ADDRESS, Workbench


def test_nothing_is_answered_without_the_cookie(birds: Workbench) -> None:
    stranger = birds.stranger()
    paths = ["/", "/api/state", "/api/overview", "/openapi.json", "/picture?id=bird-00001", "/page/index.html"]
    for path in paths:
        reply = stranger.get(path)
        assert reply.status_code == 401, path
        assert reply.json()["todo"].startswith("Open the address that 'ecbm serve' has printed")
    assert stranger.post("/api/try", json={"id": "bird-00001", "values": {}}).status_code == 401


def test_a_token_opens_one_browser_once(birds: Workbench) -> None:
    token = birds.door.new_token()
    first = birds.stranger().get("/enter", params={"token": token}, follow_redirects=False)
    assert first.status_code == 303
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    second = birds.stranger().get("/enter", params={"token": token}, headers={"accept": "text/html"})
    assert second.status_code == 403
    assert "was used already" in second.text
    assert "<script" not in second.text
    for guess in ("guessed", "gerät", "\x00", "x" * 200):
        assert birds.stranger().get("/enter", params={"token": guess}).status_code == 403


def test_a_browser_that_is_in_can_let_another_one_in(birds: Workbench) -> None:
    address = birds.browser("anna").post("/api/invitations").json()["address"]
    assert address.startswith(f"{ADDRESS}/enter?token=")
    other = birds.stranger()
    assert other.get(address.removeprefix(ADDRESS)).status_code == 200
    assert other.get("/api/state").status_code == 200


def test_a_name_that_was_rebound_to_this_machine_is_refused(birds: Workbench) -> None:
    client = birds.browser("anna")
    for host in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example:8765", "", "localhost.evil.example"):
        reply = client.get("/api/state", headers={"host": host})
        assert reply.status_code == 403, host
        assert "does not belong" in reply.json()["what"]
    for host in ("localhost:8765", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST:8765"):
        assert client.get("/api/state", headers={"host": host}).status_code == 200, host


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost:9999",
        "https://127.0.0.1",
        "null",
        "",
        "http://127.0.0.1:8765.evil.example",
    ],
)
def test_a_change_from_another_origin_is_refused(birds: Workbench, origin: str) -> None:
    client = birds.browser("anna")
    for method, path in (
        ("POST", "/api/answers"),
        ("PUT", "/api/person"),
        ("POST", "/api/undo"),
        ("DELETE", "/api/x"),
    ):
        reply = client.request(method, path, json={}, headers={"origin": origin})
        assert reply.status_code == 403, (method, path)
        assert "Another page tried" in reply.json()["what"]


def test_a_change_that_the_browser_calls_cross_site_is_refused(birds: Workbench) -> None:
    reply = birds.browser("anna").put("/api/person", json={"name": "x"}, headers={"sec-fetch-site": "same-site"})
    assert reply.status_code == 403


def test_every_answer_forbids_foreign_and_inline_code(birds: Workbench) -> None:
    client = birds.browser("anna")
    for path in ("/", "/api/state", "/picture?id=bird-00001", "/nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_documentation_pages_that_load_foreign_scripts_are_off(birds: Workbench) -> None:
    client = birds.browser("anna")
    assert client.get("/docs").status_code == 404
    assert client.get("/redoc").status_code == 404
    assert client.get("/openapi.json").json()["info"]["title"] == "ecbm workbench"


@pytest.mark.parametrize(
    "path",
    [
        "/page/../app.py",
        "/page/..%2fapp.py",
        "/page/%2e%2e/app.py",
        "/page//etc/passwd",
        "/page/....//app.py",
        "/picture?id=../../records.sqlite",
        "/picture?id=%2Fetc%2Fpasswd",
    ],
)
def test_no_path_leads_out_of_the_page(birds: Workbench, path: str) -> None:
    reply = birds.browser("anna").get(path)
    assert reply.status_code == 404
    assert b"import" not in reply.content
    assert b"root:" not in reply.content


def test_what_is_too_large_is_refused_before_it_is_read(birds: Workbench) -> None:
    client = birds.browser("anna")
    headers = {"content-type": "text/csv"}
    reply = client.post("/api/staged/upload", content=b"x" * 20_000_001, headers=headers)
    assert reply.status_code == 413

    def parts():  # type: ignore[no-untyped-def]
        for _ in range(21):
            yield b"x" * 1_000_000

    assert client.post("/api/staged/upload", content=parts(), headers=headers).status_code == 413


def test_a_body_with_unknown_fields_is_refused(birds: Workbench) -> None:
    reply = birds.browser("anna").put("/api/person", json={"name": "eve", "admin": True})
    assert reply.status_code == 422
    assert "admin" in reply.json()["what"]


def test_other_machines_need_a_password(birds: Workbench) -> None:
    door = Doorkeeper(80, ["ward.example"], person="anna", password="correct horse")
    assert door.guess("wrong") is None
    session = door.guess("correct horse")
    assert session is not None
    for _ in range(20):
        door.guess("wrong")
    assert door.guess("correct horse") is None, "after many wrong guesses it waits"


def test_a_proxys_header_names_the_person() -> None:
    from starlette.datastructures import Headers

    door = Doorkeeper(80, ["ward.example"], person="anna", trusted_header="X-User")
    found = door.session(Headers({"x-user": "jonas"}))
    assert found is not None
    assert found.person == "jonas"
    assert door.session(Headers({})) is None


def test_the_port_of_a_host_is_not_compared_but_the_whole_name_is() -> None:
    assert [host_of(text) for text in ("a:1", "a", "[::1]:2", "A.b:9")] == ["a", "a", "::1", "a.b"]


def test_serving_to_other_machines_without_a_password_is_refused(
    table_made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ecbm.errors import InputError
    from ecbm.show.serve.running import Place, run_server

    with pytest.raises(InputError, match="--password-file FILE or ECBM_PASSWORD"):
        run_server(table_made, Place(host="0.0.0.0"), person="anna", browser=False)


def test_an_answer_in_two_parts_does_not_wait_for_an_acknowledgement() -> None:
    from ecbm.show.serve.running import Place, _bound

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = _bound(Place())
        async with await asyncio.start_server(greet, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await found

    assert in_own_thread(lambda: asyncio.run(accepted())) != 0
