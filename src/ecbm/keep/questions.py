"""What can be asked of a version: which labels are wrong, what made it say this, did it work; and it as a page.

How each is answered is written in :mod:`ecbm.verify`, :mod:`ecbm.keep.auditing` and the report; they are imported
when they are needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ecbm.keep.records import Records

if TYPE_CHECKING:
    import pandas

    from ecbm.devices import Device
    from ecbm.keep.workspace import Workspace
    from ecbm.read.dataset import Dataset
    from ecbm.train.model import ConceptBottleneck
    from ecbm.verify.influence.asking import Sets
    from ecbm.verify.suggest.read_answers import Answer
    from ecbm.verify.suggest.suggestions import Suggestions

__all__ = ["Questions"]


class Questions(Records):
    """The verbs of :class:`ecbm.Workspace` that change nothing but what is kept for the next question."""

    if TYPE_CHECKING:
        device: Device

        def data(self, number: int | str | None = None) -> Dataset: ...
        def model(self, number: int | str | None = None) -> ConceptBottleneck: ...

    def evaluate(self, split: str = "test", version: int | str | None = None) -> dict[str, Any]:
        """How good a version is on a split (:func:`ecbm.evaluate`)."""
        from ecbm.verify.evaluate import evaluate

        number = self.version(version).version
        return evaluate(self.model(number), self.data(number).split(split))

    def suggest(
        self,
        *,
        version: int | str | None = None,
        limit: int | None = None,
        least: float = 0.5,
        concepts: Sequence[str] = (),
        split: str = "train",
        by: Mapping[str, str] | str | None = None,
        answers: Iterable[Answer] | str | os.PathLike[str] = (),
    ) -> Suggestions:
        """Labels that are probably wrong (:func:`ecbm.suggest`); ``.to_frame()`` is a table, ``.to_edit()`` edits.

        Parameters
        ----------
        version
            The current one by default.
        limit, least, concepts, split
            As for :func:`ecbm.suggest`.
        by
            Who labelled what: from ids to names, or as on the command line ``"[FILE:]COLUMN"``: a column of the
            table that the data was read from, or of another file.
        answers
            What was found about earlier suggestions, or the path of a file that holds it.

        Returns
        -------
        Suggestions
            Best first.

        Examples
        --------
        >>> import ecbm, tempfile
        >>> data, recipe = ecbm.datasets.breast_cancer(), ecbm.Recipe(backbone="linear")
        >>> workspace = ecbm.Workspace.create(tempfile.mkdtemp(), data, recipe)
        >>> _ = workspace.train()
        >>> found = workspace.suggest(least=0.1, limit=5)
        >>> list(found.to_frame().columns)[:5]
        ['id', 'concept', 'recorded', 'value', 'score']
        >>> workspace.preview(found.to_edit())["method"]
        'auto'
        """
        from ecbm.verify.suggest.read_answers import read_annotators, read_answers
        from ecbm.verify.suggest.suggest import suggest

        number = self.version(version).version
        model, data = self.model(number), self.data(number)
        people = read_annotators(by, data.ids, self._source_table()) if isinstance(by, str) else by
        given = read_answers(Path(answers), data) if isinstance(answers, str | os.PathLike) else answers
        return suggest(
            model, data, limit=limit, least=least, concepts=concepts, split=split, by=people, answers=given
        )

    def _source_table(self) -> Path | None:
        """The table that the data was read from, which has columns that a dataset does not keep."""
        source = self.source().split(", ")[0]
        if not source:
            return None
        return Path(source) / "samples.csv" if Path(source).is_dir() else Path(source)

    def influence(
        self,
        of: str | Sequence[str] = "val",
        kind: str = "samples",
        *,
        version: int | str | None = None,
        loss: str = "all",
        label: str | None = None,
        method: str = "auto",
        top: int | None = None,
        exact: int = 0,
        together: Sets | None = None,
    ) -> pandas.DataFrame:
        """What helps and what harms a prediction or a metric of a version, as a table.

        Parameters
        ----------
        version
            The current one by default.
        of, kind, loss, label, method, top, exact, together
            As for :func:`ecbm.influence`. Epochs that training kept are found by themselves.

        Returns
        -------
        pandas.DataFrame
            Most harmful first, as :func:`ecbm.influence` gives it.

        Examples
        --------
        >>> import ecbm, tempfile
        >>> data, recipe = ecbm.datasets.breast_cancer(), ecbm.Recipe(backbone="linear")
        >>> workspace = ecbm.Workspace.create(tempfile.mkdtemp(), data, recipe)
        >>> _ = workspace.train()
        >>> workspace.influence("tumour-019", "concepts", top=2).shape
        (4, 3)
        """
        from ecbm.keep.asking import asking
        from ecbm.verify.influence.asking import influence

        with asking(cast("Workspace", self), version, method=method) as asked:
            return influence(
                asked, of=of, kind=kind, loss=loss, label=label, top=top, exact=exact, together=together
            )

    def verify(
        self,
        depth: str = "quick",
        *,
        version: int | str | None = None,
        forget: str | None = None,
        ids: Sequence[str] | None = None,
        group: str | None = None,
        method: str | None = None,
        samples: int | None = None,
        references: int | None = None,
        pairs: int | None = None,
        seed: int = 0,
        shard: str | None = None,
        processes: int | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Whether a version is what its record says, and whether what was removed from it can still be seen.

        Parameters
        ----------
        depth
            ``"quick"``: certificate, residuals and objectives computed again. ``"erasure"``: membership inference
            on the samples that the version removed, or in a rehearsal. ``"release"``: a rehearsal of many pairs of
            edit and retraining.
        version
            The current one by default.
        forget, ids, group
            Rehearse on samples of a kind (``"random"``, ``"influential"``, ``"canaries"``, ``"subgroup"`` of a
            class or concept), or on these.
        method, options
            How a rehearsal removes them, as for :meth:`edit`; by default as the version was made.
        samples, references, pairs, seed
            How many are forgotten, how many reference models and pairs there are, and the seed of every lot.
        shard
            ``"i/n"``: do the i-th of n shares of the work; a last run without it gives the result.
        processes
            How many processes share the work out; by default as many as there are cores where it is worth it. The
            result does not depend on it.

        Returns
        -------
        dict
            ``verdict``, ``why``, ``edit``, ``controls``, and more (docs/verify.md).
        """
        from ecbm.keep.auditing import verify_workspace
        from ecbm.verify.audit.asked import Asked
        from ecbm.verify.audit.collecting import parse_shard

        asked = Asked(
            depth, method, options, forget, None if ids is None else tuple(ids), group, samples, references, pairs,
            seed, parse_shard(shard), processes,
        )  # fmt: skip
        return verify_workspace(cast("Workspace", self), version, asked)

    def report(
        self,
        version: int | str | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
        audit: dict[str, Any] | str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """A version for readers who did not make it; parameters and result are those of :func:`ecbm.report`."""
        # Reports are drawn by the last room, which leans on this one; it is looked up only when somebody asks.
        drawn: dict[str, Any] = importlib.import_module("ecbm.show.report.make").report(
            self, version, out=out, audit=audit
        )
        return drawn

    def diff(self, first: int | str, second: int | str, split: str | None = None) -> dict[str, Any]:
        """Two versions side by side, as ``ecbm diff --json`` prints it: metrics, data, concepts, predictions."""
        from ecbm.keep.compare import compare_versions

        return compare_versions(cast("Workspace", self), first, second, split)
