"""Draw the workbench's pictures for the documentation, on drawn birds: every story, and a walk of 20 seconds.

``python docs/images/draw_workbench.py [--workspace FOLDER] [--only NAME ...]`` needs chromium and playwright.
Without a workspace one is made and trained first (a minute or two). A copy of it is served.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import ecbm
from ecbm.show.demo_repair import careless

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))
from page_kit import LAPTOP, SMALL, Visitor, launch, served  # noqa: E402

CREST = "crest%3Dyes"
LONGEST = 200_000
WALK_LONGEST = 3_000_000
PAGES = {
    "overview": ("/", ".worst img"),
    "queue": (f"/queue?concept={CREST}", ".looks-like img"),
    "pictures": ("/pictures", ".picture-grid img"),
    "sample": ("/sample?id=bird-00020&concept=mask%3Dyes", ".similar img"),
    "concepts": (f"/concepts?concept={CREST}", ".panel-examples img"),
    "preview": ("/preview", ".certificate"),
    "history": ("/history", ".version-line"),
    "forget": ("/forget?ids=bird-00416,bird-00684,bird-00073", ".destroyed li"),
    "audit": ("/audit", "iframe:not(.unready)"),
}


def make(folder: Path) -> Path:
    """A workspace in which one of two annotators has overlooked small marks."""
    data = careless(ecbm.datasets.birds(n=900, seed=3, size=96), 3)
    recipe = ecbm.Recipe(backbone="convnet", epochs=8, seed=3)
    workspace = ecbm.Workspace.create(folder, data, recipe, author="Marta", reason="Pictures of the marsh")
    workspace.train(author="Marta", reason="First model")
    return folder


def keep(picture: bytes, name: str) -> None:
    """As WebP, as good as fits."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for quality in (88, 80, 70, 60, 45):
        out = io.BytesIO()
        image.save(out, "WEBP", quality=quality, method=6)
        if out.tell() <= LONGEST:
            break
    (HERE / f"workbench-{name}.webp").write_bytes(out.getvalue())
    print(f"workbench-{name}.webp {out.tell():,} bytes")


def answers(visitor: Visitor, count: int, pause: int = 60) -> None:
    """Read crests again: all that were overlooked are present."""
    visitor.go(f"/queue?concept={CREST}", ".answers")
    for _ in range(count):
        visitor.page.keyboard.press("1")
        visitor.page.wait_for_timeout(pause)
    visitor.eventually(lambda: visitor.staged() > 0)


def commit(visitor: Visitor, reason: str) -> None:
    page = visitor.go("/preview", ".certificate")
    page.fill("#reason", reason)
    page.wait_for_selector(".commit .button.staged:enabled")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".committed")


def settle(page: Any) -> None:
    """Wait for pictures that are on their way."""
    for _ in range(40):
        page.wait_for_timeout(300)
        if page.locator("img.loading").count() < 3:
            break
    page.wait_for_timeout(300)


def stories(visitor: Visitor, only: list[str]) -> None:
    page = visitor.page
    for name, (path, wait) in PAGES.items():
        for size, suffix in ((LAPTOP, ""), (SMALL, "-390")):
            for scheme in ("light", "dark"):
                called = f"{name}{suffix}{'-dark' if scheme == 'dark' else ''}"
                if only and called not in only:
                    continue
                page.set_viewport_size(size)
                page.emulate_media(color_scheme=scheme)
                visitor.go(path, wait if size is LAPTOP else "#main > *")
                if name == "sample":
                    page.keyboard.press("t")
                settle(page)
                keep(page.screenshot(), called)
    page.set_viewport_size(LAPTOP)
    page.emulate_media(color_scheme="light")


def walk(visitor: Visitor) -> None:
    """Find a wrong label, correct it, see what that does, commit, take it back."""
    page, frames = visitor.page, []
    page.set_viewport_size({"width": 1280, "height": 800})

    def frame(milliseconds: int) -> None:
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        frames.append((image.resize((960, 600), Image.Resampling.LANCZOS), milliseconds))

    visitor.go("/", ".worst img")
    settle(page)
    frame(2200)
    page.keyboard.press("q")
    page.wait_for_selector(".looks-like img")
    settle(page)
    frame(1800)
    for pause in [700, 600, 500, 400, 350, 300, 300, 300, 300, 300]:
        page.keyboard.press("1")
        page.wait_for_timeout(350)
        frame(pause)
    page.keyboard.press("o")
    page.wait_for_selector(".score-line.sum")
    settle(page)
    frame(1300)
    page.keyboard.press("t")
    page.wait_for_selector(".trying")
    page.wait_for_timeout(400)
    frame(1600)
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    page.wait_for_selector(".certificate")
    settle(page)
    frame(2000)
    page.focus("#reason")
    for part in ("Second ", "reading ", "of crests"):
        page.keyboard.type(part)
        page.wait_for_timeout(100)
        frame(350)
    page.wait_for_selector(".commit .button.staged:enabled")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".committed")
    frame(2000)
    visitor.go("/history", ".compare .metric")
    settle(page)
    frame(1800)
    page.keyboard.press("Control+z")
    visitor.eventually(lambda: "Version 1" in page.inner_text(".head .version"))
    settle(page)
    frame(1600)
    for quality in (72, 60, 48, 36, 24):
        out = io.BytesIO()
        images, times = [one for one, _ in frames], [time for _, time in frames]
        options = {"duration": times, "loop": 0, "quality": quality, "method": 4}
        images[0].save(out, "WEBP", save_all=True, append_images=images[1:], **options)
        if out.tell() <= WALK_LONGEST:
            break
    (HERE / "workbench-walk.webp").write_bytes(out.getvalue())
    print(f"workbench-walk.webp {out.tell():,} bytes, {sum(times) / 1000:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        made = given.workspace or make(Path(scratch) / "made" / "marsh")
        browser = launch(playwright)
        with served(made, Path(scratch) / "copy", person="Anna") as running:
            visitor = Visitor(browser, running)
            visitor.eventually(lambda: visitor.get("/api/state")["suspicious"] is not None, 120)
            if not given.only or "walk" in given.only:
                walk(visitor)
                visitor.nothing_staged()
            answers(visitor, 30)
            commit(visitor, "Second reading of crests")
            answers(visitor, 14)
            stories(visitor, given.only)
        browser.close()


if __name__ == "__main__":
    main()
