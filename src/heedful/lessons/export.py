"""The lines of an export: their fields, their order, and what an untrusted import keeps of them.

Each line is a JSON object whose `is` names its kind: a header, lessons, examples, sightings,
lineage, loops with exposures, rulings, links, and an end with a checksum. `check_record` refuses
any line with a field that is missing, unknown or of another form.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from math import isfinite
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import LONGEST, Example, clip, digest_of
from heedful.lessons.trust import LONGEST_TAG, ORDER, TAGS

Plain = Mapping[str, Any]
# What the import of a record did.
Effect = Literal["new", "changed", "known", "rejected"]
Allows = Callable[[Any], bool]
Allowed = tuple[Allows, str]
FORMAT = "heedful memory"
VERSION = 1
END = "end"
# The ruling that trusts an import: it is about one database and never exported.
IMPORT = "import"
# Bytes of one line, a thousand times the longest lesson of a loop.
LONGEST_LINE = 64 * 2**20
DEEPEST = 16
# Characters of the `meta` of an untrusted lesson.
LONGEST_META = 20_000
# How two lessons are linked. A link names its lessons, and remains when they are removed.
RELATIONS = ("became", "strategy")
STATES = ("verified", "candidate", "quarantined", "superseded", "retired")


def encode_line(record: Plain) -> bytes:
    """Return the line of a record: ASCII, the same bytes for the same record."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def lowest_state(*states: str) -> str:
    """Return the state in which a text is used least."""
    return max(states, key=STATES.index)


def lost_parent(sources: Iterable[str], parents: Iterable[str] = ()) -> Plain:
    """Return what remains known of an example that was removed: its sources and parents."""
    return {"sources": sorted(sources), "parents": sorted(parents)}


def split_name(name: str) -> tuple[str, ...]:
    """Return kind, signature and, for an example, its digest."""
    return tuple(name.split("/"))


def sort_key(record: Plain) -> tuple[Any, ...]:
    """Return the position of a record: the records of an export ascend, so none is there twice."""
    match record["is"]:
        case "lesson":
            return 1, record["kind"], record["signature"], 0
        case "example":
            return 1, *split_name(record["lesson"]), 1, record["digest"]
        case "sighting":
            return 2, *split_name(record["lesson"]), record["at"], record["loop"], record["text"]
        case "lineage":
            return 3, *split_name(record["child"])
        case "loop":
            return 4, record["loop"], record["at"]
        case "ruling":
            about = (record[name] for name in ("action", "subject", "by", "why"))
            return 5, record["at"], *about, json.dumps(record["record"])
        case "link":
            return (
                6,
                *split_name(record["child"]),
                record["relation"],
                *split_name(record["parent"]),
            )
        case _:
            return (0,)


def credit(exposure: Plain, outcome: Plain | None) -> tuple[int, int]:
    """Return what one loop adds to the counts of how often a lesson helped and hurt."""
    if outcome is None or not exposure["shown"]:
        return 0, 0
    again = split_name(exposure["lesson"])[1] in outcome["signatures"]
    return int(outcome["right_at_once"]), int(again)


def distrust(record: Plain, source: str, now: float) -> Plain | None:
    """Return what an untrusted import keeps of a record; None if nothing.

    Texts become external, get the import as a source, are clipped and wait in quarantine. Dropped
    are what others decided, measured or proved, search words and vectors, which an operator who
    releases a text would not see, times in the future, and which lesson superseded which.
    """
    unvouched = {"trust": "external"}
    if record["is"] in ("lesson", "example"):
        unvouched["state"] = lowest_state(record["state"], "quarantined")
    match record["is"]:
        case "lesson":
            listed = record["listed"]["seen"]
            counts = {"seen": max(1, listed), "helped": 0, "hurt": 0, "source": source}
            counts["listed"] = {"seen": listed, "helped": 0, "hurt": 0}
            claims = {"pinned": False, "apart": False, "useful": 1.0, "last_shown": 0.0}
            tags = [clip(tag)[:LONGEST_TAG] for tag in record["tags"][:TAGS]]
            short: dict[str, Any] = {"text": clip(record["text"]), "tags": tags}
            times = {name: min(record[name], now) for name in ("first_seen", "last_seen")}
            if len(json.dumps(record.get("meta"))) > LONGEST_META:
                short["meta"] = {}
            return {**record, **short, **counts, **claims, **times, **unvouched}
        case "example":
            origins = sorted({*record["origins"], source} - {""})
            at = min(record["at"], now)
            parts = {n: clip(p) if isinstance(p, str) else p for n, p in record["example"].items()}
            bare = {"says": clip(record["says"]), "example": parts, "origins": origins, "at": at}
            return {**record, **bare, "words": None, "vector": None, **unvouched}
        case "sighting":
            rests = {**unvouched, "parents": [lost_parent([source])]}
            sources = [{**one, **rests} for one in record["told"]]
            return {**record, "text": clip(record["text"]), "told": sources}
        case "lineage":
            return record
        case "link" if record["relation"] == "strategy":
            return {**record, "at": min(record["at"], now)}
        case _:
            return None


