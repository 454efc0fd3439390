"""Browsers that were let in are known again after a restart; their file lets nobody in."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from ecbm.keep import sessions
from ecbm.show.serve.security import Doorkeeper


def _let_in(folder: Path, person: str = "anna", password: str | None = None, port: int = 8765) -> Headers:
    """The headers of a browser that was let in."""
    door = Doorkeeper(port, person=person, password=password, folder=folder)
    cookie = door.exchange(door.new_token())
    return Headers({"cookie": f"{door.cookie}={cookie}"})


def _known(folder: Path, headers: Headers, password: str | None = None) -> str | None:
    """Who a server that is started now takes the browser for."""
    found = Doorkeeper(8765, person="somebody", password=password, folder=folder).session(headers)
    return None if found is None else found.person


def test_a_browser_is_known_after_a_restart_by_the_name_it_gave(tmp_path: Path) -> None:
    door = Doorkeeper(8765, person="anna", folder=tmp_path)
    headers = Headers({"cookie": f"{door.cookie}={door.exchange(door.new_token())}"})
    session = door.session(headers)
    assert session is not None
    door.rename(session, "Anna Weiss")
    assert _known(tmp_path, headers) == "Anna Weiss"


def test_a_token_that_was_not_used_ends_with_the_process_and_a_used_one_stays_used(tmp_path: Path) -> None:
    door = Doorkeeper(8765, person="anna", folder=tmp_path)
    used, unused = door.new_token(), door.new_token()
    assert door.exchange(used) is not None
    again = Doorkeeper(8765, person="anna", folder=tmp_path)
    assert again.exchange(used) is None
    assert again.exchange(unused) is None


def test_the_file_is_for_its_owner_alone_and_has_no_cookie_in_it(tmp_path: Path) -> None:
    headers = _let_in(tmp_path)
    path = tmp_path / "sessions.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert headers["cookie"].partition("=")[2] not in path.read_text()
    assert sorted(os.listdir(tmp_path)) == ["sessions.json"]


def test_a_file_that_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    headers = _let_in(tmp_path)
    (tmp_path / "sessions.json").chmod(0o666)
    assert _known(tmp_path, headers) is None


def test_another_password_ends_all_sessions(tmp_path: Path) -> None:
    headers = _let_in(tmp_path, password="first")
    assert _known(tmp_path, headers, "first") == "anna"
    assert _known(tmp_path, headers, "second") is None
    assert _known(tmp_path, headers) is None


def test_a_copy_of_the_folder_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "ward").mkdir()
    headers = _let_in(tmp_path / "ward")
    copied = Path(shutil.copytree(tmp_path / "ward", tmp_path / "copy"))
    assert _known(tmp_path / "ward", headers) == "anna"
    assert _known(copied, headers) is None


def test_a_session_ends_a_month_after_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = _let_in(tmp_path)
    door = Doorkeeper(8765, person="anna", folder=tmp_path)
    later = time.time() + sessions.LIFE_SECONDS
    monkeypatch.setattr(time, "time", lambda: later - 60)
    assert door.session(headers) is not None
    monkeypatch.setattr(time, "time", lambda: later + 60)
    assert door.session(headers) is None
    assert _known(tmp_path, headers) is None
    _let_in(tmp_path)
    assert len(json.loads((tmp_path / "sessions.json").read_text())) == 1


def test_servers_at_two_ports_keep_each_others_sessions(tmp_path: Path) -> None:
    headers = _let_in(tmp_path)
    _let_in(tmp_path, "jonas", port=9000)
    assert _known(tmp_path, headers) == "anna"
    assert {one.person for one in sessions.read_sessions(tmp_path)} == {"anna", "jonas"}


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"a": 1}', b'[{"digest": "x"}]', b"\xff"])
def test_a_spoilt_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    headers = _let_in(tmp_path)
    (tmp_path / "sessions.json").write_bytes(content)
    assert _known(tmp_path, headers) is None
    assert _known(tmp_path, _let_in(tmp_path)) == "anna"
