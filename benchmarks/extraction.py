"""Features of a frozen network: what decoding, preprocessing and keeping them on disk adds to the forward pass.

    python benchmarks/extraction.py [--pictures 512] [--size 128] [--json FILE]

Draws birds at 64 px, writes them as JPEG into a zip, and puts them through the network that ``"pretrained"``
chooses: first the bare network on pixels that are already decoded and resized, in the same batches, then the whole
extraction into a workspace's files. The figure is the ratio of their rates (1: extraction costs nothing beside the
network). Each is the best of three rounds, in turn, because other work on the machine slows either of them down.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import ecbm
from ecbm.keep.stored_features import open_features
from ecbm.progress import silence
from ecbm.read.digests import RowDigests
from ecbm.read.inputs import ImageInputs, rows_at_once
from ecbm.train.backbones import resolve_backbone
from ecbm.train.extraction import extract
from ecbm.train.fronts import build_front


def written(count: int, path: Path) -> ImageInputs:
    """Birds as JPEG files in a zip."""
    birds = ecbm.datasets.birds(n=count, seed=0, size=64)
    with zipfile.ZipFile(path, "w") as archive:
        for row in range(count):
            buffer = io.BytesIO()
            Image.fromarray(birds.inputs.raw([row])[0].permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=92)
            archive.writestr(f"{row}.jpg", buffer.getvalue())
    return ImageInputs(path, [f"{row}.jpg" for row in range(count)])


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pictures", type=int, default=512)
    options.add_argument("--size", type=int, default=128, help="what the network sees, in pixels")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    silence()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "birds.zip"
        inputs = written(given.pictures, path)
        digests = RowDigests.of(inputs.digests())
        recipe = ecbm.Recipe(backbone="pretrained", preprocessing={"size": given.size})
        made = build_front(resolve_backbone(recipe, inputs.shape), inputs.shape)
        assert made is not None
        front, _ = made
        module = front.module()
        with torch.no_grad():
            prepared = module.preprocess(inputs.take(range(len(inputs))))
            batches = prepared.split(rows_at_once((3, given.size, given.size)))

        def bare() -> None:
            with torch.no_grad():
                for batch in batches:
                    module.network(batch)

        def whole(place: int) -> None:
            # A new reader: nothing is decoded yet.
            fresh = ImageInputs(path, inputs.names)
            front.rows = open_features(Path(folder) / str(place), front, writes=True)
            (Path(folder) / str(place)).mkdir()
            extract(front, fresh, digests, np.arange(len(fresh)))

        bare()
        pairs = [(timed(bare), timed(lambda place=place: whole(place))) for place in range(given.rounds)]
    by_clock = min(one[0] for one, _ in pairs) / min(one[0] for _, one in pairs)
    by_processor = min(one[1] for one, _ in pairs) / min(one[1] for _, one in pairs)
    found = {
        "network": front.settings.backbone,
        "pictures": given.pictures,
        "size": given.size,
        "threads": torch.get_num_threads(),
        "rate_against_bare_forward_pass": round(by_clock, 3),
        "the_same_by_processor_time": round(by_processor, 3),
        "bare_milliseconds_a_picture": round(1e3 * min(one[0] for one, _ in pairs) / given.pictures, 2),
    }
    for name, value in found.items():
        print(f"{name.replace('_', ' '):<32}{value}")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
