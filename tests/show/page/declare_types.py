"""Write the types of the workbench's requests and responses for the page's editor and type checker.

``PYTHONPATH=src python tests/show/page/declare_types.py`` writes ``core/api.d.ts`` again after a change of schemas.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import ecbm.show.serve
from ecbm.show.serve import changes, schemas, staged_schemas

FILE = Path(ecbm.show.serve.__file__).parent / "page" / "core" / "api.d.ts"
HEAD = "// Made from the server's schemas by tests/show/page/declare_types.py; a test keeps it true."
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def models() -> dict[str, type[BaseModel]]:
    """All models of the three modules by name."""
    found = {**vars(schemas), **vars(staged_schemas), **vars(changes)}
    return {
        name: value
        for name, value in sorted(found.items())
        if isinstance(value, type) and issubclass(value, BaseModel) and value not in (BaseModel, schemas.Model)
    }


def declared() -> str:
    """The declarations: fields with a default may be left out of what the page sends."""
    chosen = [(model, "validation") for model in models().values()]
    _, asked = models_json_schema(chosen, ref_template="{model}")  # type: ignore[arg-type]
    _, answered = models_json_schema([(model, "serialization") for model, _ in chosen], ref_template="{model}")
    lines = [HEAD, ""]
    for name, schema in answered["$defs"].items():
        request = _is_request(asked["$defs"][name])
        lines += _interface(name, asked["$defs"][name] if request else schema, request)
    return "\n".join(lines) + "\n"


def _is_request(schema: dict[str, Any]) -> bool:
    words = schema.get("description", "")
    return words.startswith(("POST ", "PUT ", "An answer to", "Correct the class", "Remove a picture"))


def _interface(name: str, schema: dict[str, Any], request: bool) -> list[str]:
    required = set(schema.get("required", [])) if request else set(schema.get("properties", {}))
    lines = [f"export interface {name} {{"]
    for field, inside in schema.get("properties", {}).items():
        if "description" in inside:
            lines.append(f"  /** {inside['description']} */")
        lines.append(f"  {field}{'' if field in required else '?'}: {_type(inside)};")
    return [*lines, "}", ""]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    for either in ("anyOf", "oneOf"):
        if either in schema:
            return " | ".join(dict.fromkeys(_type(one) for one in schema[either]))
    if "allOf" in schema:
        return _type(schema["allOf"][0])
    kind = schema.get("type")
    if kind == "array":
        inside = _type(schema.get("items", {}))
        return f"({inside})[]" if "|" in inside else f"{inside}[]"
    if kind == "object":
        return f"Record<string, {_type(schema.get('additionalProperties') or {})}>"
    return PLAIN.get(str(kind), "any")


if __name__ == "__main__":
    FILE.write_text(declared(), encoding="utf-8")
    print(f"wrote {FILE}")
