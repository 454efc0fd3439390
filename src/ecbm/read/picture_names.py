"""Which pictures a folder or zip holds: found by a sample's id, and classes from the folders they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ecbm.errors import InputError
from ecbm.options import option
from ecbm.read.pictures import open_archive

__all__ = ["PICTURES", "classes_by_folder", "pictures_by_id", "pictures_in"]

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".dcm")
_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def pictures_in(path: Path) -> list[str]:
    """Paths of the pictures in a folder or zip, sorted."""
    if path.is_dir():
        found = [item.relative_to(path).as_posix() for item in path.rglob("*") if item.is_file()]
    else:
        with open_archive(path) as archive:
            found = archive.namelist()
    return sorted(name for name in found if name.lower().endswith(PICTURES))


def pictures_by_id(source: Path, ids: Sequence[str]) -> list[str]:
    """The picture of every id: the one file whose path, name or name without ending it is."""
    if not source.exists():
        raise InputError(f"{source}: no such folder or zip of pictures; check {option('images')}")
    places: dict[str, set[str]] = {}
    for name in pictures_in(source):
        path = PurePosixPath(name)
        for key in {name, path.name, path.stem, str(path.with_suffix(""))}:
            places.setdefault(key, set()).add(name)
    found = []
    for sample in ids:
        names = sorted(places.get(sample, ()))
        if len(names) != 1:
            what = f"{len(names)} pictures ({names[0]!r}, {names[1]!r}, …)" if names else "no picture"
            raise InputError(
                f"{source}: {what} for the id {sample!r}; name the pictures in a column and pass "
                f"{option('image_column', 'its name')}"
            )
        found.append(names[0])
    return found


def classes_by_folder(names: Sequence[str]) -> tuple[list[str], list[str] | None] | None:
    """The class of every picture, which is the folder it lies in, and its split if the top folders are splits.

    ``None`` where that is not certain: pictures in no folder, in folders of different depth, or all in one.

    Examples
    --------
    >>> classes_by_folder(["jay/1.jpg", "robin/2.jpg"])
    (['jay', 'robin'], None)
    """
    parts = [PurePosixPath(name).parts[:-1] for name in names]
    depths = {len(part) for part in parts}
    if len(depths) != 1 or depths == {0}:
        return None
    splits = None
    if depths != {1} and all(part[0].casefold() in _SPLITS for part in parts):
        splits = [_SPLITS[part[0].casefold()] for part in parts]
    classes = [part[-1] for part in parts]
    # Folders above the class that differ would make one name stand for several.
    above = {part[:-1] if splits is None else part[1:-1] for part in parts}
    return (classes, splits) if len(set(classes)) > 1 and len(above) == 1 else None
