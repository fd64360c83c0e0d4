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
        """Return the contract that the call broke, as the line to tell the agent.

        A contract is what a tool demands, such as to read a file before it is edited.
        The line is empty if the call broke none, or if no other run has broken it. If
        the session was told before that such calls fail, only `silence` says so. Sets
        `arguments`, which `find_lesson` needs.
        """
        self.arguments = arguments_of(await self._read_arguments())
        # To find the errors of a long output takes long; other tasks go on.
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
        # What a tool demands is told when a second session has not kept it: the error
        # itself says it, so that one session may well have learnt it.
        if contract is None or not is_broken_again:
            return Remedy()
        mark = Mark("contract", contract.name, self.tool)
        return Remedy(line=f"heedful: {contract.text}", mark=f"told {mark.digest}")

    async def _read_arguments(self) -> Fields | str:
        """Return the arguments of the call, from the store if the host gave none.

        Without the id of a call that is stored, they are empty.
        """
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
        """Return what is known about the errors of the call, and the text that helps.

        The text is that of the first lesson which helps, by the id of the lesson; the
        mapping is empty if no lesson does. A lesson helps if it has a fix for this very
        error; one about another error in the same output does not. Call `find_remedy`
        first: it reads the arguments of the call.
        """
        calls = await self.memory.store.read(
            self.memory.scope, episodes.recent_calls, self.session
        )
        names = made_names(calls)
        call_text = json.dumps(self.arguments, ensure_ascii=False, default=repr)
        # Names that the session made, such as a branch, stand in no lesson.
        masked = [names.named_in(line, call_text).masked(line) for line in self.errors]
        errors = dict.fromkeys([*masked, *self.errors])
        lines = [
            (
                line,
                failure_signature(self.tool, self.arguments, line, self.error),
            )
            for line in errors
        ]
        # The signature of the first line stands for the whole output.
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

        It may if the same tool or program failed in the lesson, or if nothing says what
        failed. A lesson about another tool may if both errors quote the same name of an
        argument.
        """
        mistake = from_data(lesson["mistake"]) if lesson["mistake"] else None
        if mistake is None or mistake.action is None or not self.arguments:
            return True
        other_tool = mistake.action.tool
        other_arguments = mistake.action.given
        other_program = failing_tool(other_tool, other_arguments, mistake.error)
        if other_program == failing_tool(self.tool, self.arguments, self.errors[0]):
            return True
        own_names = quoted_names(self.tool, self.arguments, self.errors)
        other_names = quoted_names(other_tool, other_arguments, [mistake.error])
        return not own_names.isdisjoint(other_names)

    def _helpful_text(self, lesson: Fields, errors: Collection[str]) -> str:
        """Return the text of a lesson that helps after this failure; "" if none does.

        `errors` are the error lines of the failure, with and without the names that the
        session made. Nothing helps after another assertion, or about another file. An
        edit as the fix helps only after the very same message, whatever the file.
        """
        if not lesson["mistake"]:
            return str(lesson["text"])
        mistake = from_data(lesson["mistake"])
        if mistake.fix is None or mistake.words:
            # The words of a person say more than the error.
            return render.after_failure(mistake)

        # An assertion that got another value fails for another reason.
        values = {_asserted_values(error) for error in errors}
        if mistake.error and _asserted_values(mistake.error) not in values:
            return ""
        path = path_of(self.arguments)
        words = "\n".join((mistake.error, *(call.whole for call in mistake.calls)))
        if mistake.fix.kind == "edit" or is_of_work(self.errors[0]):
            # Two errors of a test or a compiler have one fix only if they say the same.
            messages = {_bare_message(error) for error in errors}
            if _bare_message(mistake.error) not in messages:
                return ""
        # Otherwise, the lesson must name the file of the call, or mask one.
        elif path and not any(
            name in words for name in (path.rpartition("/")[2], FILE_MASK)
        ):
            return ""
        return render.after_failure(mistake)


def _bare_message(error: str) -> str:
    """Return an error without its place, its paths and its numbers, to compare it.

    The error of a call has full paths; that of a lesson has paths relative to the
    repository, or none.
    """
    return _MEASURE_PATTERN.sub("#", _without_place(error)).strip()


def _asserted_values(error: str) -> tuple[str, ...]:
    """Return the numbers in an error that says what was expected, "want 3, got 4".

    Numbers of lines do not count. For any other error, return none.
    """
    words = _without_place(error)
    if not _ASSERTION_PATTERN.search(words):
        return ()
    return tuple(_MEASURE_PATTERN.findall(_LINE_OF_FILE_PATTERN.sub("", words)))


def _without_place(error: str) -> str:
    """Return an error without its place and its paths."""
    return _PATH_WORD_PATTERN.sub("#", _MESSAGE_PLACE_PATTERN.sub("", error))
