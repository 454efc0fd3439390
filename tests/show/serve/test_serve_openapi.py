"""The description of the routes is true: whatever it allows is answered as it says, and nothing falls over."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serve_kit import ADDRESS, Workbench, workbench

# Requests that name something.
ASKED = (
    "Answer",
    "QuestionKey",
    "Try",
    "StageClass",
    "StageRemoval",
    "StageConceptRemoval",
    "StageRename",
    "StageMerge",
)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def opened(table_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with workbench(Path(shutil.copytree(table_made, tmp_path_factory.mktemp("api") / "table"))) as found:
        yield found


def knowing(described: dict[str, Any], known: dict[str, list[Any]]) -> dict[str, Any]:
    """The description with what really exists as the values to try: guesses alone find nothing."""
    told = json.loads(json.dumps(described))
    for operations in told["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] in known:
                    parameter["schema"] = {"enum": known[parameter["name"]]}
    for name in ASKED:
        properties = told["components"]["schemas"][name]["properties"]
        properties |= {key: {"enum": known[key]} for key in properties if key in known}
    return told


SETTINGS = hypothesis.settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


@pytest.mark.parametrize("guessing", [True, False])
def test_whatever_the_description_allows_is_answered_as_it_says(opened: Workbench, guessing: bool) -> None:
    client = opened.browser("anna")
    described = client.get("/openapi.json").json()
    del described["paths"]["/api/events"]  # a stream has no end to wait for
    data = opened.bench.current().data
    known: dict[str, list[Any]] = {
        "id": list(data.ids[:3]), "ids": [f"{data.ids[0]},{data.ids[1]}"], "near": [data.ids[1]],
        "concept": list(data.concept_names), "other": list(data.concept_names), "name": list(data.concept_names),
        "label": list(data.class_names), "predicted": list(data.class_names), "class_name": list(data.class_names),
        "version": [0, 1], "first": [0, 1], "second": [0, 1], "changed": [0, 1],
        "values": [{"round": 1}, {"round": 0.5, "size=big": 0}], "value": ["present", "absent"],
    }  # fmt: skip
    schema = schemathesis.openapi.from_dict(described if guessing else knowing(described, known))
    schema.app, schema.config.base_url = opened.client.app, ADDRESS
    cookies = {opened.door.cookie: client.cookies[opened.door.cookie]}
    asked: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()

        @SETTINGS
        @hypothesis.given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            reply = case.call(headers={"origin": ADDRESS}, cookies=cookies)
            asked.setdefault(case.operation.label, set()).add(reply.status_code)
            case.validate_response(reply, checks=CHECKS)

        ask()
    assert len(asked) > 40
    answered = {label for label, many in asked.items() if min(many) < 300}
    assert guessing or {"GET /api/sample", "GET /api/question", "POST /api/answers", "POST /api/try"} <= answered
    assert 403 not in {status for label, many in asked.items() for status in many if "/enter" not in label}


def test_every_route_of_the_table_is_described_and_the_other_way_round(opened: Workbench) -> None:
    described = opened.browser("anna").get("/openapi.json").json()["paths"]
    text = (Path(__file__).parents[3] / "docs" / "workbench_api.md").read_text("utf-8")
    for path, methods in described.items():
        if path == "/page/{name}":
            continue
        for method in methods:
            row = [line for line in text.splitlines() if line.startswith("|") and f"`{path}" in line]
            assert any(method.upper() in line for line in row), f"{method} {path} is not in docs/workbench_api.md"
