"""Trained models and finished rows of ``fidelity.py`` on disk."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import ecbm
from ecbm.train.model import Provenance

__all__ = ["Store"]


@functools.cache
def code_digest(*folders: str) -> str:
    """Of the package's sources, or of some of its folders: figures of other code are not mixed in."""
    package = Path(ecbm.__file__).parent
    digest = hashlib.blake2b(digest_size=10)
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).parts
        if not folders or len(parts) == 1 or parts[0] in folders:
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Store:
    """Trained models and finished rows on disk."""

    def __init__(self, folder: Path, quick: bool = False) -> None:
        self.folder, self.quick = folder, quick
        (folder / "models").mkdir(parents=True, exist_ok=True)
        self.rows = folder / "rows.jsonl"

    def model(self, data: ecbm.Dataset, recipe: ecbm.Recipe) -> ecbm.ConceptBottleneck:
        folder = self._folder(data, recipe)
        clock = folder.with_suffix(".seconds")
        if not clock.exists():
            started = time.process_time()
            model = ecbm.train(data, recipe)
            spent = time.process_time() - started
            ecbm.save(model, folder)
            clock.write_text(str(spent))
        model = ecbm.load(folder)
        training = {**model.provenance.training, "seconds": float(clock.read_text())}
        model.provenance = Provenance(model.provenance.data_fingerprint, training)
        return model

    def _folder(self, data: ecbm.Dataset, recipe: ecbm.Recipe) -> Path:
        trained_by = code_digest("read", "train")
        text = json.dumps([data.fingerprint, recipe.to_dict(), trained_by], sort_keys=True)
        return self.folder / "models" / hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def missing(self, data: ecbm.Dataset, recipe: ecbm.Recipe) -> str | None:
        """The name of a model that is not trained yet."""
        folder = self._folder(data, recipe)
        return None if folder.with_suffix(".seconds").exists() else folder.name

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        if not self.rows.exists():
            return {}
        found = [json.loads(line) for line in self.rows.read_text().splitlines() if line.strip()]
        return {entry["key"]: entry["rows"] for entry in found if entry.get("run") == self._run()}

    def finish(self, key: str, rows: list[dict[str, Any]]) -> None:
        with self.rows.open("a") as file:
            file.write(json.dumps({"key": key, "run": self._run(), "rows": rows}) + "\n")

    def _run(self) -> str:
        return f"{code_digest()}{' quick' if self.quick else ''}"
