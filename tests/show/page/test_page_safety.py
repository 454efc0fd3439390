"""Hostile pages on another origin and on a rebound name; a page that asks no other host."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from page_kit import Visitor, launch

ATTACK = """async (target) => {
  const tried = {};
  const say = async (name, act) => { try { tried[name] = await act(); } catch { tried[name] = 'refused'; } };
  await say('read', async () => (await fetch(target + '/api/state', { credentials: 'include' })).status);
  await say('write', async () => (await fetch(target + '/api/staged/take-back', { method: 'POST', mode: 'no-cors',
    credentials: 'include', headers: { 'Content-Type': 'text/plain' }, body: '{"everything":true}' })).type);
  await say('events', () => new Promise((answer) => {
    const source = new EventSource(target + '/api/events', { withCredentials: true });
    source.onmessage = source.onopen = () => answer('open');
    source.onerror = () => answer('refused');
  }));
  await say('picture', () => new Promise((answer) => {
    const image = new Image();
    image.onload = () => answer('seen');
    image.onerror = () => answer('refused');
    image.src = target + '/picture?id=bird-00001&size=thumb';
  }));
  return tried;
}"""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    """A page of somebody else on the same machine."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>evil</title>")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def _stage_one(anna: Visitor) -> None:
    first = anna.get("/api/pictures?split=train&concept=crest%3Dyes&value=absent&limit=1")["items"][0]["id"]
    anna.post("/api/answers", {"answers": [{"id": first, "concept": "crest=yes", "answer": "present"}]})
    assert anna.staged() == 1


def test_a_page_on_another_origin_reads_and_changes_nothing(anna: Visitor, elsewhere: int) -> None:
    _stage_one(anna)
    other = anna.context.new_page()
    other.goto(f"http://localhost:{elsewhere}/")
    tried = other.evaluate(ATTACK, anna.served.base)
    assert tried["read"] in ("refused", 401, 403)
    assert tried["events"] == "refused"
    assert tried["picture"] == "refused"
    assert anna.staged() == 1
    frame = other.evaluate(
        """(target) => new Promise((answer) => {
          const frame = document.createElement('iframe');
          frame.onload = () => {
            try { answer(String(frame.contentDocument !== null)); } catch { answer('closed'); }
          };
          frame.src = target + '/';
          document.body.append(frame);
        })""",
        anna.served.base,
    )
    assert frame in ("closed", "false")
    other.close()


def test_a_rebound_name_reads_and_changes_nothing(player: Any, anna: Visitor) -> None:
    _stage_one(anna)
    browser = launch(player, "--host-resolver-rules=MAP evil.test 127.0.0.1")
    page = browser.new_page()
    answer = page.goto(f"http://evil.test:{anna.served.port}/")
    assert answer.status == 403
    assert "evil.test" in page.inner_text("body") or "name" in page.inner_text("body").lower()
    tried = page.evaluate(ATTACK, f"http://evil.test:{anna.served.port}")
    assert tried == {"read": 403, "write": tried["write"], "events": "refused", "picture": "refused"}
    browser.close()
    assert anna.staged() == 1


def test_no_page_asks_another_host_or_runs_inline_script(anna: Visitor) -> None:
    stories = ("", "queue", "pictures", "sample?id=bird-00012", "concepts", "preview", "history", "forget", "audit")
    for path in stories:
        answer = anna.page.goto(f"{anna.served.base}/{path}")
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        anna.page.wait_for_selector("#main")
        anna.page.wait_for_timeout(150)
    assert len(anna.asked) > 50
    # That nothing went elsewhere is checked after every test with this browser.


def test_text_of_the_data_never_becomes_markup(anna: Visitor) -> None:
    name = "<img src=x onerror=alert(1)>"
    assert anna.post("/api/staged", {"item": {"kind": "rename_concept", "concept": "crest=yes", "name": name}}).ok
    page = anna.go("/preview", ".staged-group")
    assert name in page.inner_text(".preview")
    assert page.locator("img[src='x']").count() == 0
