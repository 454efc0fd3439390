"""The tree is a sentence: imports point one way along read → train → curvature → edit → verify → keep → show."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ecbm

ROOT = Path(ecbm.__file__).parent
ORDER = ("read", "train", "curvature", "edit", "verify", "keep", "show")
# What users import. Inside the package nobody does: it would be a way around the order.
FRONT = ("", "datasets")


def place(module: str) -> int:
    """Where a module stands: the front above all folders, other modules beside the folders below all of them."""
    _, _, inside = module.partition(".")
    folder = inside.split(".")[0]
    if folder in FRONT:
        return len(ORDER)
    return ORDER.index(folder) if folder in ORDER else -1


def module_name(file: Path, root: Path) -> str:
    parts = ("ecbm", *file.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """(line, module) of every import: at the top, in a function, for type checking, by ``import_module``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{origin}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def backward(root: Path) -> list[str]:
    """The imports that point the wrong way."""
    found = []
    for file in sorted(root.rglob("*.py")):
        module = module_name(file, root)
        package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
        for line, target in imported(ast.parse(file.read_text()), package):
            if target.split(".")[0] == "ecbm" and place(target) > place(module):
                found.append(f"{module}, line {line}: {target}")
    return found


def test_imports_point_one_way() -> None:
    assert backward(ROOT) == []


def test_every_folder_is_a_word_of_the_sentence() -> None:
    assert {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").exists()} == set(ORDER)


@pytest.mark.parametrize(
    "source",
    [
        "from ecbm.edit.editor import Editor",
        "import ecbm.edit.editor",
        "from ecbm import edit",
        "from ..edit import editor",
        "import ecbm",
        "from ecbm import datasets",
        "def late():\n    from ecbm.keep.workspace import Workspace",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ecbm.show import page",
        "import importlib\nimportlib.import_module('ecbm.verify.evaluate')",
    ],
)
def test_an_import_that_points_back_is_seen(tmp_path: Path, source: str) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "model.py").write_text(source)
    assert len(backward(tmp_path)) == 1


def test_what_may_be_imported_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "model.py").write_text(
        "from ecbm import parallel\nfrom ecbm.errors import InputError\nfrom ecbm.read.dataset import Dataset\n"
        "from ecbm.train import stages\nfrom . import stages\nimport torch\n"
    )
    (tmp_path / "__init__.py").write_text("from ecbm.show import page\nfrom ecbm import datasets\n")
    (tmp_path / "datasets.py").write_text("from ecbm.read.birds import birds\n")
    assert backward(tmp_path) == []


def test_what_lies_beside_the_folders_uses_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text("from ecbm.read.dataset import Dataset\n")
    assert len(backward(tmp_path)) == 1
