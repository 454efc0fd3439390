"""The model card: what a model is, what it was trained on, how good it is and what it must not be used for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecbm._version import __version__
from ecbm.train.model import ConceptBottleneck

__all__ = ["model_card"]

_METRICS = {
    "class_accuracy": "class accuracy",
    "class_f1": "class F1 (macro)",
    "ece": "class calibration error",
    "rmse": "error (root mean square)",
    "mae": "error (mean absolute)",
    "r2": "R²",
    "concept_accuracy": "concept accuracy",
    "concept_f1": "concept F1 (mean)",
    "concept_auc": "concept AUC (mean)",
    "concept_grade_error": "error of graded concepts, in grades (mean)",
    "concept_r2": "R² of measured concepts (mean)",
}


def model_card(
    model: ConceptBottleneck, metrics: dict[str, Any] | None = None, about: Mapping[str, Any] | None = None
) -> str:
    """The card as Markdown. ``about`` adds the data's sizes, where metrics were taken, and the edit history."""
    about = about or {}
    recipe, training = model.recipe, model.provenance.training
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        "# Concept bottleneck model",
        "",
        f"A {recipe.regime} concept bottleneck model ({recipe.to_dict()['backbone']} backbone, bottleneck of "
        f"{recipe.bottleneck}) with {len(model.concept_names)} concepts in {len(model.groups)} groups and "
        f"{model.said_target}; {parameters:,} parameters. Written by ecbm {__version__}.",
        "",
        "## Load it",
        "",
        "```python",
        "import ecbm",
        'model = ecbm.load("path/to/this/folder")',
        "model.predict(x); model.predict_concepts(x)    # names; .to_frame() has the probabilities",
        "```",
        "",
        "`model.safetensors` holds every tensor by name; `config.json` names, recipe and shapes.",
        "",
        "## Training",
        "",
        f"- data fingerprint: `{model.provenance.data_fingerprint or 'unknown'}`",
        f"- L2: concepts {recipe.concept_regularisation:g}, labels {recipe.label_regularisation:g}; "
        f"seed {recipe.seed}",
    ]
    for key, text in (("concept_gradient_norm", "concept head"), ("label_gradient_norm", "label head")):
        if key in training:
            lines.append(f"- {text} solved to gradient norm {training[key]:.1e}")
    lines += _data_lines(about.get("data") or {})
    if metrics:
        lines += [
            "",
            "## Metrics" + (f" on {about['split']}" if about.get("split") else ""),
            "",
            "| metric | value |",
            "|---|---|",
        ]
        lines += [f"| {text} | {metrics[key]:.4f} |" for key, text in _METRICS.items() if key in metrics]
    if about.get("history"):
        lines += [
            "",
            "## Edit history",
            "",
            *(f"{number}. {line}" for number, line in enumerate(about["history"], 1)),
        ]
    lines += [
        "",
        "## Concepts",
        "",
        *_concept_lines(model),
        "",
        *_target_lines(model),
        "",
        "## Limits",
        "",
        "Predictions hold for data like the training data. Concept probabilities are predictions, not findings: "
        f"check them before acting on {'the number' if model.predicts_number else 'a class'}. Setting a concept by "
        f"hand changes {'the number' if model.predicts_number else 'the class'} only through the label head, not "
        "through what the picture shows.",
        "",
    ]
    return "\n".join(lines)


def _target_lines(model: ConceptBottleneck) -> list[str]:
    if model.target_scaling is None:
        return ["## Classes", "", ", ".join(model.class_names)]
    unit = f" in {model.target_unit}" if model.target_unit else ""
    mean, scale = model.target_scaling.tolist()
    return [
        "## What it predicts",
        "",
        f"The number **{model.class_names[0]}**{unit}; in the training data {mean:.6g} ± {scale:.4g}.",
    ]


def _concept_lines(model: ConceptBottleneck) -> list[str]:
    types = model.layout.declared
    lines = []
    for group, members in model.groups.items():
        said = ", ".join(members)
        if group in types:
            concept = model.layout.by_name[group]
            unit = f" in {concept.unit}" if concept.unit else ""
            words = {"categorical": "one of", "ordinal": "graded", "continuous": f"measured{unit}"}[concept.type]
            said = f"{words} {', '.join(concept.values)}".strip()
        lines.append(f"- **{group}**: {said}")
    return lines


def _data_lines(shape: Mapping[str, Any]) -> list[str]:
    if not shape:
        return []
    sizes = shape["splits"]
    splits = ", ".join(f"{name} {sizes[name]}" for name in ("train", "val", "test") if name in sizes)
    size = " × ".join(map(str, shape["input_shape"]))
    return [
        "",
        "## Data",
        "",
        f"{shape['samples']} samples ({splits}), inputs of {size}. None of them is in this folder.",
    ]
