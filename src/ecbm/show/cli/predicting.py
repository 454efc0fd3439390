"""``ecbm predict``: classes and concepts of any number of inputs, for people, for machines, or into a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecbm.errors import InputError, unknown_name
from ecbm.show.cli import reading
from ecbm.show.cli.common import DeviceOption, JsonOption, VersionOption, WorkspaceArgument, print_json, say
from ecbm.show.tables import print_table
from ecbm.words import counted

if TYPE_CHECKING:
    from torch import Tensor

    from ecbm.keep.workspace import Workspace
    from ecbm.read.inputs import Inputs
    from ecbm.read.table_files import FileOptions
    from ecbm.train.model import ConceptBottleneck

__all__ = ["predict"]

# More rows than this are for a table, not for a terminal.
_MOST_SHOWN = 40


def predict(
    workspace: WorkspaceArgument,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Pictures, folders or zips of pictures, feature arrays (.npy, .npz), tables with the columns that "
            "the model knows, or ids of samples.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Instead of INPUT: all samples of train, val or test.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a concept by hand: 'wing_color=blue=1', or its group: 'wing_color=blue'."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a table (.csv or .parquet) with every probability.", show_default=False),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            help="Column of a table with the rows' ids; by default 'id', or rows are numbered.",
            rich_help_panel=reading.TABLE,
            show_default=False,
        ),
    ] = None,
    missing: reading.MissingOption = None,
    encoding: reading.EncodingOption = None,
    delimiter: reading.DelimiterOption = None,
    decimal: reading.DecimalOption = None,
    sheet: reading.SheetOption = None,
    version: VersionOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict classes (or the number) and concepts; with --set, what would change if a concept were different."""
    from ecbm.keep.workspace import Workspace
    from ecbm.read.columns import Habits
    from ecbm.read.table_files import FileOptions

    if out is not None and out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise InputError(f"{out}: unknown kind of table {out.suffix!r}; give a .csv or .parquet file")
    if not given and split is None:
        raise InputError("nothing to predict; give INPUT (a picture, an array, a sample's id) or --split test")
    if given and split is not None:
        raise InputError("give INPUT or --split, not both")
    opened = Workspace(workspace, device=device)
    chosen = opened.version(version)
    model = opened.model(chosen.version)
    said = FileOptions(encoding, delimiter, sheet, Habits.of(missing or (), decimal))
    values = _settings(settings or [])
    model.resolve_intervention(values, 1)
    names: list[str] = []
    parts: list[Tensor] = []
    for one in [None] if split is not None else given or []:
        found, inputs = _inputs(opened, chosen.version, one, split, model.input_shape, said, id_column)
        names += found if one is None or len(given or []) == 1 else _apart(one, found)
        parts.append(model.concept_logits(inputs))
    predictions = _Predictions.of(model, names, parts, values)
    if out is not None:
        predictions.write(out)
    if as_json:
        # With a table the object stays small: what was predicted is in the file.
        rows = (
            {"written": str(out), "count": len(names)} if out is not None else {"predictions": predictions.plain()}
        )
        print_json({"version": chosen.version, "set": values, **rows})
        return
    if out is not None:
        say(f"{counted(len(names), 'prediction')} written to {out}")
        return
    predictions.show()