def check_record(record: Any) -> Plain:
    """Return the record if all its fields are allowed. Raises InvalidInput."""
    if not isinstance(record, dict) or record.get("is") not in _FIELDS:
        raise InvalidInput("line", record, f"an object whose `is` is one of {', '.join(_FIELDS)}")
    wanted, kind = _FIELDS[record["is"]], record["is"]
    for name in {**wanted, **record}:
        if name != "is" and name not in wanted:
            raise InvalidInput(f"field of the {kind}", name, f"one of {', '.join(wanted)}")
        if name not in record and (kind, name) in _OPTIONAL:
            continue
        if name in wanted and (name not in record or not wanted[name][0](record[name])):
            raise InvalidInput(f"{name} of the {kind}", record.get(name), wanted[name][1])
    if kind == "lesson":
        _check_signature(record)
    return record


def _check_signature(lesson: Plain) -> None:
    """Check the digest, unless a secret, a character or the end of the pattern was removed."""
    kind, pattern = lesson["error_type"], lesson["pattern"]
    if "[redacted: " in kind + pattern or "?" in kind + pattern or len(kind) >= LONGEST:
        return
    if (right := digest_of(kind, pattern)) != lesson["signature"]:
        raise InvalidInput("signature", lesson["signature"], f"that of its pattern, {right}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**53
    return isinstance(value, float) and isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _number_in(least: float, most: float) -> Allows:
    return lambda value: _is_number(value) and least <= value <= most


def _one_of(*values: str) -> Allowed:
    return lambda value: value in values, f"one of {', '.join(values)}"


def _matching(pattern: str) -> Allows:
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _list_of(allows: Allows) -> Allows:
    return lambda value: isinstance(value, list) and all(map(allows, value))


def _or_null(allows: Allows) -> Allows:
    return lambda value: value is None or allows(value)


def _object_of(wanted: Mapping[str, Allows]) -> Allows:
    def allows(value: Any) -> bool:
        fit = isinstance(value, dict) and value.keys() == wanted.keys()
        return fit and all(one(value[name]) for name, one in wanted.items())

    return allows


def _is_example(value: Any) -> bool:
    """Return True for an object with the fields of an Example: texts, and scores by name."""
    texts = {one.name: one.default_factory is MISSING for one in fields(Example)}
    if not isinstance(value, dict) or not {"task", "accepted"} <= value.keys() <= texts.keys():
        return False
    return all((_is_text if texts[name] else _is_scores)(part) for name, part in value.items())


def _is_scores(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_vector(value: Any) -> bool:
    """Return True for as many finite numbers as the name of its space says."""
    if not _object_of({"space": _is_text, "data": _is_text})(value):
        return False
    try:
        data = b64decode(value["data"], validate=True)
    except ValueError:
        return False
    length = len(data) // 4
    if not length or len(data) % 4 or value["space"].rpartition("/")[2] != str(length):
        return False
    return isfinite(sum(struct.unpack(f"<{length}f", data)))


def _is_data(value: Any) -> bool:
    return isinstance(value, dict) and _is_shallow(value)


def _is_shallow(value: Any, room: int = DEEPEST) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return room > 0 and all(_is_shallow(one, room - 1) for one in inner)


_LESSON = "[^/]{1,200}/[0-9a-f]{16}"
_DIGEST = "(?:lesson:)?[0-9a-f]{16}"
_EXAMPLE = f"{_LESSON}/{_DIGEST}"
_is_example_name = _matching(_EXAMPLE)
_is_lost_parent = _object_of({"sources": _list_of(_is_text), "parents": _list_of(_is_example_name)})
_is_parents = _list_of(lambda value: _is_example_name(value) or _is_lost_parent(value))
_is_time = _number_in(0, 253_402_300_800)
_is_share = _number_in(0, 1)
_TEXT: Allowed = (_is_text, "text")
_TEXTS: Allowed = (_list_of(_is_text), "a list of texts")
_COUNT: Allowed = (_is_count, "a whole number of at least 0")
_TIME: Allowed = (_is_time, "a time in seconds since 1970, before the year 10000")
_FLAG: Allowed = (_is_flag, "true or false")
_TRUST, _STATE = _one_of(*ORDER), _one_of(*STATES)
_NAME: Allowed = (_matching(_LESSON), "kind/signature")
_EXPOSURE: Mapping[str, Allows] = {
    "lesson": _matching(_LESSON),
    "shown": _is_flag,
    "share": lambda value: _is_share(value) and value < 1,
    "together": _is_flag,
    "examples": _list_of(_matching(_DIGEST)),
}
_OUTCOME: Mapping[str, Allows] = {
    "right_at_once": _is_flag,
    "calls": _is_count,
    "signatures": _list_of(_is_text),
    "at": _is_time,
}
_SOURCE: Mapping[str, Allows] = {"source": _is_text, "trust": _TRUST[0], "parents": _is_parents}
# Only lessons of an episode have it.
_OPTIONAL = {("lesson", "meta")}
_LISTED = dict.fromkeys(("seen", "helped", "hurt"), _is_count)
_FIELDS: Mapping[str, Mapping[str, Allowed]] = {
    FORMAT: {
        "version": (lambda value: value == VERSION, f"{VERSION}, which this heedful reads"),
        "tenant": _TEXT,
        "project": _TEXT,
        "lessons": _COUNT,
        "spaces": (_is_scores, "an object of counts by embedding space"),
    },
    "lesson": {
        "kind": (_matching("[^/]{1,200}"), "1 to 200 characters without a slash"),
        "signature": (_matching("[0-9a-f]{16}"), "16 hex digits"),
        "error_type": _TEXT,
        "pattern": _TEXT,
        "text": _TEXT,
        "tags": _TEXTS,
        "state": _STATE,
        "trust": _TRUST,
        "importance": (_is_share, "a number of 0 to 1"),
        "source": _TEXT,
        "pinned": _FLAG,
        "apart": _FLAG,
        "useful": (_number_in(0, 2), "a number of 0 to 2"),
        "seen": _COUNT,
        "helped": _COUNT,
        "hurt": _COUNT,
        "listed": (_object_of(_LISTED), "an object of counts: seen, helped, hurt"),
        "first_seen": _TIME,
        "last_seen": _TIME,
        "last_shown": _TIME,
        "meta": (_is_data, f"an object at most {DEEPEST} deep"),
    },
    "example": {
        "lesson": _NAME,
        "digest": (
            _matching(_DIGEST),
            "16 hex digits, behind lesson: where it is the lesson itself",
        ),
        "author": _FLAG,
        "says": _TEXT,
        "state": _STATE,
        "trust": _TRUST,
        "at": _TIME,
        "example": (_is_example, "an object of texts and scores, with task and accepted"),
        "words": (_or_null(_is_text), "text or null"),
        "origins": _TEXTS,
        "vector": (_or_null(_is_vector), "null, or base64 of as many numbers as its space names"),
    },
    "sighting": {
        "lesson": _NAME,
        "at": _TIME,
        "loop": _TEXT,
        "text": _TEXT,
        "told": (
            lambda value: bool(value) and _list_of(_object_of(_SOURCE))(value),
            f"a list of objects of {', '.join(_SOURCE)}, one a sighting",
        ),
    },
    "lineage": {
        "child": (_is_example_name, "kind/signature/digest"),
        "parents": (_is_parents, "a list of kind/signature/digest, or of sources and parents"),
    },
    "loop": {
        "loop": _TEXT,
        "at": _TIME,
        "exposures": (
            lambda value: bool(value) and _list_of(_object_of(_EXPOSURE))(value),
            f"a list of objects of {', '.join(_EXPOSURE)}",
        ),
        "outcome": (_or_null(_object_of(_OUTCOME)), f"null or an object of {', '.join(_OUTCOME)}"),
    },
    "ruling": {
        "at": _TIME,
        "action": (lambda value: _is_text(value) and value != IMPORT, f"text, but not {IMPORT}"),
        "subject": _TEXT,
        "by": _TEXT,
        "why": _TEXT,
        "record": (
            lambda value: _is_data(value) and _or_null(_is_example_name)(value.get("example")),
            f"an object at most {DEEPEST} deep, its example null or kind/signature/digest",
        ),
    },
    "link": {
        "child": _NAME,
        "relation": _one_of(*RELATIONS),
        "parent": _NAME,
        "at": _TIME,
    },
    END: {"lines": _COUNT, "sha256": (_matching("[0-9a-f]{64}"), "64 hex digits")},
}
