"""DICOM files: shown as a viewer shows them."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from ecbm.errors import InputError
from ecbm.read.decoding import decode_picture
from ecbm.read.inputs import ImageInputs

pydicom = pytest.importorskip("pydicom", reason="needs ecbm[dicom]")


def dicom(values: np.ndarray, kind: str = "MONOCHROME2", bits: int = 12, **fields: object) -> bytes:
    """A small uncompressed file."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    file.SOPClassUID, file.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    file.Rows, file.Columns = values.shape[-3:-1] if kind in ("RGB", "YBR_FULL") else values.shape[-2:]
    file.SamplesPerPixel = 3 if kind in ("RGB", "YBR_FULL") else 1
    if file.SamplesPerPixel == 3:
        file.PlanarConfiguration = 0
    file.PhotometricInterpretation = kind
    file.BitsAllocated = 8 * values.dtype.itemsize
    file.BitsStored, file.HighBit = bits, bits - 1
    file.PixelRepresentation = int(values.dtype.kind == "i")
    for name, value in fields.items():
        setattr(file, name, value)
    file.PixelData = values.tobytes()
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def shown(content: bytes) -> list[list[int]]:
    pixels = np.asarray(decode_picture(content))
    assert (pixels == pixels[:, :, :1]).all()
    return pixels[:, :, 0].tolist()


def test_without_a_window_the_range_of_the_picture_is_shown():
    assert shown(dicom(np.array([[100, 300], [200, 500]], np.uint16))) == [[0, 128], [64, 255]]


def test_a_window_is_applied_to_rescaled_values():
    # Hounsfield units: stored − 1024; the window 40 ± 200 of soft tissue.
    values = np.array([[0, 1024 + 40], [1024 + 241, 4095]], np.uint16)
    content = dicom(values, RescaleSlope=1, RescaleIntercept=-1024, WindowCenter=40, WindowWidth=400)
    (air, middle), (above, bone) = shown(content)
    assert (air, above, bone) == (0, 255, 255)
    assert 127 <= middle <= 128


def test_the_first_of_several_windows_is_taken():
    values = np.array([[0, 100]], np.uint16)
    narrow = shown(dicom(values, WindowCenter=50, WindowWidth=100))
    assert shown(dicom(values, WindowCenter=[50, 2000], WindowWidth=[100, 4000])) == narrow == [[0, 255]]


def test_monochrome1_is_bright_where_values_are_small():
    values = np.array([[100, 300], [200, 500]], np.uint16)
    plain = np.array(shown(dicom(values)))
    assert shown(dicom(values, "MONOCHROME1")) == (255 - plain).tolist()


def test_signed_values_are_read_with_their_sign():
    assert shown(dicom(np.array([[-100, 0], [100, 100]], np.int16), bits=16)) == [[0, 128], [255, 255]]


def test_colours_stay_colours():
    values = np.array([[[255, 0, 10], [0, 128, 255]]], np.uint8)
    assert np.asarray(decode_picture(dicom(values, "RGB", 8))).tolist() == values.tolist()


def test_other_colour_spaces_become_rgb():
    # Y, Cb, Cr of pure red.
    values = np.array([[[76, 85, 255]]], np.uint8)
    red, green, blue = np.asarray(decode_picture(dicom(values, "YBR_FULL", 8)))[0, 0].tolist()
    assert red > 250
    assert max(green, blue) < 5


def test_several_frames_are_refused(tmp_path):
    (tmp_path / "a.dcm").write_bytes(dicom(np.zeros((3, 2, 2), np.uint16), NumberOfFrames=3))
    with pytest.raises(InputError, match=r"'a.dcm' \(row 1\): holds 3 pictures \(frames\)"):
        ImageInputs(tmp_path, ["a.dcm"]).raw([0])


def test_without_pydicom_the_message_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.dcm").write_bytes(dicom(np.zeros((2, 2), np.uint16)))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(InputError, match=r"pip install 'ecbm\[dicom\]'"):
        ImageInputs(tmp_path, ["a.dcm"]).raw([0])


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    whole = dicom(np.arange(64, dtype=np.uint16).reshape(8, 8))
    (tmp_path / "a.dcm").write_bytes(whole[:-50])
    with pytest.raises(InputError, match=r"'a.dcm' \(row 1\): cannot be decoded \([^\n]*\); replace the file$"):
        ImageInputs(tmp_path, ["a.dcm"]).raw([0])
