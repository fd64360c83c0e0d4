"""OTLP as JSON, as far as it is read: the JSON form of an ExportTraceServiceRequest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
_TEXT: Schema = {"type": "string"}
_NANOSECONDS: Schema = {
    "anyOf": [
        {"type": "string", "pattern": "^[0-9]{1,19}$"},
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    ],
    "description": "Since 1970.",
}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(**values: Schema) -> Schema:
    """An AnyValue, which has one of these."""
    return {**_object(**values), "maxProperties": 1, "additionalProperties": False}


_PLAIN: Mapping[str, Schema] = {
    "stringValue": _TEXT,
    "boolValue": {"type": "boolean"},
    "intValue": {"anyOf": [{"type": "string", "pattern": "^-?[0-9]{1,19}$"}, {"type": "integer"}]},
    "doubleValue": {"type": "number"},
    "bytesValue": _TEXT,
}
_VALUE = _one_of(
    **_PLAIN,
    arrayValue=_object(values=_list(_one_of(**_PLAIN))),
    kvlistValue=_object(values=_list(_object(key=_TEXT, value=_one_of(**_PLAIN)))),
)
_ATTRIBUTES = _list(_object(key=_TEXT, value=_VALUE))
_CODE: Schema = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2}, _TEXT]}
_SPAN = {
    **_object(
        traceId={"type": "string", "pattern": "^[0-9a-fA-F]{32}$"},
        spanId={"type": "string", "pattern": "^[0-9a-fA-F]{16}$"},
        parentSpanId={"type": "string", "pattern": "^([0-9a-fA-F]{16})?$"},
        flags={"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
        name=_TEXT,
        startTimeUnixNano=_NANOSECONDS,
        endTimeUnixNano=_NANOSECONDS,
        attributes=_ATTRIBUTES,
        status=_object(code=_CODE, message=_TEXT),
        events=_list(_object(name=_TEXT, attributes=_ATTRIBUTES)),
    ),
    "required": ["traceId", "spanId"],
}
REQUEST = _object(resourceSpans=_list(_object(scopeSpans=_list(_object(spans=_list(_SPAN))))))
RESPONSE = _object(
    partialSuccess=_object(
        rejectedSpans={"type": "string", "pattern": "^[0-9]+$"}, errorMessage=_TEXT
    )
)
EXAMPLE: dict[str, Any] = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "5b8aa5a2d2c872e8321cf37308d69df2",
                            "spanId": "00f067aa0ba902b7",
                            "name": "invoke_agent clerk",
                            "startTimeUnixNano": "1769860800000000000",
                            "endTimeUnixNano": "1769860811000000000",
                            "attributes": [
                                {
                                    "key": "gen_ai.operation.name",
                                    "value": {"stringValue": "invoke_agent"},
                                }
                            ],
                        }
                    ]
                }
            ]
        }
    ]
}
