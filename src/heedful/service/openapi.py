"""The description of the service: OpenAPI 3.1 with an example for each route, and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from heedful.service.idempotency import HEADER, LONGEST
from heedful.service.middleware import PUBLIC, TRACES
from heedful.service.problems import MEDIA, Shape

JSON = "application/json"
_DESCRIPTION = json.loads((Path(__file__).parent / "description.json").read_text(encoding="utf-8"))
# "METHOD path" -> an example of the request and of each answer that is no error.
EXAMPLES: Mapping[str, Mapping[str, Any]] = _DESCRIPTION["examples"]
# Schemas of what is no record of ours: problems (RFC 9457), and OTLP as far as it is read.
SCHEMAS: Mapping[str, Any] = _DESCRIPTION["schemas"]
METHODS = ("get", "put", "post", "patch", "delete")
ONCE: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A call repeated with this key has its effect once and gets the same answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": "^[ -~]+$"},
}
_INVALID = "#/components/schemas/HTTPValidationError"


def operation_id(route: APIRoute) -> str:
    """Return the id of an operation, which generated clients use as its name."""
    return f"{route.tags[0]}_{route.name}" if route.tags else route.name


def describe(app: FastAPI, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return the description, made once, with the errors and the calls that may be repeated."""
    if app.openapi_schema is None:
        spec = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            openapi_version=app.openapi_version,
            routes=app.routes,
        )
        done: set[str] = set()
        for path, method, operation in operations(spec):
            problems = not path.startswith(tuple(shapes))
            _errors(operation, problems)
            if method == "post":
                operation.setdefault("parameters", []).append(ONCE)
            if path in PUBLIC:
                operation.pop("security", None)
            for status, answer in operation["responses"].items():
                if status < "3" and path != TRACES:
                    _require_all(spec, answer, done)
            _add_examples(operation, EXAMPLES.get(f"{method.upper()} {path}", {}))
        schemas = spec["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schemas["Problem"] = SCHEMAS["Problem"]
        app.openapi_schema = spec
    return app.openapi_schema


def operations(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every path, method and operation."""
    for path, item in spec["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def _errors(operation: dict[str, Any], problems: bool) -> None:
    """Describe the errors of an operation: problems, or a shape of the route's own."""
    found = operation["responses"].get("422", {}).get("content", {}).get(JSON, {})
    if found.get("schema", {}).get("$ref") == _INVALID:
        del operation["responses"]["422"]
    if problems:
        content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    else:
        content = {JSON: {"schema": {"type": "object"}}}
    told = {"description": "An error.", "content": content}
    operation["responses"].setdefault("default", told)


def _require_all(spec: Mapping[str, Any], part: Any, done: set[str]) -> None:
    """Declare every field of an answer as sent, even if the record has a default."""
    if isinstance(part, list):
        for one in part:
            _require_all(spec, one, done)
    if not isinstance(part, dict):
        return
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if name not in done:
            done.add(name)
            _require_all(spec, spec["components"]["schemas"][name], done)
        return
    if "properties" in part and "type" in part:
        part["required"] = list(part["properties"])
        for field in part["properties"].values():
            field.pop("default", None)
    for one in list(part.values()):
        _require_all(spec, one, done)


def _bodies(operation: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON bodies of an operation: that of "request", and those of the statuses."""
    bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
    for name, body in bodies.items():
        if JSON in body.get("content", {}):
            yield name, body["content"][JSON]


def _add_examples(operation: dict[str, Any], examples: Mapping[str, Any]) -> None:
    for name, media in _bodies(operation):
        if name in examples:
            media["example"] = examples[name]


def examples(operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the examples of an operation: that of its request, and those of its statuses."""
    return {name: media["example"] for name, media in _bodies(operation) if "example" in media}


def page(spec: Mapping[str, Any]) -> str:
    """Return the description as a page without scripts, for people."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(spec['info']['title'])}</title>",
        f"<style>{STYLE}</style><h1>heedful {escape(spec['info']['version'])}</h1>",
        f"<p>{escape(spec['info']['summary'])} <a href=/openapi.json>openapi.json</a></p>",
    ]
    for path, method, operation in operations(spec):
        told = operation.get("description", "")
        head = f"<code><b>{method.upper()}</b> {escape(path)}</code>"
        parts.append(f"<details><summary>{head} {escape(told.partition('.')[0])}</summary>")
        parts.append(f"<p>{escape(told)}</p>")
        for name, shown in examples(operation).items():
            text = json.dumps(shown, indent=2, ensure_ascii=False)
            parts.append(f"<h2>{escape(name)}</h2><pre>{escape(text)}</pre>")
        parts.append("</details>")
    return "\n".join([*parts, "</html>"])


STYLE = "body{font:1rem/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}"
STYLE += "details{border-top:1px solid #ccc;padding:.4rem 0}pre{overflow:auto}h2{font-size:1rem}"
