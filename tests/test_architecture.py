"""The folders are a sentence, and imports point one way along it."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "ecbm"
ORDER = ("read", "train", "curvature", "edit", "verify", "keep", "show")
# The front of the package: it names everything, and nothing inside leans on it.
FRONT = {"ecbm", "ecbm.datasets", "ecbm.sklearn"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Every module of the package that a file names in an import, in functions and for types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative imports do not show where they lead"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            # ``from ecbm import parallel`` is that module; ``from ecbm import train`` would be the front.
            found |= {name if _is_module(name) else node.module for name in names}
    return {name for name in found if name.split(".")[0] == "ecbm"}


def _is_module(name: str) -> bool:
    place = PACKAGE.joinpath(*name.split(".")[1:])
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def rank(parts: tuple[str, ...]) -> int:
    """Place in the sentence; what lies beside the folders stands before them."""
    return ORDER.index(parts[0]) if parts and parts[0] in ORDER else -1


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path):
    own = path.relative_to(PACKAGE).with_suffix("").parts
    if len(own) == 1 and own[0] in ("__init__", "datasets", "sklearn"):
        return
    for name in sorted(imported(path)):
        if name in FRONT:
            assert rank(own) == ORDER.index("show"), f"{'/'.join(own)} imports the front, {name}"
            continue
        target = tuple(name.split(".")[1:])
        assert rank(target) <= rank(own), f"{'/'.join(own)} imports {name}, which comes later"
        if rank(own) == -1:
            assert rank(target) == -1, f"{'/'.join(own)} lies below all folders and imports {name}"


def test_every_folder_is_a_word_of_the_sentence():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ORDER)


def test_the_guide_says_what_every_file_is_for() -> None:
    guide = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    # A name stands for files in any folder, one with folders (`telling/*.py`) for files in these alone.
    named = [f"*/{name}" for name in re.findall(r"`([\w/*]+\.py)`", guide)]
    assert not any(fnmatch("/no/such_file.py", name) for name in named)
    rooms = [path for path in MODULES if path.name not in ("__init__.py", "__main__.py", "_version.py")]
    missing = [
        path.relative_to(PACKAGE).as_posix()
        for path in rooms
        if not any(fnmatch(f"/{path.relative_to(PACKAGE).as_posix()}", name) for name in named)
    ]
    assert not missing
