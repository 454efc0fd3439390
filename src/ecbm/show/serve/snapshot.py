"""One version in memory: its data, its model, and everything the model says about every sample.

Computed once for each version; features, the slow part, are kept in the workspace's ``cache`` (which an erasure
destroys) and shared by versions whose network is the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.errors import EcbmError
from ecbm.keep import durable
from ecbm.keep.actions import open_editor
from ecbm.keep.facts import Recalled
from ecbm.keep.ledger import canonical
from ecbm.keep.objects import digest_of
from ecbm.keep.records import Version
from ecbm.keep.staged import keep_unless_erased
from ecbm.keep.workspace import Workspace
from ecbm.read.concept_types import Concept
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import ImageInputs, JoinedInputs, TensorInputs
from ecbm.show.serve.schemas import ConceptInfo
from ecbm.show.serve.words import concept_info, number_words
from ecbm.train.model import ConceptBottleneck

__all__ = ["Readings", "Snapshot", "read_snapshot"]

_MOST_FILES = 4


@dataclasses.dataclass
class Readings:
    """What a model says about all samples: features (n, d), concept logits (n, k), probabilities and classes."""

    model: ConceptBottleneck
    features: Tensor
    logits: Tensor
    concepts: Tensor
    bottleneck: Tensor
    scores: Tensor
    outputs: Tensor

    @classmethod
    def of(cls, model: ConceptBottleneck, features: Tensor) -> Readings:
        with torch.no_grad():
            logits = model.concept_logits_from(features)
            bottleneck = model.bottleneck_from(logits)
            scores = model.label_head(bottleneck)
            return cls(
                model, features, logits, model.concepts_from(logits), bottleneck, scores, model.outputs_from(scores)
            )

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The class of every sample; zeros where a number is predicted."""
        return self.outputs.argmax(1).numpy()

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """(n, concepts): yes or no, which value, which grade; 0 for a continuous concept."""
        return coded(self.model.layout.concepts, self.concepts)


def coded(concepts: tuple[Concept, ...], values: Tensor) -> NDArray[np.int64]:
    """What columns say about each concept (n, concepts); -1 where it is missing."""
    out = np.zeros((len(values), len(concepts)), np.int64)
    for place, concept in enumerate(concepts):
        own = values[:, list(concept.columns)]
        if concept.type == "categorical":
            code = own.nan_to_num(-1).argmax(1)
        elif concept.type == "continuous":
            code = torch.zeros(len(own), dtype=torch.long)
        else:
            code = (own >= 0.5).sum(1)
        out[:, place] = torch.where(own.isnan().any(1), -1, code).numpy()
    return out


class Snapshot:
    """A version with what is known about it. Read by many threads; what is computed later is computed once."""

    def __init__(
        self, workspace: Workspace, version: Version, data: Dataset, readings: Readings | None, erasures: int
    ) -> None:
        self.workspace, self.version, self.data, self.erasures = workspace, version, data, erasures
        self._readings = readings
        self._lock = threading.RLock()
        self._editor: tuple[Editor, Recalled] | None = None
        self.kept: dict[Any, Any] = {}
        self.editing = threading.Lock()
        """Held while the editor works: it keeps what it finds out, and one thread at a time may add to that."""

    @property
    def number(self) -> int:
        return self.version.version

    @property
    def trained(self) -> bool:
        return self._readings is not None

    @property
    def readings(self) -> Readings:
        assert self._readings is not None, "routes ask whether there is a model first"
        return self._readings

    @property
    def model(self) -> ConceptBottleneck:
        return self.readings.model

    @cached_property
    def pictures(self) -> bool:
        """Whether samples are pictures, and not rows of a table."""
        shape = tuple(self.data.inputs.shape)
        return len(shape) == 3 and shape[0] in (1, 3)

    @cached_property
    def infos(self) -> list[ConceptInfo]:
        """Every concept for the page, in the order of the layout."""
        plain = [concept_info(concept) for concept in self.data.layout.concepts]
        siblings: dict[str, int] = {}
        for info in plain:
            siblings[info.group] = siblings.get(info.group, 0) + 1
        return [
            concept_info(concept, siblings[info.group])
            for concept, info in zip(self.data.layout.concepts, plain, strict=True)
        ]

    @cached_property
    def info_by_name(self) -> dict[str, ConceptInfo]:
        return {info.name: info for info in self.infos}

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of every concept in the layout."""
        return {concept.name: place for place, concept in enumerate(self.data.layout.concepts)}

    @cached_property
    def labels(self) -> NDArray[Any]:
        return self.data.labels.numpy()

    @cached_property
    def label_codes(self) -> NDArray[np.int64]:
        """(n, concepts): what labels say; -1 where they are missing."""
        return coded(self.data.layout.concepts, self.data.concepts)

    @cached_property
    def concept_wrong(self) -> NDArray[np.bool_]:
        """(n, concepts): model and label differ. Numbers do not count."""
        wrong: NDArray[np.bool_] = (self.label_codes >= 0) & (self.label_codes != self.readings.codes)
        return wrong

    @cached_property
    def class_wrong(self) -> NDArray[np.bool_]:
        """(n,): the class is not the labelled one; never, where a number is predicted."""
        if self.data.predicts_number:
            return np.zeros(len(self.data), bool)
        wrong: NDArray[np.bool_] = self.readings.predicted != self.labels
        return wrong

    @cached_property
    def splits(self) -> NDArray[np.str_]:
        return np.array(self.data.splits)

    @cached_property
    def judged_split(self) -> str:
        """What figures are about: validation samples, or training samples where there are none."""
        return "val" if "val" in self.data.split_sizes else "train"

    def rows(self, split: str) -> NDArray[np.int64]:
        """Rows of a split."""
        key = ("rows", split)
        if key not in self.kept:
            self.kept[key] = np.flatnonzero(self.splits == split)
        found: NDArray[np.int64] = self.kept[key]
        return found

    @cached_property
    def directions(self) -> Tensor:
        """Features (n, d) of length 1 around their mean, whose products are similarities."""
        features = self.readings.features.float()
        centred = features - features.mean(0)
        return torch.nn.functional.normalize(centred.flatten(1), dim=1)

    def similar(self, row: int) -> NDArray[np.float32]:
        """Similarity (-1 to 1) of every sample to one."""
        found: NDArray[np.float32] = (self.directions @ self.directions[row]).numpy()
        return found

    def label_text(self, row: int) -> str:
        if self.data.predicts_number:
            return number_words(float(self.labels[row]), self.data.target_unit)
        return self.data.class_names[int(self.labels[row])]

    def predicted_text(self, row: int) -> str | None:
        if not self.trained:
            return None
        if self.data.predicts_number:
            return number_words(float(self.readings.outputs[row, 0]), self.data.target_unit)
        return self.model.class_names[int(self.readings.predicted[row])]

    def digest(self, row: int) -> str:
        """A short digest of a sample's input, for addresses and ETags."""
        return bytes(self.data.row_digests[row]).hex()[:20]

    def open_editor(self) -> tuple[Editor, Recalled]:
        """The editor of this version, with what earlier edits have found out; made once and kept warm."""
        with self._lock:
            if self._editor is None:
                editor, _, recalled = open_editor(self.workspace, self.number)
                self._editor = editor, recalled
            return self._editor

    def warm(self) -> None:
        """Find out what every edit starts from, before somebody waits for it."""
        rows = self.rows("train")
        with contextlib.suppress(EcbmError, OSError):
            editor, _ = self.open_editor()
            with self.editing:
                editor.apply(Edit(remove_samples=[self.data.ids[int(rows[0])]]), "exact")


