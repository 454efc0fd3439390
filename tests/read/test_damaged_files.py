"""Damaged files, whatever the damage: a one-line InputError or a sound dataset, never another exception."""

from __future__ import annotations

import io
import warnings
import zipfile

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image

from ecbm.errors import InputError
from ecbm.read.inputs import ImageInputs
from ecbm.read.tables import read_dataset

FRAME = pd.DataFrame(
    {"id": ["a", "b"], "image": ["a.jpg", "b.png"], "label": ["x", "y"], "c": [1.0, None], "d": [0.5, 0.0]}
)


def made_by(write) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def zip_of_pictures(buffer: io.BytesIO) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jpg", made_by(lambda file: noise.save(file, "JPEG")))
        archive.writestr("b.png", made_by(lambda file: noise.save(file, "PNG")))


FILES = {
    "t.csv": FRAME.to_csv(index=False).encode(),
    "t.parquet": made_by(FRAME.to_parquet),
    "x.npy": made_by(lambda file: np.save(file, np.ones((2, 3)))),
    "x.npz": made_by(lambda file: np.savez_compressed(file, np.ones((2, 3)))),
    "p.zip": made_by(zip_of_pictures),
}


@pytest.mark.parametrize("name", FILES)
@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage(tmp_path, name, data):
    for other, content in FILES.items():
        (tmp_path / other).write_bytes(content)
    damaged = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    keep = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    (tmp_path / name).write_bytes(bytes(damaged[:keep]))
    table = tmp_path / ("t.parquet" if name == "t.parquet" else "t.csv")
    options = {"images": tmp_path / "p.zip"} if name == "p.zip" else {"features": tmp_path / "x.npy"}
    if name == "x.npz":
        options = {"features": tmp_path / "x.npz"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of odd pictures before it refuses them
            sample = read_dataset(table, **options)
            assert len(sample.x) == len(sample)
    except InputError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "p.zip"])
@pytest.mark.parametrize("byte", [0x80, 0x40])
def test_one_wrong_byte_anywhere(tmp_path, name, byte):
    """What drawing examples finds once in thousands: text that is not UTF-8, a zip of a future version."""
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    (tmp_path / "t.csv").write_bytes(FILES["t.csv"])
    table = tmp_path / ("t.csv" if name == "p.zip" else name)
    options = {"images": tmp_path / "p.zip"} if name == "p.zip" else {"features": tmp_path / "x.npy"}
    for place in range(len(FILES[name])):
        damaged = bytearray(FILES[name])
        damaged[place] = byte
        (tmp_path / name).write_bytes(bytes(damaged))
        try:
            read_dataset(table, **options)
        except InputError as error:
            message = str(error)
        else:
            message = ""
        assert "\n" not in message


def test_a_file_that_is_no_picture_is_called_that(tmp_path):
    (tmp_path / "a.jpg").write_text("not a picture")
    with pytest.raises(InputError) as caught:
        ImageInputs(tmp_path, ["a.jpg"])
    why = "cannot be decoded (it is no picture of a known kind); replace the file"
    assert str(caught.value) == f"{tmp_path}, picture 'a.jpg' (row 1): {why}"
