"""Miniature archives in the official layouts, and small files of the kinds people bring."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from archives_kit import celeba_files, cub_files, oai_files, write_picture


@pytest.fixture
def picture():
    """Write a picture of noise."""
    return write_picture


@pytest.fixture
def table(tmp_path):
    """Write a CSV table and a feature array with as many rows; returns (table, features)."""

    def write(text: str, rows: int = 2, name: str = "samples.csv", encoding: str = "utf-8") -> tuple[Path, Path]:
        path, features = tmp_path / name, tmp_path / "x.npy"
        path.write_bytes(text.encode(encoding))
        np.save(features, np.arange(rows * 3, dtype=np.float32).reshape(rows, 3))
        return path, features

    return write


@pytest.fixture
def cub_archive(tmp_path):
    return partial(cub_files, tmp_path / "archive")


@pytest.fixture
def celeba_archive(tmp_path):
    return partial(celeba_files, tmp_path / "celeba")


@pytest.fixture
def oai_archive(tmp_path):
    return partial(oai_files, tmp_path / "oai")