def read_snapshot(workspace: Workspace, version: Version, before: Snapshot | None, erasures: int) -> Snapshot:
    """Read a version and what its model says; what the version before shares with it is not computed again."""
    data = workspace.data(version.version)
    data.rows_by_id  # noqa: B018  # made here, not while somebody waits
    if version.model is None:
        return Snapshot(workspace, version, data, None, erasures)
    model = workspace.model(version.version)
    features = _features(workspace.folder, version, model, data, before, erasures)
    snapshot = Snapshot(workspace, version, data, Readings.of(model, features), erasures)
    _ = snapshot.concept_wrong, snapshot.class_wrong, snapshot.splits, snapshot.infos
    return snapshot


def _network(version: Version) -> str:
    """What decides a version's features besides the data: the files of its network."""
    assert version.model is not None
    parts = version.model["parts"]
    return canonical([parts.get("backbone"), parts.get("front")])


def _features(
    folder: Path,
    version: Version,
    model: ConceptBottleneck,
    data: Dataset,
    before: Snapshot | None,
    erasures: int,
) -> Tensor:
    if model.recipe.is_linear:
        return model.features(data)
    network = _network(version)
    same = before is not None and before.trained and _network(before.version) == network
    if same and before is not None and set(data.ids) <= before.data.rows_by_id.keys():
        rows = [before.data.rows_by_id[name] for name in data.ids]
        old = [before.data.row_digests[row] for row in rows]
        if all(bytes(a) == bytes(b) for a, b in zip(old, data.row_digests, strict=True)):
            return before.readings.features[rows]
    path = folder / "cache" / f"served-{digest_of(canonical([network, data.fingerprint]).encode())[:32]}.features"
    with contextlib.suppress(OSError, SafetensorError, KeyError):
        kept = load_file(path)["features"]
        if len(kept) == len(data):
            return kept
    features = model.features(data)
    keep_unless_erased(folder, erasures, lambda: _keep(path, features))
    return features


def _keep(path: Path, features: Tensor) -> None:
    """Keep features for the next start; the oldest files go. A full disk is no reason to fail."""
    durable.make_folder(path.parent)
    durable.replace_unflushed(path, save({"features": features.contiguous()}))
    kept = sorted(path.parent.glob("served-*.features"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in kept[_MOST_FILES:]:
        durable.remove(old)


def picture_kind(data: Dataset) -> str:
    """How pictures are stored: ``files``, ``pixels``, or ``none`` for rows of a table."""
    inputs = data.inputs
    if isinstance(inputs, JoinedInputs):
        inputs = inputs._parts[0]
    if isinstance(inputs, ImageInputs):
        return "files"
    return "pixels" if isinstance(inputs, TensorInputs) and len(inputs.shape) == 3 else "none"
