"""Many pictures on a small machine: time and memory of making a workspace, extracting, training and editing.

    python benchmarks/size.py [--pictures 200000] [--backbone pretrained] [--input-size 64] [--processes 1]
                              [--folder FOLDER] [--json FILE]

Draws birds at 64 px piece by piece into a zip of JPEG files with a table beside it, and then runs the command line
as a user would: ``ecbm init``, ``ecbm train`` (frozen network: extraction, heads), ``ecbm edit`` of 100 labels.
Peak memory is the largest resident set of each command (with several processes: of one of them). Times are
processor time, of all processes together, because other work on the machine slows the clock. ``--folder`` keeps the
pictures, for another run.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from PIL import Image

import ecbm

_PIECE = 2000


def draw(folder: Path, count: int) -> None:
    """Pictures and table, never more than a piece of them in memory."""
    with (
        zipfile.ZipFile(folder / "images.zip", "w") as archive,
        (folder / "samples.csv").open("w", newline="", encoding="utf-8") as file,
    ):
        table: Any = None
        for piece in range(-(-count // _PIECE)):
            birds = ecbm.datasets.birds(n=min(_PIECE, max(80, count - piece * _PIECE)), seed=piece, size=64)
            frame = birds.to_frame()
            if table is None:
                table = csv.writer(file)
                table.writerow(["id", "image", *frame.columns[1:]])
            for row, values in enumerate(frame.itertuples(index=False)):
                name = f"{piece:04d}-{values[0]}"
                buffer = io.BytesIO()
                Image.fromarray(birds.inputs.raw([row])[0].permute(1, 2, 0).numpy()).save(buffer, "JPEG")
                archive.writestr(f"{name}.jpg", buffer.getvalue())
                table.writerow([name, f"{name}.jpg", *values[1:]])


def edit_file(folder: Path) -> None:
    """100 labels of training samples, turned round."""
    with (folder / "samples.csv").open(encoding="utf-8") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(2000), strict=False) if row["split"] == "train"]
    concept = list(rows[0])[4]
    items = [{"id": row["id"], "concept": concept, "value": 1 - float(row[concept])} for row in rows[:100]]
    (folder / "edit.json").write_text(json.dumps({"correct_concepts": items}), encoding="utf-8")


def _torchrun(processes: int) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    return ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), *place]


def run(folder: Path, *arguments: str, processes: int = 1) -> dict[str, float]:
    """One command: seconds by the clock and of the processor, and its peak memory in GiB."""
    started = time.perf_counter()
    command = [*(_torchrun(processes) if processes > 1 else []), "-m", "ecbm.show.cli", *arguments]
    child = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL)
    # The usage of a process contains that of children it has waited for: times are summed, of memory the largest.
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"ecbm {' '.join(arguments)} failed")
    assert isinstance(usage, resource.struct_rusage)
    return {
        "clock": time.perf_counter() - started,
        "processor": usage.ru_utime + usage.ru_stime,
        "peak_gib": usage.ru_maxrss / 2**20,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pictures", type=int, default=200_000)
    options.add_argument("--backbone", default="pretrained")
    options.add_argument("--input-size", type=int, default=64)
    options.add_argument("--processes", type=int, default=1, help="that share the training")
    options.add_argument("--folder", type=Path, help="where to keep the pictures, or where they are")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "edit.json").exists():
            draw(folder, given.pictures)
            edit_file(folder)
        shutil.rmtree(folder / "w", ignore_errors=True)
        found = {"init": run(folder, "init", "w", "--data", "samples.csv", "--images", "images.zip")}
        size = ["--input-size", str(given.input_size)] if given.backbone == "pretrained" else ["--epochs", "2"]
        found["train"] = run(folder, "train", "w", "--backbone", given.backbone, *size, processes=given.processes)
        found["edit"] = run(folder, "edit", "w", "edit.json")
    share = found["edit"]["processor"] / found["train"]["processor"]
    print(f"{given.pictures:,} pictures, {given.backbone} at {given.input_size} px, {given.processes} process(es)")
    for what, figures in found.items():
        print(f"{what:<8}" + "".join(f"{key} {value:8.2f}  " for key, value in figures.items()))
    print(f"edit / train (processor time): 1/{1 / share:.0f}")
    if given.json is not None:
        asked = {"pictures": given.pictures, "processes": given.processes}
        given.json.write_text(json.dumps(asked | found, indent=2) + "\n")


if __name__ == "__main__":
    main()
