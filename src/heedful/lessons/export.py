"""The records of an export: their fields, their order, and what an import keeps of them. Pure.

This is the one declaration of the file format; `heedful.store.transfer` maps it to rows.
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
from heedful.lessons.lesson import LONGEST, ORDER, Example, clip, digest_of
from heedful.lessons.trust import LONGEST_TAG, TAGS

Plain = Mapping[str, Any]
# What writing a record changed.
Effect = Literal["new", "changed", "known", "rejected"]
Allows = Callable[[Any], bool]
Allowed = tuple[Allows, str]
FORMAT = "heedful memory"
VERSION = 1
END = "end"
# The ruling that vouches for an import: it concerns one database and is never exported.
IMPORT = "import"
# Bytes of a line; the longest lesson of a loop needs a thousandth of it.
LONGEST_LINE = 64 * 2**20
DEEPEST = 16
# Characters of the metadata of a lesson that nobody vouches for.
LONGEST_META = 20_000
# How lessons are linked; a name outlives its lesson.
RELATIONS = ("became", "strategy")
STATES = ("verified", "candidate", "quarantined", "superseded", "retired")


def encode_line(record: Plain) -> bytes:
    """Return the line of a record: ASCII, the same bytes for the same record."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def lost_parent(sources: Iterable[str], parents: Iterable[str] = ()) -> Plain:
    """Stand for an example that was removed: only its sources and parents are known."""
    return {"sources": sorted(sources), "parents": sorted(parents)}


def split_name(name: str) -> tuple[str, ...]:
    """Split a name into kind, signature and, for an example, digest."""
    return tuple(name.split("/"))


def sort_key(record: Plain) -> tuple[Any, ...]:
    """Return the place of a record; places ascend in a file, so no record is in it twice."""
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
    """Return what one loop adds to the counts of how often a lesson helped, and hurt."""
    if outcome is None or not exposure["shown"]:
        return 0, 0
    again = split_name(exposure["lesson"])[1] in outcome["signatures"]
    return int(outcome["right_at_once"]), int(again)


def unvouched(record: Plain, source: str, now: float) -> Plain | None:
    """Return what an import keeps of a record that nobody vouches for, or None for nothing.

    Texts become external, get the import as a source, are cut to what quarantine keeps, and wait
    there. Left out is what others decided, measured or proved; search words and vectors, which the
    person who releases a text does not see; times in the future; and which lesson replaced which.
    """
    stamp = {"trust": "external"}
    if record["is"] in ("lesson", "example"):
        stamp["state"] = max(record["state"], "quarantined", key=STATES.index)
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
            return {**record, **short, **counts, **claims, **times, **stamp}
        case "example":
            origins = sorted({*record["origins"], source} - {""})
            at = min(record["at"], now)
            parts = {n: clip(p) if isinstance(p, str) else p for n, p in record["example"].items()}
            short = {"says": clip(record["says"]), "example": parts, "origins": origins, "at": at}
            return {**record, **short, "words": None, "vector": None, **stamp}
        case "sighting":
            derived = {**stamp, "parents": [lost_parent([source])]}
            sightings = [{**sighting, **derived} for sighting in record["told"]]
            return {**record, "text": clip(record["text"]), "told": sightings}
        case "lineage":
            return record
        case "link" if record["relation"] == "strategy":
            return {**record, "at": min(record["at"], now)}
        case _:
            return None


def check_record(record: Any) -> Plain:
    """Return the record if every field is valid. Raises InvalidInput."""
    if not isinstance(record, dict) or record.get("is") not in list(_FIELDS):
        raise InvalidInput("line", record, f"an object whose `is` is one of {', '.join(_FIELDS)}")
    wanted, kind = _FIELDS[record["is"]], record["is"]
    for name in {**wanted, **record}:
        if name == "is":
            continue
        if name not in wanted:
            raise InvalidInput(f"field of the {kind}", name, f"one of {', '.join(wanted)}")
        if name not in record and (kind, name) in _OPTIONAL:
            continue
        allows, allowed = _CHILD if (kind, name) == ("lineage", "child") else wanted[name]
        if name not in record or not allows(record[name]):
            raise InvalidInput(f"{name} of the {kind}", record.get(name), allowed)
    if kind == "lesson":
        _check_signature(record)
    return record


