"""What an agent is told after a call failed: one line, the first that applies.

The contract of the tool, or the fix of a lesson about the very same error. An agent
has just read the error, so nothing is told that only repeats it, or that came with the
call.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from heedful.episodes.error_lines import is_of_work, named_errors
from heedful.lessons import render
from heedful.lessons.action import arguments_of, path_of
from heedful.lessons.call_marks import (
    Mark,
    failed_marks,
    quoted_names,
    told_call_mark,
)
from heedful.lessons.contracts import Contract, find_contract
from heedful.lessons.identity import failing_tool, failure_signature
from heedful.lessons.mistake import from_data
from heedful.lessons.patterns import Seen, candidates_of
from heedful.lessons.session_names import (
    FILE_MASK,
    made_names,
)
from heedful.lessons.telling import LessonCandidate
from heedful.memory.call_memory import CallMemory
from heedful.store import episodes, patterns
from heedful.store.calls import contract_is_known, find_call
from heedful.store.inline import in_thread
from heedful.validation import Fields

# A contract comes before any lesson.
CONTRACT_NEARNESS = 2.0
# Where a compiler or a linter found an error: "cmd/setup.go:221:3:".
_MESSAGE_PLACE_PATTERN = re.compile(r"^\S+?[:(]\d+(?:[:,]\d+)?\)?:?\s+")
_PATH_WORD_PATTERN = re.compile(r"[^\s\'\"`]*/[^\s\'\"`]*")


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

    async def find_candidates(self) -> tuple[list[LessonCandidate], str]:
        """Return what may help after the failure, and the command to release the rest.

        First is the contract that the call broke: what a tool demands, such as to read
        a file before it is edited. It helps when a second session has not kept it: the
        error itself says it, so that one session may well have learnt it. Then come the
        lessons about the errors of the call; one helps if it has a fix for this very
        error, not for another in the same output. Whoever was told with the call knows
        all of them.
        """
        self.arguments = arguments_of(await self._read_arguments())
        # To find the errors of a long output takes long; other tasks go on.
        errors = await in_thread(lambda: self.errors)
        contract = find_contract(self.arguments, self.error, errors)
        failed = failed_marks(
            self.tool,
            self.arguments,
            errors,
            contract=contract,
            folder=self.folder,
        )
        told_with_call = frozenset(told_call_mark(mark.digest) for mark in failed)
        candidates: list[LessonCandidate] = []
        if contract is not None:
            candidates.append(await self._contract_candidate(contract))
        seen, lessons = await self._find_lessons()
        candidates += lessons
        candidates = [
            replace(candidate, known_by=told_with_call) for candidate in candidates
        ]
        return candidates, seen.release

    async def _contract_candidate(self, contract: Contract) -> LessonCandidate:
        """Return the contract that the call broke as the first candidate."""
        is_known = await self.memory.store.read(
            self.memory.scope,
            contract_is_known,
            self.tool,
            contract,
            session=self.session,
        )
        mark = Mark("contract", contract.name, self.tool)
        return LessonCandidate(
            name=f"mark/{mark.digest}",
            leg="error",
            text=f"heedful: {contract.text}",
            could_help=is_known,
            near=CONTRACT_NEARNESS,
            marks=frozenset([told_call_mark(mark.digest)]),
        )

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

    async def _find_lessons(self) -> tuple[Seen, list[LessonCandidate]]:
        """Return what is known about the errors, and their lessons as candidates."""
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
        return seen, self._candidates(seen.lessons, errors)

    def _candidates(
        self, lessons: Sequence[Fields], errors: Collection[str]
    ) -> list[LessonCandidate]:
        """Return lessons as candidates, each with its text if it helps."""
        candidates: list[LessonCandidate] = []
        for candidate in candidates_of(lessons):
            lesson = candidate.record
            text = ""
            if self._is_of_this_call(lesson):
                text = self._helpful_text(lesson, errors)
            if text:
                seen_words = render.seen_words(lesson["seen"], lesson["last_seen"])
                text = f"{text}\n({seen_words})"
            candidates.append(replace(candidate, text=text, could_help=text != ""))
        return candidates

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
        session made. A lesson about another file helps nothing. An edit as the fix
        helps only after the very same message, whatever the file.
        """
        if not lesson["mistake"]:
            return str(lesson["text"])
        mistake = from_data(lesson["mistake"])
        if mistake.fix is None or mistake.words:
            # The words of a person say more than the error.
            return render.after_failure(mistake)
        if mistake.fix.only_waits:
            # That it may work later is no news.
            return ""

        # What an edit put right was wrong with the work, which is another one now.
        if mistake.fix.kind == "edit" or is_of_work(self.errors[0]):
            messages = {_without_places(error) for error in errors}
            if _without_places(mistake.error) not in messages:
                return ""
        # Otherwise, the lesson must name the file of the call, or mask one.
        path = path_of(self.arguments)
        words = "\n".join((mistake.error, *(call.whole for call in mistake.calls)))
        names = (path.rpartition("/")[2], FILE_MASK)
        if path and not any(name in words for name in names):
            return ""
        return render.after_failure(mistake)


def _without_places(error: str) -> str:
    """Return an error without its place and its paths, to compare it.

    The error of a call has full paths; that of a lesson has paths relative to the
    repository, or none.
    """
    return _PATH_WORD_PATTERN.sub("#", _MESSAGE_PLACE_PATTERN.sub("", error)).strip()
