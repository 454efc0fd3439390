"""Pictures without a column that names them, and classes without a column that holds them."""

from __future__ import annotations

import zipfile

import pytest

import ecbm
from ecbm.errors import InputError
from ecbm.options import named_as_flags
from ecbm.read.reading import Asked, read_and_tell


@pytest.fixture
def folder(tmp_path, picture):
    for seed, name in enumerate(["jay/a.png", "robin/b.png", "jay/c.png"]):
        picture(tmp_path / "p" / name, seed)
    return tmp_path / "p"


def test_the_class_is_the_folder_and_the_picture_is_found_by_id(tmp_path, table, folder):
    path, _ = table("id,crest\na,1\nb,0\nc,1\n")
    reading = read_and_tell(path, Asked(images=folder))
    assert reading.data.class_names == ("jay", "robin")
    assert reading.data.labels.tolist() == [0, 1, 0]
    assert reading.data.inputs.names == ["jay/a.png", "robin/b.png", "jay/c.png"]
    assert any("the class is the folder" in remark for remark in reading.remarks)
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        for name in reading.data.inputs.names:
            archive.write(folder / name, name)
    assert ecbm.read_dataset(path, images=tmp_path / "p.zip") == reading.data
    named, _ = table("id,image,crest\na,jay/a.png,1\nb,robin/b.png,0\nc,jay/c.png,1\n", name="named.csv")
    assert ecbm.read_dataset(named, images=folder) == reading.data


def test_top_folders_that_are_splits_are_the_splits(tmp_path, table, picture):
    for seed, name in enumerate(["train/jay/a.png", "train/robin/b.png", "validation/jay/c.png"]):
        picture(tmp_path / "q" / name, seed)
    path, _ = table("id,crest\na,1\nb,0\nc,1\n")
    data = ecbm.read_dataset(path, images=tmp_path / "q")
    assert data.splits == ("train", "train", "val")
    assert data.class_names == ("jay", "robin")


def test_what_is_not_certain_is_refused(tmp_path, table, folder, picture):
    path, _ = table("id,crest\na,1\nd,0\n")
    with pytest.raises(InputError, match="no picture for the id 'd'"):
        ecbm.read_dataset(path, images=folder)
    picture(folder / "robin" / "a.png", 9)
    path, _ = table("id,crest\na,1\nb,0\n")
    with pytest.raises(InputError, match=r"2 pictures \('jay/a.png', 'robin/a.png', …\) for the id 'a'"):
        ecbm.read_dataset(path, images=folder)
    path, _ = table("id,image,crest\na,jay/a.png,1\nc,jay/c.png,0\n")
    with pytest.raises(InputError, match="no column 'label'"):
        ecbm.read_dataset(path, images=folder)


def test_on_the_command_line_messages_about_pictures_name_its_options(table, folder, picture):
    for number in range(20):  # so many are decoded by threads
        picture(folder / f"{number}.png", number, size=(9, 7 if number else 8))
    path, _ = table("id,image,label,crest\n" + "".join(f"s{n},{n}.png,x{n % 2},1\n" for n in range(20)))
    with named_as_flags():
        data = ecbm.read_dataset(path, images=folder)
        with pytest.raises(InputError, match="pass --image-size to resize"):
            _ = data.x
        with pytest.raises(InputError, match="check --images"):
            ecbm.read_dataset(path, images=folder / "none")
        with pytest.raises(InputError, match=r"--splits: 0\.5, 0\.5: give three"):
            ecbm.read_dataset(path, images=folder, splits=(0.5, 0.5))
