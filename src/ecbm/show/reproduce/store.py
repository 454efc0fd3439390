"""Trained models and finished pieces of work on disk: what an interrupted run goes on from."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ecbm import errors
from ecbm.files import refusing_places, write_json, write_text
from ecbm.keep.saving import load, save
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck, Provenance
from ecbm.train.recipe import Recipe
from ecbm.train.train import train

__all__ = ["ENGINE", "Store", "code_digest", "digest_of"]

_PACKAGE = Path(errors.__file__).parent
_ENGINE_FILES = ("scenarios", "judging", "candidates", "comparing", "removals")
# What figures depend on beside the rooms that compute.
ENGINE = tuple(f"show/reproduce/{name}.py" for name in _ENGINE_FILES)


@functools.cache
def code_digest(*folders: str) -> str:
    """Of the package's sources, or of some of its folders and files: figures of other code are not mixed in."""
    digest = hashlib.blake2b(digest_size=10)
    for file in sorted(_PACKAGE.rglob("*.py")):
        place = file.relative_to(_PACKAGE)
        if not folders or len(place.parts) == 1 or any(place.is_relative_to(folder) for folder in folders):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def digest_of(*values: Any) -> str:
    """A short name for JSON values."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


class Store:
    """Trained models, rows of the benchmark and pieces of experiments in one folder.

    Every file appears whole or not at all, so that a run may be killed at any moment.

    Parameters
    ----------
    folder
        Where they lie; made if missing.
    quick
        Rows of short runs are kept apart from those of full ones.
    """

    def __init__(self, folder: Path, quick: bool = False) -> None:
        self.folder, self.quick = folder, quick
        with refusing_places(folder):
            (folder / "models").mkdir(parents=True, exist_ok=True)
            (folder / "pieces").mkdir(exist_ok=True)
        self.rows = folder / "rows.jsonl"

    # -- models ----------------------------------------------------------------------------------------------

    def model(self, data: Dataset, recipe: Recipe) -> ConceptBottleneck:
        """The model of a recipe on a dataset, trained if it is not here; its provenance has the seconds it took."""
        folder = self._folder(data, recipe)
        clock = folder.with_suffix(".seconds")
        if not clock.exists():
            started = time.process_time()
            model = train(data, recipe)
            spent = time.process_time() - started
            if not clock.exists():  # another process may have been faster
                save(model, folder)
                write_text(clock, str(spent))
        model = load(folder)
        training = {**model.provenance.training, "seconds": float(clock.read_text())}
        model.provenance = Provenance(model.provenance.data_fingerprint, training)
        return model

    def _folder(self, data: Dataset, recipe: Recipe) -> Path:
        return self.folder / "models" / digest_of(data.fingerprint, recipe.to_dict(), code_digest("read", "train"))

    def missing(self, data: Dataset, recipe: Recipe) -> str | None:
        """The name of a model that is not trained yet."""
        folder = self._folder(data, recipe)
        return None if folder.with_suffix(".seconds").exists() else folder.name

    # -- pieces of experiments -------------------------------------------------------------------------------

    def piece(self, name: str) -> dict[str, Any] | None:
        """A finished piece, or ``None``; what cannot be read is computed again."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "pieces" / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        return found

    def has_piece(self, name: str) -> bool:
        """Whether a piece is finished."""
        return self.piece(name) is not None

    def finish_piece(self, name: str, value: dict[str, Any]) -> None:
        """Keep a finished piece."""
        write_json(self.folder / "pieces" / f"{name}.json", value)

    # -- rows of the benchmark -------------------------------------------------------------------------------

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        """Rows that were finished with this code."""
        found = [json.loads(line) for line in self._lines() if line.strip()]
        return {entry["key"]: entry["rows"] for entry in found if entry.get("run") == self._run()}

    def _lines(self) -> Iterable[str]:
        return self.rows.read_text().splitlines() if self.rows.exists() else ()

    def finish(self, key: str, rows: list[dict[str, Any]]) -> None:
        """Keep the rows of one scenario."""
        with self.rows.open("a") as file:
            file.write(json.dumps({"key": key, "run": self._run(), "rows": rows}) + "\n")

    def _run(self) -> str:
        computing = ("read", "train", "curvature", "edit", "verify", *ENGINE)
        return f"{code_digest(*computing)}{' quick' if self.quick else ''}"
