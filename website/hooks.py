"""What ``make docs`` adds to the folder docs/: the pages of the top folder, the API, the order, and a check.

Pages are listed in the order of what a reader wants to do; one that nobody has placed comes last, so that it is
never lost. The check fails the build where a page would fetch something from another host.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "website"), str(ROOT / "src")]
import results  # noqa: E402

TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "LICENSE": "LICENSE.txt",
}
ORDER = {
    "Guides": [
        "data", "pictures", "concepts", "training", "models", "interventions", "editing", "suggest", "influence",
        "workspace", "workbench", "verify", "certified", "report", "reproduce", "devices",
    ],
    "Method": ["method", "curvature"],
    "Results": ["results", "paper", "fidelity"],
    "Inside": ["architecture", "workbench_api", "reliability", "contributing", "changes"],
}  # fmt: skip
# What a browser loads by itself. A link that somebody may follow is no such thing.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'> ]+"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon))[^>]*\bhref=[\"']?(?:https?:)?//[^\"'> ]+"
)
_STYLED = re.compile(r"(?:url\(|@import )\s*[\"']?(?:https?:)?//[^\"') ]+")


def on_config(config):
    """The order of the pages."""
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"contributing", "changes"}
    nav = [{"Start": "index.md"}]
    placed = {page for section in ORDER.values() for page in section}
    for title, wanted in ORDER.items():
        rest = sorted(pages - placed) if title == "Guides" else []
        nav.append({title: [f"{page}.md" for page in [*wanted, *rest] if page in pages]})
    full = [
        {results.NAMES.get(name, name): [f"results/{name}/{one['experiment']}.md" for one in found]}
        for name, found in results.runs().items()
    ]
    nav[3]["Results"].append({"Full runs": ["results/README.md", *full]})
    nav.insert(2, {"API": "api.md"})
    config["nav"] = nav
    return config


def on_files(files, config):
    """Pages that do not lie in docs/."""
    for name, place in TOP.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text("utf-8")))
    files.append(File.generated(config, "api.md", content=_api()))
    return files


def _api() -> str:
    """Every public name, from its docstring, in the order of the life of the data."""
    import ecbm

    rooms = ("errors", "read", "train", "edit", "verify", "keep", "show")
    homes = sorted(ecbm._HOMES.items(), key=lambda item: (rooms.index(item[1].split(".")[1]), item[0]))
    homes.insert(0, ("train", "ecbm.train.train"))
    lines = ["# API", "", "The public names of `ecbm`, and the datasets by name.", ""]
    lines += [f"::: {home}.{name}\n" for name, home in homes]
    readers = {"birds": "birds", "breast_cancer": "breast_cancer", "cub": "cub", "celeba": "celeba", "oai": "oai"}
    lines += [f"::: ecbm.read.{home}.{name}\n" for name, home in readers.items()]
    return "\n".join(lines)


def on_page_markdown(markdown, page, config, files):
    """Links between the top folder and docs/ as they are on the site."""
    if page.file.src_uri in TOP.values():
        return re.sub(r"\]\((?:\./)?docs/", "](", _renamed(markdown, ""))
    up = "../" * page.file.src_uri.count("/")
    return _renamed(markdown, f"{up}../", up)


def _renamed(markdown: str, before: str, after: str = "") -> str:
    for name, place in TOP.items():
        markdown = re.sub(rf"\]\({re.escape(before)}{re.escape(name)}", f"]({after}{place}", markdown)
    return markdown


def on_post_build(config):
    """Nothing on the site is fetched from elsewhere."""
    for pattern, ending in ((_LOADED, "html"), (_STYLED, "css")):
        for path in Path(config["site_dir"]).rglob(f"*.{ending}"):
            found = pattern.search(path.read_text("utf-8"))
            if found:
                raise PluginError(f"{path}: fetches from another host: {found[0][:160]}")
