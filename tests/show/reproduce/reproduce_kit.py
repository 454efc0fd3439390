"""Small experiments: a table of features, short settings."""

from __future__ import annotations

from pathlib import Path

import ecbm
from ecbm.show.reproduce.case import Asked
from kit import tabular

SETTINGS = """
[all]
retrainings = 2
repetitions = 2
[all.quick]
retrainings = 2
repetitions = 2
[ratios.quick]
shares = [0.05, 0.2]
concepts = [1, 3]
repetitions = 1
[table1]
share = 0.2
concepts = [1, 2]
[harmful.quick]
repetitions = 1
[periodic.quick]
rounds = 2
repetitions = 1
[concept-importance]
counts = [1, 2]
top = 2
[concept-importance.quick]
counts = [1, 2]
repetitions = 1
[membership.quick]
removed = 20
references = 2
repetitions = 1
[visual.quick]
classes = 2
top = 2
[bounds.quick]
directions = 4
concepts = 3
classes = 3
dampings = [0.0, 0.1]
removed_shares = [0.1]
removed_concepts = [1]
[data.birds.quick]
samples = 80
epochs = 1
"""


def asked(folder: Path, **options: object) -> Asked:
    """A small table in a folder, to be experimented on with short settings."""
    data = folder / "finches"
    if not data.exists():
        ecbm.write_dataset(tabular(150, 8), data)
        (folder / "settings.toml").write_text(SETTINGS)
    given = {"data": str(data), "out": folder / "results", "quick": True, "settings": folder / "settings.toml"}
    return Asked(**given | options)  # type: ignore[arg-type]
