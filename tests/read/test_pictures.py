"""Pictures as they come from phones, scanners and hospitals: read as a person sees them, by stated rules."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from ecbm.errors import InputError
from ecbm.read.decoding import decode_picture
from ecbm.read.inputs import ImageInputs

RED, BLUE = (250, 10, 10), (10, 10, 250)


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def red_above_blue() -> Image.Image:
    picture = Image.new("RGB", (16, 32), RED)
    picture.paste(BLUE, (0, 16, 16, 32))
    return picture


def read(content: bytes) -> np.ndarray:
    return np.asarray(decode_picture(content))


def grey(values: object, kind: str = "TIFF") -> list[list[int]]:
    """The red channel of a grey picture of these values."""
    return read(encoded(Image.fromarray(np.asarray(values)), kind))[:, :, 0].tolist()


# -- orientation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_read_upright_whichever_way_the_camera_was_held(orientation):
    # What a camera writes for this scene: turned or mirrored back, with the orientation in EXIF.
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    scene = red_above_blue()
    stored = scene.transpose(undo[orientation]) if orientation in undo else scene
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = read(encoded(stored, "PNG", exif=exif))
    assert np.array_equal(upright, np.asarray(scene))


def test_a_rotated_photograph_has_the_size_it_is_looked_at_with(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "a.jpg").write_bytes(encoded(Image.new("RGB", (40, 20), RED), "JPEG", exif=exif))
    assert ImageInputs(tmp_path, ["a.jpg"]).shape == (3, 40, 20)


# -- transparency --------------------------------------------------------------------------------------------


def test_transparent_pixels_are_white():
    picture = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    picture.putpixel((1, 0), (*RED, 255))
    assert read(encoded(picture, "PNG")).tolist() == [[[255, 255, 255], list(RED)]]


def test_half_transparent_pixels_are_halfway_to_white():
    assert read(encoded(Image.new("RGBA", (1, 1), (0, 100, 0, 128)), "PNG"))[0, 0].tolist() == [127, 177, 127]


@pytest.mark.parametrize("mode", ["LA", "P", "L", "RGB"])
def test_transparency_is_found_in_every_way_a_file_can_say_it(mode):
    if mode == "LA":
        content = encoded(Image.new("LA", (1, 1), (0, 0)), "PNG")
    else:
        black = {"P": 0, "L": 0, "RGB": (0, 0, 0)}[mode]
        content = encoded(Image.new(mode, (1, 1), black), "PNG", transparency=black)
    assert read(content)[0, 0].tolist() == [255, 255, 255]


# -- more than eight bits ------------------------------------------------------------------------------------


def test_twelve_bits_in_a_sixteen_bit_file_are_not_black():
    assert grey(np.array([[0, 2048], [4080, 4095]], np.uint16), "PNG") == [[0, 128], [255, 255]]


def test_sixteen_bits_keep_their_high_byte():
    assert grey(np.array([[0, 4096], [32768, 65535]], np.uint16)) == [[0, 16], [128, 255]]


def test_whole_numbers_beyond_sixteen_bits_go_from_smallest_to_largest():
    assert grey(np.array([[-100_000, 0], [50_000, 100_000]], np.int32)) == [[0, 128], [191, 255]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.0, 0.5], [0.25, 1.0]], [[0, 128], [64, 255]]),
        ([[0.0, 100.4], [200.0, 255.0]], [[0, 100], [200, 255]]),
        ([[-1000.0, 0.0], [1000.0, 3000.0]], [[0, 64], [128, 255]]),
        ([[7.0, 7.0], [7.0, 7.0]], [[7, 7], [7, 7]]),
    ],
)
def test_fractions_are_read_by_their_range(values, expected):
    assert grey(np.array(values, np.float32)) == expected


def test_a_float_picture_with_nan_is_refused(tmp_path):
    (tmp_path / "a.tif").write_bytes(encoded(Image.fromarray(np.array([[np.nan]], np.float32)), "TIFF"))
    with pytest.raises(InputError, match=r"'a.tif' \(row 1\): has values that are no numbers"):
        ImageInputs(tmp_path, ["a.tif"]).raw([0])


# -- several pictures in one file ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "WEBP"])
def test_an_animated_file_is_refused_and_says_how_many_pictures_it_holds(tmp_path, kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE, (0, 255, 0))]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match=r"'a' \(row 1\): holds 3 pictures .* save the one that is meant"):
        ImageInputs(tmp_path, ["a"]).raw([0])


def test_a_gif_with_one_picture_is_a_picture():
    assert read(encoded(Image.new("RGB", (4, 4), RED), "GIF")).shape == (4, 4, 3)


def test_a_phones_jpeg_with_a_preview_behind_it_is_one_picture():
    picture = Image.new("RGB", (16, 16), RED)
    content = encoded(picture, "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8), BLUE)])
    assert Image.open(io.BytesIO(content)).n_frames == 2
    assert read(content).shape == (16, 16, 3)


# -- memory --------------------------------------------------------------------------------------------------


def test_all_stores_of_a_process_share_one_limit_of_memory(tmp_path, monkeypatch):
    import gc

    from ecbm.read import pictures

    gc.collect()
    for name in "abc":
        (tmp_path / name).write_bytes(encoded(Image.new("RGB", (8, 8), RED), "PNG"))
    before = pictures._reserved
    monkeypatch.setattr(pictures, "_CACHE_LIMIT_BYTES", before + 2 * 3 * 8 * 8)
    stores = [ImageInputs(tmp_path, [name]) for name in "abc"]
    assert [store._store._pixels is not None for store in stores] == [True, True, False]
    # Without a cache the answers are the same.
    assert stores[2].raw([0]).tolist() == stores[0].raw([0]).tolist()
    del stores[0]
    gc.collect()
    assert ImageInputs(tmp_path, ["a"])._store._pixels is not None


def test_digests_of_pictures_that_are_not_kept_are_made_while_they_are_decoded(tmp_path, monkeypatch):
    from ecbm.read import pictures
    from ecbm.read.inputs import digest_rows

    monkeypatch.setattr(pictures, "_CACHE_LIMIT_BYTES", 0)
    for name in "ab":
        (tmp_path / name).write_bytes(encoded(Image.new("RGB", (8, 8), RED if name == "a" else BLUE), "PNG"))
    inputs = ImageInputs(tmp_path, ["a", "b"])
    pixels = inputs.raw([0, 1])
    for name in "ab":
        (tmp_path / name).unlink()
    from ecbm.read.inputs import TensorInputs

    assert digest_rows(inputs).joined() == digest_rows(TensorInputs(pixels)).joined()
