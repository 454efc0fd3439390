"""What the page and the server say to each other about changes: answers, edits, previews, versions, erasures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ecbm.show.serve.schemas import (
    ConceptName,
    Loading,
    Model,
    Problem,
    Ref,
    SampleId,
    StagedCounts,
    VersionNumber,
    Words,
)
from ecbm.show.serve.staged_schemas import StagedItem

__all__ = [
    "Certificate",
    "CommitRequest",
    "Comparison",
    "Destroyed",
    "Event",
    "ExportRequest",
    "Flip",
    "ForgetCertificate",
    "ForgetMethod",
    "ForgetPlan",
    "ForgetPlanRequest",
    "ForgetRequest",
    "ForgetSample",
    "History",
    "Job",
    "LabelsCorrected",
    "Method",
    "MethodChoice",
    "MetricChange",
    "Move",
    "Moved",
    "MovedOn",
    "Preview",
    "PreviewRequest",
    "Reading",
    "ReadingChanges",
    "Searched",
    "VersionRow",
]

# -- jobs ------------------------------------------------------------------------------------------------


class Job(Model):
    """Something that takes time. Progress comes by /api/events as `job`; `result` says where the outcome is."""

    id: str
    kind: Literal[
        "preview", "commit", "undo", "redo", "train", "export", "forget", "suspicious", "behind", "report"
    ]
    person: str
    state: Literal["waiting", "running", "writing", "done", "failed", "cancelled"]
    progress: Loading
    can_cancel: bool = Field(description="Until the write.")
    problem: Problem | MovedOn | None
    result: str | None = Field(description="Address of the outcome, when done.")
    version: int | None = Field(description="The version it made, or was made for.")


class MovedOn(Problem):
    """409: the model moved on since the page looked. The staged edit was rebased onto the new version."""

    version: int = Field(description="The version that is now the current one.")
    author: str | None
    time: str
    reason: str | None
    words: str = Field(description="What that version did.")
    fits: int = Field(description="How many staged items still fit.")
    of: int
    dropped: list[StagedItem] = Field(description="Items that no longer fit, with why; at most 50.")


# -- preview, commit -------------------------------------------------------------------------------------

Method = Literal["exact", "auto", "retrain"]


class PreviewRequest(Model):
    """POST /api/previews. `version` is the one the page shows; 409 if it is not the current one any more."""

    version: VersionNumber
    method: Method = "exact"
    budget: float = Field(default=0.05, gt=0, le=1, description="For auto: a share of retraining's work.")


class MetricChange(Model):
    name: str
    title: str
    before: float | None
    after: float | None
    right_before: int | None
    right_after: int | None
    of: int
    unit: str = ""
    query: str


class Reading(Model):
    concept: ConceptName
    title: str
    before: float
    after: float


class Flip(Model):
    """A validation picture whose class would change."""

    id: str
    thumb: str | None
    picture: str | None
    label: str
    before: str
    before_probability: float | None
    after: str
    after_probability: float | None
    outcome: Literal["becomes_right", "becomes_wrong", "stays_wrong"]
    because: list[Reading] = Field(description="The concept readings that moved most, at most 3.")


class ReadingChanges(Model):
    """Validation pictures on which the reading of one concept would change sides."""

    concept: ConceptName
    title: str
    count: int
    becomes_right: int
    becomes_wrong: int
    examples: list[Ref] = Field(description="At most 24.")


class Certificate(Model):
    """`proven` in one sentence, and what it leaves out in the same box."""

    state: Literal["none_differ", "at_most", "not_certified"]
    words: str
    leaves_out: str
    could_differ: int | None
    of: int | None
    bound: float | None = Field(default=None, description="Of a predicted number, in its unit.")


class MethodChoice(Model):
    method: Method
    budget: float | None
    title: str
    seconds: float | None = Field(description="Expected; null if nothing is known yet.")
    words: str


class Preview(Model):
    """GET /api/previews/{id}. Everything is counted on validation pictures."""

    id: str
    version: int = Field(description="Made for this version.")
    revision: int
    current: bool = Field(description="Still the current version and the same staged edit.")
    method: Method
    budget: float
    seconds: float
    words: str = Field(description="'6 of 480 validation pictures would change class'.")
    split: str
    of: int
    becomes_right: int
    becomes_wrong: int
    stays_wrong: int
    flips: list[Flip] = Field(description="At most 200, those that become wrong first.")
    flips_total: int
    readings_changed: int
    readings_of: int
    readings: list[ReadingChanges]
    metrics: list[MetricChange] = Field(description="Classes and concepts first, then concepts that change.")
    unchanged_concepts: int
    certificate: Certificate
    methods: list[MethodChoice]
    notes: list[str]
    next_version: int
    largest_change: float | None = Field(default=None, description="Of a predicted number, in its unit.")


class CommitRequest(Model):
    """POST /api/commits."""

    version: VersionNumber
    reason: Words
    method: Method = "exact"
    budget: float = Field(default=0.05, gt=0, le=1)


class Move(Model):
    """POST /api/undo and /api/redo: `version` is the one the page shows."""

    version: VersionNumber
    reason: Annotated[str, StringConstraints(max_length=2000)] = ""


class Moved(Model):
    version: int
    from_version: int
    words: str


# -- history ---------------------------------------------------------------------------------------------


class VersionRow(Model):
    version: int
    parent: int | None
    kind: str
    words: str
    author: str | None
    reason: str | None
    time: str
    state: Literal["current", "plain", "undone", "erased"]
    undone_by: str | None = None
    undone_at: str | None = None
    certified: Certificate | None
    classes_changed: int | None = Field(description="Validation pictures that changed class.")
    classes_of: int | None
    method: str | None
    query: str = Field(description="Pictures whose labels it changed.")
    can_report: bool
    can_export: bool


class History(Model):
    """GET /api/history: newest first."""

    version: int
    revision: int
    total: int
    rows: list[VersionRow]
    staged: StagedCounts
    can_undo: bool
    can_redo: bool
    ledger_hash: str


class LabelsCorrected(Model):
    title: str
    concept: ConceptName | None
    before: str
    after: str
    count: int
    examples: list[Ref]


class Comparison(Model):
    """GET /api/compare: on validation pictures that both versions have."""

    first: int
    second: int
    words: str
    split: str
    of: int
    metrics: list[MetricChange]
    unchanged_concepts: int
    flips: list[Flip]
    flips_total: int
    becomes_right: int
    becomes_wrong: int
    stays_wrong: int
    labels: list[LabelsCorrected]
    people: list[str]
    edits: int


class ExportRequest(Model):
    """POST /api/exports: a job; its `result` is the address of a zip."""

    version: VersionNumber
    onnx: bool = False


# -- forgetting ------------------------------------------------------------------------------------------


class ForgetPlanRequest(Model):
    """POST /api/forget/plan."""

    ids: list[SampleId] = Field(min_length=1, max_length=1000)


class ForgetSample(Model):
    id: str
    thumb: str | None
    split: str | None = Field(description="null: an edit removed it earlier, but the workspace still knows it.")
    label: str | None


class ForgetMethod(Model):
    method: Literal["exact", "retrain"]
    words: str
    seconds: float | None
    complete: bool = Field(description="Nothing that was learnt from the pictures is left.")


class ForgetPlan(Model):
    """What will be destroyed, what stays, what cannot be reached."""

    version: int
    samples: list[ForgetSample]
    unknown: list[str]
    concept_labels: int
    of: int
    destroyed: list[Destroyed]
    stays: list[str]
    not_reached: list[str]
    methods: list[ForgetMethod]
    staged_lost: int = Field(description="Staged items and answers of anybody about these pictures.")
    confirm: str = Field(description="The words to type.")


class Destroyed(Model):
    words: str
    amount: str


class ForgetRequest(Model):
    """POST /api/forget. `confirm` must be the words of the plan."""

    version: VersionNumber
    ids: list[SampleId] = Field(min_length=1, max_length=1000)
    method: Literal["exact", "retrain"]
    reason: Words
    confirm: Annotated[str, StringConstraints(max_length=200)]


class Searched(Model):
    """One line of the audit after an erasure."""

    words: str
    ok: bool
    checked: int


class ForgetCertificate(Model):
    """GET /api/forget/{job}: the audit and the certificate to print. It names no picture."""

    version: int
    time: str
    author: str
    reason: str
    erased: int
    method: str
    words: str
    audit: list[Searched]
    ok: bool
    not_reached: list[str]
    ledger_hash: str
    certificate: Certificate | None


class Event(Model):
    """What /api/events sends; `data` of the event is this as JSON, its name is `kind`.

    `version`: somebody (also on the command line) made another version the current one; `staged`: staged items or
    answers of somebody changed; `job`: a job moved on; `ready`: the model was read; `suspicious`: the list of
    suspicious labels is there; `hello`: the stream begins.
    """

    kind: Literal["version", "staged", "job", "ready", "suspicious", "hello"]
    version: int | None = None
    revision: int | None = None
    by: str | None = None
    words: str = ""
    job: Job | None = None


for _model in (Job, ForgetPlan):
    _model.model_rebuild()
