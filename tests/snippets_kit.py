"""The snippets of README and guides, and the files they speak of, in miniature."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ecbm
import networks_kit
from archives_kit import CELEBA_ATTRIBUTES, celeba_files, cub_files, oai_files, write_picture

ROOT = Path(__file__).parents[1]
GUIDES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
GUIDES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))

# Commands that are not run here, and why. Every other line of every block of shell or Python is.
EXCEPTED: dict[str, str] = {
    "make": "sets up an environment, or takes minutes: continuous integration runs make test and make lint",
    ".ci/run": "calls this very suite",
    "pip": "installs into the environment that runs the tests",
    "torchrun": "runs a script of the reader's; tests/train/test_processes.py trains in several processes",
    "python benchmarks": "takes from minutes to an hour",
    "ecbm reproduce all": "takes minutes; tests/show/reproduce runs every experiment on little data",
    "ecbm reproduce table1": "takes minutes; tests/show/reproduce runs every experiment on little data",
    "ecbm serve": "answers until it is stopped; tests/show/page drives it in a browser",
}

# Sizes that make a snippet slow, and smaller ones that it is run with.
SMALLER: list[tuple[str, str]] = [
    (r"\bn=\d+", "n=160"),
    (r"\bepochs=\d+", "epochs=1"),
    (r"image_size=\d+", "image_size=8"),
    (r"--samples \d+ --epochs \d+", "--samples 160 --epochs 1"),
    (r"--builtin birds(?! --samples)", "--builtin birds --samples 160 --epochs 1"),
]


@dataclass(frozen=True)
class Block:
    """One fenced block of a guide."""

    language: str
    text: str
    line: int


def blocks(guide: str) -> list[Block]:
    """The fenced blocks of a guide, in order."""
    text = (ROOT / guide).read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in found]


def smaller(text: str) -> str:
    for pattern, replacement in SMALLER:
        text = re.sub(pattern, replacement, text)
    return text


def excepted(command: str) -> bool:
    """Whether a command is in the list above, by its first words."""
    return any(command == name or re.match(rf"{re.escape(name)}(?![\w.-])", command) for name in EXCEPTED)


# -- files that snippets speak of --------------------------------------------------------------------------


def _table_files(folder: Path) -> None:
    """``samples.csv`` of the guide itself, with features and with pictures."""
    text = next(block.text for block in blocks("docs/data.md") if block.language == "csv")
    (folder / "samples.csv").write_text(text)
    rows = text.strip().splitlines()[1:]
    np.save(folder / "features.npy", np.random.default_rng(0).normal(size=(len(rows), 3)))
    with zipfile.ZipFile(folder / "pictures.zip", "w") as archive:
        for seed, row in enumerate(rows):
            picture = write_picture(folder / "one.png", seed)
            archive.write(picture, row.split(",")[2])
    (folder / "one.png").unlink()
    pairs = [(image, attribute) for image in range(1, 37) for attribute in range(1, 5)]
    lines = [f"{image} {attribute} {(image + attribute) % 2} 4 1.0" for image, attribute in pairs]
    cub_files(folder / "CUB", lines, classes=12)
    names = ["Smiling", "Male", "Young", "Eyeglasses", *CELEBA_ATTRIBUTES[4:]]
    celeba_files(folder / "CelebA", names=names)
    oai_files(folder / "OAI")


def _edit_files(folder: Path) -> None:
    """The edit file of the guide to workspaces, whole, with the tables that it names."""
    content = json.loads(next(block.text for block in blocks("docs/workspace.md") if block.language == "json"))
    (folder / "edit.json").write_text(json.dumps(content))
    birds = ecbm.datasets.birds(n=160)
    more = ecbm.Edit(remove_concepts=content["remove_concepts"]).apply_to(ecbm.datasets.birds(n=80, seed=5)[:2])
    table = more.to_frame()
    table.assign(id=["new-1", "new-2"], split="train").to_csv(folder / "more.csv", index=False)
    np.save(folder / "more.npy", more.inputs.raw([0, 1]).numpy())
    kept = [name for name in birds.split("train").ids if name not in content["remove_samples"]]
    rows = [f"{name},{number % 2}" for number, name in enumerate(kept[:20])]
    (folder / "concepts.csv").write_text("\n".join(["id,red_eye", *rows]) + "\n")
    (folder / "corrections.csv").write_text("id,concept,value\nbird-00011,bill=long,0.5\n")


def _picture_files(folder: Path) -> None:
    """Birds as picture files, and an edit of some of their labels."""
    networks_kit.timm()
    birds = ecbm.datasets.birds(n=80, size=32)
    networks_kit.write_pictures(folder, birds)
    edit = {"remove_samples": [birds.split("train").ids[0]]}
    (folder / "edit.json").write_text(json.dumps(edit))


def _desk_files(folder: Path) -> None:
    """The clinic's table of the tests, the edit of the guide, new rows, and embeddings."""
    shutil.copy(ROOT / "tests" / "tables" / "clinic.csv", folder)
    (folder / "edit.json").write_text(next(b.text for b in blocks("docs/concepts.md") if b.language == "json"))
    (folder / "new.csv").write_text("Alter,Geschlecht,CRP (mg/l)\n61,w,12.5\n40,m,\n")
    generator = np.random.default_rng(0)
    shown = generator.random((200, 2)) < 0.5
    texts = 6 * np.eye(16)[:3]
    np.save(folder / "I.npy", generator.normal(size=(200, 16)) + shown @ texts[:2])
    np.save(folder / "T.npy", texts)
    (folder / "names.txt").write_text("striped\ncrest\nunicorn\n")
    rows = [f"b{n},{'jay' if row[0] else 'robin'}" for n, row in enumerate(shown)]
    (folder / "classes.csv").write_text("\n".join(["id,label", *rows]) + "\n")


FILES: dict[str, Callable[[Path], None]] = {
    "docs/concepts.md": _desk_files,
    "README.md": _edit_files,
    "docs/data.md": _table_files,
    "docs/workspace.md": _edit_files,
    "docs/pictures.md": _picture_files,
}

# What a guide says that its snippets print.
PRINTED: dict[str, list[str]] = {
    "docs/concepts.md": ["{'Erguss': 'binary', 'Schweregrad': 'ordinal', 'Größe (mm)': 'continuous'}"],
    "docs/editing.md": [
        "correct 1 concept label of 1 sample; remove 2 samples",
        "unknown concept 'radius=smal'; did you mean 'radius=small'",
        "correct 1 class label; remove 1 sample",
        "['1 of 2 labels already have these values']",
    ],
    "docs/curvature.md": ["{}"],
}
