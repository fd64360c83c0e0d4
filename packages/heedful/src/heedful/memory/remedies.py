"""What an agent is told after a call failed: one line, the first that applies.

The contract of the tool, or the fix of a lesson about the very same error. An agent
has just read the error, so nothing is told that only repeats it, or that came with the
call.
"""

import asyncio
import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from heedful.episodes.error_lines import is_of_work, named_errors
from heedful.lessons import render
from heedful.lessons.action import arguments_of, path_of
from heedful.lessons.call_marks import Mark, quoted_names
from heedful.lessons.contracts import find_contract
from heedful.lessons.identity import failing_tool, failure_signature
from heedful.lessons.mistake import from_data
from heedful.lessons.patterns import Seen
from heedful.lessons.reasons import say
from heedful.lessons.session_names import FILE_MASK, made_names
from heedful.memory.call_memory import CallMemory
from heedful.store import episodes, patterns
from heedful.store.calls import find_call, knowledge_of
from heedful.validation import Fields

# Where a compiler or a linter found an error: "cmd/setup.go:221:3:".
_MESSAGE_PLACE_PATTERN = re.compile(r"^\S+?[:(]\d+(?:[:,]\d+)?\)?:?\s+")
_PATH_WORD_PATTERN = re.compile(r"[^\s\'\"`]*/[^\s\'\"`]*")
_MEASURE_PATTERN = re.compile(r"\d+(?:\.\d+)?")
_LINE_OF_FILE_PATTERN = re.compile(r"(?i)\bline \d+")
# What fails if a value is not the expected one, in the words of test programs.
_ASSERTION_PATTERN = re.compile(r"(?i)\bassert|\bexpect|\bwant\b| [!=]==? ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A `line` that helps after a failure, and the `mark` that the session was told.

    If the session was told with the call, the line is empty and `silence` says so.
    """

    line: str = ""
    mark: str = ""
    silence: str = ""


@dataclass(eq=False, kw_only=True)
class FailureInquiry:
    """A failed call of a run, and what memory knows about it.

    `given` are the arguments of the call as the host gave them, None if it did not.
    """

    memory: CallMemory
    session: str
    folder: str
    tool: str
    error: str
    call: str
    given: Fields | str | None
    arguments: Fields = field(default_factory=dict)

    async def find_remedy(self) -> Remedy:
        """Return the contract that the call broke, unless it was told with the call."""
        self.arguments = arguments_of(await self._read_arguments())
        errors = await asyncio.to_thread(lambda: self.errors)
        contract = find_contract(self.arguments, self.error, errors)
        is_told, is_broken_again = await self.memory.store.read(
            self.memory.scope,
            knowledge_of,
            self.tool,
            self.arguments,
            errors=errors,
            session=self.session,
            folder=self.folder,
            contract=contract,
        )
        if is_told:
            return Remedy(silence=say("told with the call"))
        # What a tool demands is told when a second session has not kept it.
        if contract is None or not is_broken_again:
            return Remedy()
        mark = Mark("contract", contract.name, self.tool)
        return Remedy(line=f"heedful: {contract.text}", mark=f"told {mark.digest}")

    async def _read_arguments(self) -> Fields | str:
        """Return the arguments of the call, from the store if they were not given."""
        if self.given is not None or not self.call:
            return self.given or {}
        call = await self.memory.store.read(
            self.memory.scope, find_call, self.session, self.call
        )
        return (call and call["arguments"]) or {}

    @cached_property
    def errors(self) -> list[str]:
        """The lines that name the errors of the call."""
        return named_errors(self.error, self.arguments)

    async def find_lesson(self) -> tuple[Seen, dict[int, str]]:
        """Return the lesson about this very error that has a fix, by its id.

        A lesson about another error that stands somewhere in the same output is none.
        """
        calls = await self.memory.store.read(
            self.memory.scope, episodes.recent_calls, self.session
        )
        names = made_names(calls)
        call_text = json.dumps(self.arguments, ensure_ascii=False, default=repr)
        masked = [names.named_in(line, call_text).masked(line) for line in self.errors]
        errors = dict.fromkeys([*masked, *self.errors])
        lines = [
            (
                line,
                failure_signature(self.tool, self.arguments, line, self.error),
            )
            for line in errors
        ]
        seen = await self.memory.store.read(
            self.memory.scope, patterns.find, lines[0][1], lines
        )
        for lesson in seen.told:
            if not self._is_of_this_call(lesson):
                continue
            text = self._helpful_text(lesson, errors)
            if text:
                return seen, {lesson["id"]: text}
        return seen, {}

    def _is_of_this_call(self, lesson: Fields) -> bool:
        """Return True if a lesson may be about what failed here.

        That of another tool is, if its error quotes a name that both calls have.
        """
        mistake = from_data(lesson["mistake"]) if lesson["mistake"] else None
        if mistake is None or mistake.action is None or not self.arguments:
            return True
        other_tool = mistake.action.tool
        other_arguments = mistake.action.given
        other = failing_tool(other_tool, other_arguments, mistake.error)
        if other == failing_tool(self.tool, self.arguments, self.errors[0]):
            return True
        own_names = quoted_names(self.tool, self.arguments, self.errors)
        other_names = quoted_names(other_tool, other_arguments, [mistake.error])
        return not own_names.isdisjoint(other_names)

    def _helpful_text(self, lesson: Fields, errors: Collection[str]) -> str:
        """Return of a lesson what helps after this failure; "" if nothing does.

        `errors` are the lines of the failure, also without names of the session.
        An edit helps only after the very same message about another file.
        """
        if not lesson["mistake"]:
            return str(lesson["text"])
        mistake = from_data(lesson["mistake"])
        if mistake.fix is None or mistake.words:
            # The words of a person say more than the error.
            return render.after_failure(mistake)

        values = {_asserted_values(error) for error in errors}
        if mistake.error and _asserted_values(mistake.error) not in values:
            return ""
        path = path_of(self.arguments)
        words = "\n".join((mistake.error, *(call.whole for call in mistake.calls)))
        if mistake.fix.kind == "edit" or is_of_work(self.errors[0]):
            messages = {_bare_message(error) for error in errors}
            if _bare_message(mistake.error) not in messages:
                return ""
        elif path and not any(
            name in words for name in (path.rpartition("/")[2], FILE_MASK)
        ):
            return ""
        return render.after_failure(mistake)


def _bare_message(error: str) -> str:
    """Return an error without its place, its paths and its numbers.

    A lesson names paths relative to the repository, or not at all.
    """
    return _MEASURE_PATTERN.sub("#", _without_place(error)).strip()


def _asserted_values(error: str) -> tuple[str, ...]:
    """Return the numbers in an error that says what was expected; else none.

    An assertion that got another value fails for another reason.
    """
    words = _without_place(error)
    if not _ASSERTION_PATTERN.search(words):
        return ()
    return tuple(_MEASURE_PATTERN.findall(_LINE_OF_FILE_PATTERN.sub("", words)))


def _without_place(error: str) -> str:
    """Return an error without its place and its paths."""
    return _PATH_WORD_PATTERN.sub("#", _MESSAGE_PLACE_PATTERN.sub("", error))