def _check_signature(lesson: Plain) -> None:
    """Check the signature of a pattern, unless storing it redacted or cut the pattern."""
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
    """Return True for as many finite numbers as the end of their space says."""
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
_is_example_name = _matching(f"{_LESSON}/{_DIGEST}")
_is_gone = _object_of({"sources": _list_of(_is_text), "parents": _list_of(_is_example_name)})
_is_parents = _list_of(lambda value: _is_example_name(value) or _is_gone(value))
_is_share = _number_in(0, 1)
_TEXT: Allowed = (_is_text, "text")
_TEXTS: Allowed = (_list_of(_is_text), "a list of texts")
_COUNT: Allowed = (_is_count, "a whole number of at least 0")
_TIME: Allowed = (
    _number_in(0, 253_402_300_800),
    "a time in seconds since 1970, before the year 10000",
)
_FLAG: Allowed = (_is_flag, "true or false")
_NAME: Allowed = (_matching(_LESSON), "kind/signature")
_EXPOSURE: Mapping[str, Allows] = {
    "lesson": _NAME[0],
    "shown": _is_flag,
    "share": lambda value: _is_share(value) and value < 1,
    "together": _is_flag,
    "examples": _list_of(_matching(_DIGEST)),
}
_OUTCOME: Mapping[str, Allows] = {
    "right_at_once": _is_flag,
    "calls": _is_count,
    "signatures": _list_of(_is_text),
    "at": _TIME[0],
}
_SIGHTING: Mapping[str, Allows] = {
    "source": _is_text,
    "trust": _one_of(*ORDER)[0],
    "parents": _is_parents,
}
_LISTED = dict.fromkeys(("seen", "helped", "hurt"), _is_count)
# What a field may hold: the same in every record that has it, unless the record itself says more.
_VALUES: Mapping[str, Allowed] = {
    **dict.fromkeys("tenant project error_type pattern text source says loop".split(), _TEXT),
    **dict.fromkeys("subject by why".split(), _TEXT),
    **dict.fromkeys(("tags", "origins"), _TEXTS),
    **dict.fromkeys("lessons seen helped hurt lines".split(), _COUNT),
    **dict.fromkeys("at first_seen last_seen last_shown".split(), _TIME),
    **dict.fromkeys("pinned apart author".split(), _FLAG),
    "version": (lambda value: value == VERSION, f"{VERSION}, which this heedful reads"),
    "spaces": (_is_scores, "an object of counts by embedding space"),
    "kind": (_matching("[^/]{1,200}"), "1 to 200 characters without a slash"),
    "signature": (_matching("[0-9a-f]{16}"), "16 hex digits"),
    "state": _one_of(*STATES),
    "trust": _one_of(*ORDER),
    "importance": (_is_share, "a number of 0 to 1"),
    "useful": (_number_in(0, 2), "a number of 0 to 2"),
    "listed": (_object_of(_LISTED), "an object of counts: seen, helped, hurt"),
    "meta": (_is_data, f"an object at most {DEEPEST} deep"),
    "lesson": _NAME,
    "digest": (_matching(_DIGEST), "16 hex digits, behind lesson: where it is the lesson itself"),
    "example": (_is_example, "an object of texts and scores, with task and accepted"),
    "words": (_or_null(_is_text), "text or null"),
    "vector": (_or_null(_is_vector), "null, or base64 of as many numbers as its space names"),
    "told": (
        lambda value: bool(value) and _list_of(_object_of(_SIGHTING))(value),
        f"a list of objects of {', '.join(_SIGHTING)}, one a sighting",
    ),
    "parents": (_is_parents, "a list of kind/signature/digest, or of sources and parents"),
    "exposures": (
        lambda value: bool(value) and _list_of(_object_of(_EXPOSURE))(value),
        f"a list of objects of {', '.join(_EXPOSURE)}",
    ),
    "outcome": (_or_null(_object_of(_OUTCOME)), f"null or an object of {', '.join(_OUTCOME)}"),
    "action": (lambda value: _is_text(value) and value != IMPORT, f"text, but not {IMPORT}"),
    "record": (
        lambda value: _is_data(value) and _or_null(_is_example_name)(value.get("example")),
        f"an object at most {DEEPEST} deep, its example null or kind/signature/digest",
    ),
    "relation": _one_of(*RELATIONS),
    "parent": _NAME,
    "child": _NAME,
    "sha256": (_matching("[0-9a-f]{64}"), "64 hex digits"),
}
# The kinds of records and their fields, in the order in which they are written.
_FIELDS: Mapping[str, Mapping[str, Allowed]] = {
    kind: {name: _VALUES[name] for name in names.split()}
    for kind, names in {
        FORMAT: "version tenant project lessons spaces",
        "lesson": "kind signature error_type pattern text tags state trust importance source "
        "pinned apart useful seen helped hurt listed first_seen last_seen last_shown meta",
        "example": "lesson digest author says state trust at example words origins vector",
        "sighting": "lesson at loop text told",
        "lineage": "child parents",
        "loop": "loop at exposures outcome",
        "ruling": "at action subject by why record",
        "link": "child relation parent at",
        END: "lines sha256",
    }.items()
}
# The fields of a lesson that are texts and that are flags.
LESSON_TEXTS = tuple(name for name, value in _FIELDS["lesson"].items() if value is _TEXT)
LESSON_FLAGS = tuple(name for name, value in _FIELDS["lesson"].items() if value is _FLAG)
_OPTIONAL = {("lesson", "meta")}  # which only lessons of an episode have
_CHILD: Allowed = (_is_example_name, "kind/signature/digest")
