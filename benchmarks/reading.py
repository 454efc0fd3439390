"""Reading and drawing against the libraries underneath, as ratios inside one run.

1. ``read_dataset`` of a wide and long CSV table against ``pandas.read_csv`` of the same file.
2. ``datasets.birds`` against decoding the same pictures from PNG with Pillow.

    python benchmarks/reading.py [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from rich.console import Console
from rich.table import Table

import ecbm


def in_turns(repeats: int, ours: Callable[[], Any], theirs: Callable[[], Any]) -> dict[str, float]:
    """Median seconds of both and of their ratio, run in turns so that a busy machine slows both alike."""
    pairs = []
    for _ in range(repeats):
        marks = [time.perf_counter()]
        for run in (ours, theirs):
            run()
            marks.append(time.perf_counter())
        pairs.append((marks[1] - marks[0], marks[2] - marks[1]))
    return {
        "ours_seconds": statistics.median(one for one, _ in pairs),
        "theirs_seconds": statistics.median(other for _, other in pairs),
        "ratio": statistics.median(one / other for one, other in pairs),
    }


def compare_tables(folder: Path, rows: int, concepts: int, repeats: int) -> dict[str, float]:
    """A table of 0 and 1, read into a dataset and into a data frame."""
    values = np.random.default_rng(0).integers(0, 2, (rows, concepts))
    frame = pd.DataFrame(values, columns=[f"c{number}" for number in range(concepts)])
    frame.insert(0, "label", "x")
    frame.insert(0, "id", [f"{number:06d}" for number in range(rows)])
    path, features = folder / "table.csv", folder / "features.npy"
    frame.to_csv(path, index=False)
    np.save(features, np.zeros((rows, 1), np.float32))
    read = in_turns(repeats, lambda: ecbm.read_dataset(path, features=features), lambda: pd.read_csv(path))
    return {"rows": rows, "concepts": concepts, **read}


def compare_pictures(count: int, repeats: int) -> dict[str, float]:
    """Birds, drawn and decoded."""
    files = []
    for picture in ecbm.datasets.birds(n=count).inputs.raw(range(count)):
        buffer = io.BytesIO()
        Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy()).save(buffer, "PNG")
        files.append(buffer.getvalue())

    def decode() -> None:
        for content in files:
            np.asarray(Image.open(io.BytesIO(content)))

    drawn = in_turns(repeats, lambda: ecbm.datasets.birds(n=count), decode)
    return {"count": count, "drawn_a_second": count / drawn["ours_seconds"], **drawn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer")
    options = parser.parse_args()
    repeats = 3 if options.quick else 5
    with tempfile.TemporaryDirectory() as folder:
        tables = compare_tables(Path(folder), 5_000 if options.quick else 40_000, 100, repeats)
    pictures = compare_pictures(200 if options.quick else 1_000, repeats)
    table = Table("what", "ecbm", "library", "ratio", title="Reading and drawing", title_justify="left")
    lines = (
        (f"table of {tables['rows']:,} × {tables['concepts']} (pandas)", tables),
        (f"{pictures['count']:,} birds, {pictures['drawn_a_second']:.0f} a second (decoding PNG)", pictures),
    )
    for what, figures in lines:
        seconds = (f"{figures[side]:.2f} s" for side in ("ours_seconds", "theirs_seconds"))
        table.add_row(what, *seconds, f"{figures['ratio']:.2f}")
    Console(width=110).print(table)
    if options.json:
        options.json.write_text(json.dumps({"tables": tables, "pictures": pictures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
