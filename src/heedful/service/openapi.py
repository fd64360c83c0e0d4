"""What the service says of itself: OpenAPI 3.1, with an example for each route, and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from heedful.service.idempotency import HEADER, LONGEST
from heedful.service.middleware import PUBLIC
from heedful.service.problems import MEDIA, Shape

METHODS = ("get", "put", "post", "patch", "delete")
PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "What went wrong (RFC 9457); `code` is stable, further members depend on it.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "in": {"type": "string"},
                    "pointer": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
    "example": {
        "type": "about:blank",
        "title": "Nothing is stored under this id",
        "status": 404,
        "code": "not_found",
        "detail": "no loop 'a'",
    },
}
ONCE: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "The call made again with it has its effect once, and the same answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": "^[ -~]+$"},
}
_INVALID = "#/components/schemas/HTTPValidationError"


def named(route: APIRoute) -> str:
    """The id of an operation, as clients made from the description call it."""
    return f"{route.tags[0]}_{route.name}" if route.tags else route.name


def describe(app: FastAPI, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """The description, made once: errors as they are, calls that may come again."""
    if app.openapi_schema is None:
        spec = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            openapi_version=app.openapi_version,
            routes=app.routes,
        )
        for path, method, operation in operations(spec):
            problems = not path.startswith(tuple(shapes))
            _errors(operation, problems)
            if method == "post":
                operation.setdefault("parameters", []).append(ONCE)
            if path in PUBLIC:
                operation.pop("security", None)
        schemas = spec["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schemas["Problem"] = PROBLEM
        for media in [*schemas.values(), *_contents(spec)]:
            if "example" in media:
                _with_nulls(spec, media.get("schema", media), media["example"])
        app.openapi_schema = spec
    return app.openapi_schema


def operations(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every path and method, with what is said of it."""
    for path, item in spec["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def _errors(operation: dict[str, Any], problems: bool) -> None:
    """Say how errors are told: as problems, or in a shape of the route's own."""
    found = operation["responses"].get("422", {}).get("content", {}).get("application/json", {})
    if found.get("schema", {}).get("$ref") == _INVALID:
        del operation["responses"]["422"]
    if problems:
        content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    else:
        content = {"application/json": {"schema": {"type": "object"}}}
    told = {"description": "An error.", "content": content}
    operation["responses"].setdefault("default", told)


def _contents(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for _, _, operation in operations(spec):
        for one in (operation.get("requestBody", {}), *operation["responses"].values()):
            yield from one.get("content", {}).values()


def _with_nulls(spec: Mapping[str, Any], schema: Mapping[str, Any], shown: Any) -> None:
    """Put back into an example what is null: FastAPI leaves it out, and the schema may need it."""
    for one in (schema, *schema.get("anyOf", ())):
        whole = _whole(spec, one)
        if isinstance(shown, dict):
            for name, part in whole.get("properties", {}).items():
                if name in shown:
                    _with_nulls(spec, part, shown[name])
                elif name in whole.get("required", ()) and _nullable(_whole(spec, part)):
                    shown[name] = None
        elif isinstance(shown, list) and "items" in whole:
            for each in shown:
                _with_nulls(spec, whole["items"], each)


def _nullable(schema: Mapping[str, Any]) -> bool:
    return {"type": "null"} in schema.get("anyOf", ()) or not {"type", "anyOf", "$ref"} & {*schema}


def _whole(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema, where it is only named here."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = spec["components"]["schemas"][name] if name else schema
    return found


def page(spec: Mapping[str, Any]) -> str:
    """The description as a page without scripts, for people."""
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
        for name, shown in examples(spec, operation).items():
            text = json.dumps(shown, indent=2, ensure_ascii=False)
            parts.append(f"<h2>{escape(name)}</h2><pre>{escape(text)}</pre>")
        parts.append("</details>")
    return "\n".join([*parts, "</html>"])


STYLE = "body{font:1rem/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}"
STYLE += "details{border-top:1px solid #ccc;padding:.4rem 0}pre{overflow:auto}h2{font-size:1rem}"


def examples(spec: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, Any]:
    """What a request and its answers hold, by example: "request", and the statuses."""
    given = {"request": operation.get("requestBody", {}), **operation["responses"]}
    found = {
        name: _example(spec, content.get("application/json", {}))
        for name, one in given.items()
        if name != "default" and (content := one.get("content"))
    }
    return {name: one for name, one in found.items() if one is not None}


def _example(spec: Mapping[str, Any], media: Mapping[str, Any]) -> Any:
    if "example" in media:
        return media["example"]
    for one in media.get("examples", {}).values():
        return one.get("value")
    return _of_schema(spec, media.get("schema", {}))


def _of_schema(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """The example of a schema, or one made of those of its parts; None where they have none."""
    schema = _whole(spec, schema)
    if "example" in schema:
        return schema["example"]
    if schema.get("examples"):
        return schema["examples"][0]
    if "items" in schema and (one := _of_schema(spec, schema["items"])) is not None:
        return [one]
    parts = {key: _of_schema(spec, one) for key, one in schema.get("properties", {}).items()}
    known = {key: one for key, one in parts.items() if one is not None}
    if known:
        _with_nulls(spec, schema, known)
    return known or None
