"""Read reports of tests. Source: pytest-dev/pytest, src/_pytest/junitxml.py.

Anyone may have written a report. It is read by expat of the standard library, one event
at a time, and a document type is refused: without one there are no entities, so nothing
can expand, and no report of tests has one.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from xml.parsers import expat

from heedful.episodes.episode import Ended, Episode, EpisodeBuilder, Event, Limits
from heedful.episodes.messages import seconds, text_of
from heedful.errors import InvalidInput, UsageError


class JUnitReader:
    """Reads a report in JUnit's XML: it is an episode, with a call per failed test."""

    source = "junit"

    def __init__(self, limits: Limits) -> None:
        self._builder = EpisodeBuilder(limits, self.source)
        self._outcome: Ended | None = None
        self._time: float | None = None
        self._test = ""
        # The parts of the failure that is open, None outside of one.
        self._failure: list[str] | None = None

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for XML with a suite of tests."""
        is_text = isinstance(value, str)
        return is_text and value.lstrip().startswith("<") and "<testsuite" in value

    def add(self, value: Any) -> list[Episode]:
        """Read a report; return [], as `finish` returns it. Raises UsageError."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_document_type
        parser.StartElementHandler = self._open
        parser.EndElementHandler = self._close
        parser.CharacterDataHandler = self._read
        try:
            parser.Parse(text_of(value), True)
        except (expat.ExpatError, ValueError) as error:
            raise UsageError(f"not a JUnit report: {error}") from error
        self._outcome = "failure" if self._builder.count else "success"
        return []

    def finish(self) -> list[Episode]:
        """Return the episode, which of a damaged report has what is whole."""
        if self._outcome is None and not self._builder.count:
            return []
        return [self._builder.episode(outcome=self._outcome or "failure")]

    def _open(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        if tag == "testsuite":
            with suppress(InvalidInput):
                self._time = seconds(attributes.get("timestamp"))
        elif tag == "testcase":
            parts = (attributes.get("classname"), attributes.get("name"))
            self._test = ".".join(filter(None, parts))
        elif tag in ("failure", "error"):
            self._failure = [attributes.get("message", ""), "\n"]

    def _read(self, text: str) -> None:
        """Read the text of an element."""
        if self._failure is not None:
            self._failure.append(text)

    def _close(self, tag: str) -> None:
        """End an element; that of a failure is a call that failed."""
        if tag not in ("failure", "error") or self._failure is None:
            return
        call = Event("tool_call", tool="test", arguments={"name": self._test})
        error = "".join(self._failure).strip() or "failed"
        result = Event("tool_response", tool="test", error=error)
        for event in (call, result):
            self._builder.add(replace(event, at=self._time))
        self._failure = None


def _refuse_document_type(*_: Any) -> None:
    """Raise ValueError: a document type may declare entities, which expand."""
    raise ValueError("it has a document type, which no report needs")
