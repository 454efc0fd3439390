"""Reading and drawing against the libraries underneath, as ratios inside one run.

1. ``read_dataset`` of a wide and long CSV table against ``pandas.read_csv`` of the same file.
2. ``datasets.birds`` against decoding the same pictures from PNG with Pillow.
3. The fingerprint of pictures in a zip (64 px, JPEG), which is made while they are decoded: processor time of both
   together against decoding alone, and what the fingerprint takes once they are decoded.

    python benchmarks/reading.py [--json FILE] [--quick] [--pictures 5000]
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

import ecbm
from ecbm.read.inputs import ImageInputs
from ecbm.read.pictures import PictureStore


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


def compare_fingerprints(folder: Path, count: int) -> dict[str, float]:
    """Processor seconds of decoding pictures, of decoding them with digests, and of a fingerprint after it."""
    path, names = folder / "birds.zip", [f"{row}.jpg" for row in range(count)]
    drawn = min(count, 1000)
    birds = ecbm.datasets.birds(n=drawn, size=64)
    with zipfile.ZipFile(path, "w") as archive:
        for row, picture in enumerate(birds.inputs.raw(range(drawn))):
            buffer = io.BytesIO()
            Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy()).save(buffer, "JPEG")
            for name in names[row::drawn]:
                archive.writestr(name, buffer.getvalue())

    def made(inputs: ImageInputs) -> ecbm.Dataset:
        zeros = torch.zeros(count, 1)
        return ecbm.Dataset(names, inputs, zeros, zeros[:, 0].long(), ["c"], ["k"], ["train"] * count)

    digest = PictureStore._digest
    marks = [time.process_time()]
    PictureStore._digest = lambda self, index, pixels: None
    try:
        ImageInputs(path, names).digests()
    finally:
        PictureStore._digest = digest
    marks.append(time.process_time())
    inputs = ImageInputs(path, names)
    inputs.digests()
    marks.append(time.process_time())
    assert made(inputs).fingerprint
    marks.append(time.process_time())
    return dict(zip(("decoding", "with_digests", "fingerprint_then"), np.diff(marks).tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer")
    parser.add_argument("--pictures", type=int, default=5000, help="of how many to make a fingerprint")
    options = parser.parse_args()
    repeats = 3 if options.quick else 5
    with tempfile.TemporaryDirectory() as folder:
        tables = compare_tables(Path(folder), 5_000 if options.quick else 40_000, 100, repeats)
        prints = compare_fingerprints(Path(folder), options.pictures)
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
    print(
        f"{options.pictures:,} pictures: decoding {prints['decoding']:.2f} s of processor time, with their digests "
        f"{prints['with_digests']:.2f} s; the fingerprint then {prints['fingerprint_then']:.2f} s"
    )
    if options.json:
        prints["pictures"] = options.pictures
        options.json.write_text(
            json.dumps({"tables": tables, "pictures": pictures, "fingerprints": prints}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