@dataclasses.dataclass(frozen=True)
class _Predictions:
    """Probabilities of some inputs as predicted and, where concepts were set by hand, with them set."""

    ids: list[str]
    class_names: tuple[str, ...]
    concept_names: tuple[str, ...]
    classes: Tensor
    concepts: Tensor
    set_classes: Tensor | None
    set_concepts: Tensor | None
    said: Callable[[Sequence[float]], tuple[str, ...]]
    unit: str | None = None
    """Of a predicted number; ``None``: classes are predicted."""

    @classmethod
    def of(
        cls, model: ConceptBottleneck, ids: list[str], parts: Sequence[Tensor], values: Mapping[str, Any]
    ) -> _Predictions:
        import torch

        logits = torch.cat(list(parts))
        concepts, classes = model.concepts_from(logits).detach(), model.classify(logits)
        set_classes = set_concepts = None
        if values:
            set_classes, set_concepts = model.intervene_on_logits(logits, values), concepts.clone()
            for column, numbers in model.resolve_intervention(values, len(logits)).items():
                set_concepts[:, column] = numbers
        unit = model.target_unit if model.predicts_number else None
        names = model.class_names, model.concept_names
        return cls(ids, *names, classes, concepts, set_classes, set_concepts, model.said, unit)

    def plain(self) -> list[dict[str, Any]]:
        """For ``--json``. With ``--set``, ``class``, ``classes`` and ``concepts`` are with the concepts set."""
        after, present = self.set_classes, self.set_concepts
        now, seen = (self.classes, self.concepts) if after is None or present is None else (after, present)
        found = []
        for row, name in enumerate(self.ids):
            item: dict[str, Any] = {"id": name, **self._plain_row(now[row], seen[row])}
            if after is not None:
                item["before"] = self._plain_row(self.classes[row], self.concepts[row])
            found.append(item)
        return found

    def _plain_row(self, classes: Tensor, concepts: Tensor) -> dict[str, Any]:
        found = dict(zip(self.concept_names, concepts.tolist(), strict=True))
        if self.unit is not None:
            return {"number": float(classes[0]), "unit": self.unit, "concepts": found}
        return {
            "class": self.class_names[int(classes.argmax())],
            "runner_up": self._runner_up(classes),
            "classes": dict(zip(self.class_names, classes.tolist(), strict=True)),
            "concepts": found,
        }

    def _runner_up(self, row: Tensor) -> str | None:
        return self.class_names[int(row.topk(2).indices[1])] if len(row) > 1 else None

    def show(self) -> None:
        """For people: a table, or some lines for each input where there is one or where concepts were set."""
        count = min(len(self.ids), _MOST_SHOWN)
        if self.set_classes is not None or len(self.ids) == 1:
            for row in range(count):
                say(*self._lines(row))
        elif self.unit is not None:
            rows = [[self.ids[r], self._number(self.classes[r]), self._present(r)] for r in range(count)]
            headers = ["input", self.class_names[0], "concepts present"]
            print_table(headers, rows, drop=(), names={"concepts present": 30})
        else:
            rows = [[self.ids[r], *self._best(self.classes[r]), self._present(r)] for r in range(count)]
            headers = ["input", "class", "probability", "runner-up", "its probability", "concepts present"]
            text = {"class": 12, "runner-up": 12, "concepts present": 30}
            print_table(headers, rows, drop=("its probability", "runner-up", "probability"), names=text)
        if len(self.ids) > count:
            say(f"… and {len(self.ids) - count:,} more; --out FILE.csv writes all of them")

    def _lines(self, row: int) -> Iterator[str]:
        yield self.ids[row]
        yield from self._number_lines(row) if self.unit is not None else self._class_lines(row)
        if self.set_concepts is not None:
            moved = (self.concepts[row] != self.set_concepts[row]).nonzero().flatten().tolist()
            values = [
                f"{self.concept_names[c]} {float(self.concepts[row, c]):.3f} → {float(self.set_concepts[row, c]):g}"
                for c in moved
            ]
            yield f"  set        {', '.join(values)}"
        yield f"  present    {self._present(row) or 'no concept'}"

    def _class_lines(self, row: int) -> Iterator[str]:
        first, p, second, q = self._best(self.classes[row])
        if self.set_classes is None:
            yield f"  class      {first} {p}"
            yield f"  runner-up  {second} {q}"
            return
        now, now_p, then, then_q = self._best(self.set_classes[row])
        yield f"  class      {first} {p} → {now + ' ' if now != first else ''}{now_p}"
        yield f"  runner-up  {second} {q} → {then + ' ' if then != second else ''}{then_q}"

    def _number_lines(self, row: int) -> Iterator[str]:
        now = "" if self.set_classes is None else f" → {self._number(self.set_classes[row])}"
        yield f"  {self.class_names[0]:<10} {self._number(self.classes[row])}{now}"

    def _number(self, row: Tensor) -> str:
        return f"{float(row[0]):.6g} {self.unit or ''}".strip()

    def _best(self, row: Tensor) -> list[str]:
        values, places = row.topk(min(2, len(row)))
        cells = []
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            cells += [self.class_names[place], f"{value:.3f}"]
        return cells if len(cells) == 4 else [*cells, "–", "–"]

    def _present(self, row: int) -> str:
        values = (self.concepts if self.set_concepts is None else self.set_concepts)[row].tolist()
        return ", ".join(self.said(values))

    def write(self, path: Path) -> None:
        """Every probability as a table: ``class:NAME`` and ``concept:NAME`` a column."""
        import pandas

        from ecbm.files import refusing_places, write_bytes

        columns: dict[str, Any] = {"id": self.ids}
        columns |= self._columns(self.classes if self.set_classes is None else self.set_classes)
        if self.set_classes is not None:
            columns |= {f"{name}_before": cells for name, cells in self._columns(self.classes).items()}
        shown = self.classes if self.set_classes is None else self.set_classes
        found = self.concepts if self.set_concepts is None else self.set_concepts
        if self.unit is None:
            columns |= {f"class:{name}": shown[:, place].numpy() for place, name in enumerate(self.class_names)}
        columns |= {f"concept:{name}": found[:, place].numpy() for place, name in enumerate(self.concept_names)}
        frame = pandas.DataFrame(columns)
        with refusing_places(path):
            if path.suffix.lower() == ".csv":
                write_bytes(path, frame.to_csv(index=False, float_format="%.6g").encode())
            else:
                write_bytes(path, frame.to_parquet(index=False))

    def _columns(self, probabilities: Tensor) -> dict[str, Any]:
        if self.unit is not None:
            return {"number": probabilities[:, 0].numpy()}
        values, places = probabilities.topk(min(2, len(self.class_names)), dim=1)
        columns: dict[str, Any] = {}
        for place, (name, share) in enumerate((("class", "probability"), ("runner_up", "runner_up_probability"))):
            if place < values.shape[1]:
                columns[name] = [self.class_names[index] for index in places[:, place].tolist()]
                columns[share] = values[:, place].numpy()
        return columns


def _settings(texts: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        name, found, value = text.partition("=>=") if "=>=" in text else text.rpartition("=")
        if not found or not name or not value:
            raise InputError(f"--set {text!r}: write CONCEPT=VALUE, for example 'crest=1' or 'wing_color=blue'")
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = value
    return values


def _apart(given: str, names: list[str]) -> list[str]:
    """Names of one input among several: rows of an array are numbers, which need the file's name."""
    path = Path(given)
    return [name if name in (given, path.name) else f"{path.name}:{name}" for name in names]


def _inputs(
    opened: Workspace,
    version: int,
    given: str | None,
    split: str | None,
    shape: tuple[int, ...],
    said: FileOptions,
    id_column: str | None,
) -> tuple[list[str], Inputs]:
    from ecbm.read.features import read_features
    from ecbm.read.inputs import ImageInputs, TensorInputs
    from ecbm.read.picture_names import PICTURES, pictures_in
    from ecbm.read.table_files import TABLES

    if given is None:
        part = opened.data(version).split(split or "")
        return list(part.ids), part.inputs
    path = Path(given)
    size = (shape[1], shape[2]) if len(shape) == 3 else None
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists:
        data = opened.data(version)
        if given not in data.rows_by_id:
            if path.suffix:
                raise InputError(f"{given}: no such file, and no sample has this id")
            raise unknown_name("sample id", given, data.ids)
        return [given], data.inputs.subset([data.row(given)])
    if path.suffix.lower() in (".npy", ".npz"):
        rows = read_features(path)
        if tuple(rows.shape) == shape:
            rows = rows[None]
        elif len(shape) == 1 and tuple(rows.shape) == (shape[0], 1):
            rows = rows.T
        return [str(number) for number in range(len(rows))], TensorInputs(rows)
    if size is None and path.suffix.lower() in TABLES:
        from ecbm.read.new_rows import new_rows

        return new_rows(path, opened.data(version), said, id_column)
    if size is None:
        raise InputError(
            f"{given}: this model reads feature rows; give an array (.npy, .npz), a table or a sample's id"
        )
    if path.is_file() and path.suffix.lower() != ".zip":
        return [path.name], ImageInputs(path.parent, [path.name], size)
    names = pictures_in(path)
    if not names:
        raise InputError(f"{given}: no pictures in it ({', '.join(PICTURES)})")
    return names, ImageInputs(path, names, size)
