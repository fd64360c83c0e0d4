"""The mistakes of a run as records: what failed with which error, and what fixed it.

`find_mistakes` is the one maker of the records: of a session of a coding agent, of a
run in a file of traces, and of a loop. A failed call is a mistake for each error that
it names; a refused answer, an error that belongs to no call, a call that was repeated
without effect and the error that ended the run are mistakes, too. Pure.

A record leaves out what only its run has: folders, branches, ids and people, and the
arguments that neither the error names nor the fix changes.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any

from heedful.episodes.comparison import differences, edited_files, is_edit
from heedful.episodes.course import Course, call_failed, call_worked, given_to
from heedful.episodes.episode import Event
from heedful.episodes.error_lines import error_line, named_errors
from heedful.episodes.failures import status_words
from heedful.episodes.fix_search import (
    MAX_TOLD_CALLS,
    CallIndex,
    FoundFix,
    find_correction,
    find_fix,
    found_nothing,
    is_look,
    is_verdict,
    was_wanted,
)
from heedful.episodes.origins import fix_origin, is_outside_at, sources_at
from heedful.episodes.particulars import Particulars
from heedful.episodes.signals import repeated_step, unknown_tool_signals
from heedful.lessons.action import (
    PATH_ARGUMENTS,
    REPLACED_ARGUMENTS,
    WRITTEN_ARGUMENTS,
    arguments_of,
    command_of,
)
from heedful.lessons.call_marks import whole_call
from heedful.lessons.identity import failure_signature
from heedful.lessons.lesson import Signature
from heedful.lessons.mistake import Call, Fix, FixKind, Mistake
from heedful.lessons.origin import NETWORK_SOURCE, Origin
from heedful.lessons.session_names import MadeNames
from heedful.lessons.signature import signature
from heedful.lessons.words import plain_text
from heedful.sanitize import clean
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Document, Fields

# Leaves the particulars of a mistake out of a text.
Mask = Callable[[str], str]
# A step that is made so often in a row, with the same result, has no effect.
REPEATED_TIMES = 3
# A shorter id may be in several runs.
MIN_UNIQUE_ID_CHARS = 12
# Of a limit of calls, and of a server that is busy or does not answer (RFC 9110, 6585).
MOMENT_STATUSES = frozenset(f"status {code}" for code in (408, 429, 502, 503, 504))
# The check of the error that ended a run.
RUN_CHECK = "the run"
# A file in the text of a failure: "cart.go" in "in shop/cart.go, line 3".
_FILE_IN_ERROR = re.compile(r"[\w@.-]*\w\.[a-zA-Z]\w{0,7}\b")
# A figure in data, such as the amounts in a list of payments.
_DATA_FIGURE_PATTERN = re.compile(r"(?<![\w.-])\d[\w.,:+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMistake:
    """A mistake of a run, and its evidence.

    `error` is the line that names the error, without the names that the run made, and
    `signature` is that of the mistake: of the error, and of what failed. `failed` is
    the position of what failed, and `positions` are those of the steps that show it.
    `fix_steps` are the positions of what put it right; of the `possible_steps`, nobody
    knows which did. It `is_edited` if edits put it right, and `is_of_work` if edits
    did, or if nothing did.
    """

    mistake: Mistake
    error: str
    signature: Signature
    failed: int
    positions: tuple[int, ...]
    fix_steps: tuple[int, ...] = ()
    possible_steps: tuple[int, ...] = ()
    is_edited: bool = False
    is_of_work: bool = False

    def with_origins(self, run: Course, stated: Set[str], strict: bool) -> Mistake:
        """Return the mistake with the origins of its parts.

        `stated` are the names of sources that people stated.
        """
        if not self.positions:
            return self.mistake
        result = run.end_of(self.failed)
        error_origin: Origin = "local"
        if is_outside_at(run, result, stated):
            error_origin = "outside"
        fix = self.mistake.fix
        if fix is not None:
            fix = replace(fix, origin=fix_origin(run, self.fix_steps, stated, strict))
        return replace(
            self.mistake,
            fix=fix,
            maybe_origin=fix_origin(run, self.possible_steps, stated, strict),
            error_origin=error_origin,
        )

    def sources(self, run: Course) -> frozenset[str]:
        """Return the sources of what failed, and of what put it right."""
        result = run.end_of(self.failed)
        sources = sources_at(run, result)
        if fix_origin(run, self.fix_steps, frozenset(), strict=False) == "outside":
            sources |= {NETWORK_SOURCE}
        return sources


class MistakeFinder:
    """Finds the mistakes of a run.

    A step is a call with a result, and is identified by the position of the call.
    `steps` are those positions, `errors` the lines that name the errors of each failed
    step, and `found` the mistakes in their order.
    """

    def __init__(self, run: Course, root: str = "") -> None:
        self.run = run
        self.events: tuple[Event, ...] = run.events
        self.particulars: Particulars = Particulars.of(run.events, root)
        self.steps: list[int] = [
            n
            for n, role in enumerate(run.roles)
            if role == "act" and run.result[n] is not None
        ]
        self.failures: dict[int, str] = {
            n: run.failure_of(n)
            for n in self.steps
            if call_failed(run, n) and not found_nothing(run, n)
        }
        self.errors: dict[int, list[str]] = {
            n: named_errors(text, given_to(self.events[n]))
            for n, text in self.failures.items()
        }
        self._failed_calls = Counter(_whole(self.events[n]) for n in self.errors)
        self._index = CallIndex(run)
        self._is_proven = run.episode.outcome == "success"
        self.found: list[FoundMistake] = []
        self._digests: set[str] = set()
        for step in self.errors:
            self._add_failed_step(step)
        # A failure that a run has several times is one mistake.
        times = Counter(chain.from_iterable(map(set, self.digests().values())))
        for other in self._other_mistakes():
            times[other.mistake.signature] += 1
            self._add(other)
        self.found = [
            replace(
                finding,
                mistake=replace(
                    finding.mistake, times=max(1, times[finding.mistake.signature])
                ),
            )
            for finding in self.found
        ]
        self.found.sort(key=attrgetter("failed"))

    def errors_without_names(self) -> dict[int, list[str]]:
        """Return the errors of each failed call without the names that the run made."""
        return {
            failed: [self._names_in(failed, error).masked(error) for error in errors]
            for failed, errors in self.errors.items()
        }

    def _add(self, finding: FoundMistake) -> None:
        """Add a mistake unless the run has one with this signature."""
        if finding.mistake.signature not in self._digests:
            self._digests.add(finding.mistake.signature)
            self.found.append(finding)

    def _add_failed_step(self, step: int) -> None:
        """Add the mistake of each error of a step that no step had before.

        What the same edits or the same call put right in one step is one mistake.
        """
        known_fixes: set[tuple[int, ...]] = set()
        for error in self.errors[step]:
            bare_error = self._names_in(step, error).masked(error)
            if self._signature(step, bare_error).digest in self._digests:
                continue
            finding = self._study_error(step, error)
            if finding is None:
                continue
            if finding.fix_steps in known_fixes:
                self._digests.add(finding.mistake.signature)
                continue
            self._add(finding)
            if finding.fix_steps:
                known_fixes.add(finding.fix_steps)

    def _study_error(self, failed: int, error: str) -> FoundMistake | None:
        """Return the mistake of an error, with what put it right.

        None if the user wanted the call that failed, and then another one.
        """
        run = self.run
        found_fix = find_fix(run, failed, self._index, error)
        retries: list[int] = []
        possible_steps: list[int] = []
        fix_steps: tuple[int, ...] = ()
        end = failed
        if found_fix is not None:
            end = found_fix.working_call
            if was_wanted(run, found_fix.failed_calls[-1], end):
                return None
            retries = list(found_fix.failed_calls[1:])
            # Two runs that edit a file do not edit it in the same way.
            possible_steps = [
                n for n in found_fix.possible_steps if not is_edit(self.events[n])
            ]
            if not found_fix.possible_steps:
                fix_steps = found_fix.needed_steps
                if found_fix.kind not in ("step", "edit", "waiting"):
                    fix_steps = (*fix_steps, end)

        bare_error = self._names_in(failed, error).masked(error)
        failure = self._signature(failed, bare_error)
        leave_out = self._masking(failed, error)
        fix = self._wait_for(failed)
        maybe_kind: FixKind = "step"
        if found_fix is not None:
            maybe_kind = found_fix.kind
            fix = self._fix_of(failed, found_fix, leave_out)
        changed = {name.partition(".")[0] for name, _ in fix.changes} if fix else set()
        text = f"{error}\n{self.failures[failed]}".lower()
        vain_calls = dict.fromkeys(
            self._call_of(n, leave_out, changed)
            for n in retries
            if differences(self.events[failed], self.events[n])
        )
        mistake = Mistake(
            action=self._call_of(failed, leave_out, changed, text),
            signature=failure.digest,
            error=_text_with_words(leave_out(error)),
            fix=fix,
            maybe=tuple(self._call_of(n, leave_out) for n in possible_steps),
            maybe_kind=maybe_kind,
            vain=tuple(vain_calls)[-MAX_TOLD_CALLS:],
            evidence=self._ids((failed, *fix_steps, end)),
            tries=1 + len(retries),
            steps=sum(failed < n <= end for n in self.steps),
        )
        is_edited = any(is_edit(self.events[n]) for n in fix_steps)
        result = run.end_of(failed)
        return FoundMistake(
            mistake=mistake,
            error=bare_error,
            signature=failure,
            failed=failed,
            positions=tuple(dict.fromkeys((failed, result, *retries, *fix_steps, end))),
            fix_steps=fix_steps,
            possible_steps=tuple(possible_steps),
            is_edited=is_edited,
            is_of_work=is_edited or fix is None,
        )

    def _signature(self, step: int, error: str) -> Signature:
        """Return the signature of an error of a step, under what failed there."""
        event = self.events[step]
        output = self._names_in(step, error).masked(self.failures[step])
        return failure_signature(event.tool, given_to(event), error, output)

    def digests(self) -> dict[int, tuple[str, ...]]:
        """Return the digests of the signatures of each failed call's errors."""
        return {
            step: tuple(self._signature(step, error).digest for error in errors)
            for step, errors in self.errors_without_names().items()
        }

    def _ids(self, positions: Iterable[int]) -> tuple[str, ...]:
        """Return the ids of events, each once.

        Copies of a run have the ids of its calls, and often other ids of its events.
        """
        ids: dict[str, None] = {}
        for position in positions:
            event = self.events[position]
            ids[call_id(event) or event.id or str(position)] = None
        return tuple(ids)

    def _names_in(self, failed: int, error: str) -> MadeNames:
        """Return the names in an error that the run itself made."""
        call = f"{self.events[failed].tool} `{call_text(self.events[failed])}`"
        return self.particulars.made_until(failed).named_in(error, call)

    def _masking(self, failed: int, error: str) -> Mask:
        """Return what leaves the particulars of an error out of a text."""
        names = self._names_in(failed, error)
        position = self.run.end_of(failed)
        ids = self.particulars.ids_in(_as_json(call_fields(self.events[failed])))

        def leave_out(text: str) -> str:
            """Return a text of the mistake without particulars."""
            text = self.particulars.leave_out(names.masked(text), position)
            for id, mask in ids.items():
                text = text.replace(id, mask)
            return text

        return leave_out

    def _call_of(
        self,
        step: int,
        leave_out: Mask,
        changed: Collection[str] = (),
        error: str = "",
    ) -> Call:
        """Return a step as the call of a mistake.

        A call that is no command has its paths, the arguments that are `changed`, and
        those that the error names: the others are of this run only.
        """
        event = self.events[step]
        command = command_of(given_to(event))
        if command:
            return Call(tool=event.tool, text=leave_out(command))
        fields = call_fields(event)
        shown_fields = {
            name: value
            for name, value in fields.items()
            if len(fields) == 1
            or name in (*PATH_ARGUMENTS, *changed)
            or _is_said(name, error)
            or _is_said(value, error)
        }
        return Call(tool=event.tool, arguments=_masked(shown_fields, leave_out))

    def _step_of(self, step: int, leave_out: Mask) -> Call:
        """Return a step that put a failed call right; a look shows only its tool."""
        event = self.events[step]
        changed = () if is_look(event) else tuple(arguments_of(given_to(event)))
        return self._call_of(step, leave_out, changed)

    def _fix_of(self, failed: int, found_fix: FoundFix, leave_out: Mask) -> Fix | None:
        """Return what put a step right, None if it is unknown, or of that day only."""
        kind = found_fix.kind
        is_same_step = kind in ("step", "edit")
        if found_fix.possible_steps or (is_same_step and not found_fix.needed_steps):
            return None
        # Beside an edit of the code, nobody knows whether another step was needed.
        if is_same_step and any(
            is_edit(self.events[n]) for n in found_fix.needed_steps
        ):
            return self._edits_of(failed, found_fix.needed_steps, leave_out)

        steps = list(found_fix.needed_steps)
        changes: tuple[tuple[str, str | None], ...] = ()
        if kind in ("arguments", "path"):
            changes = self._changes(failed, found_fix.working_call, leave_out)
            # Data without its figures say nothing to others.
            values = [value or "" for _, value in changes]
            says_nothing = all("…" in value for value in values) and not steps
            if not changes or says_nothing:
                return None
        elif kind not in ("step", "waiting"):
            steps.append(found_fix.working_call)
        calls = tuple(dict.fromkeys(self._step_of(n, leave_out) for n in steps))
        # Of two edits of a file, a call shows only the file: that says nothing.
        if not changes and calls == (self._call_of(failed, leave_out),):
            return None
        if kind != "waiting" and not (calls or changes):
            return None
        digest = ""
        if steps:
            digest = self._command_digest(steps[-1])
        between = self.events[found_fix.failed_calls[-1] : found_fix.working_call]
        return Fix(
            kind=kind,
            calls=calls,
            changes=changes,
            # The user answered a question before the call that worked.
            was_asked=any(
                before.type == "llm_response"
                and event.type == "user_message"
                and not {"?", "？"}.isdisjoint(before.content)
                for before, event in pairwise(between)
            ),
            is_proven=self._is_proven,
            digest=digest,
        )

    def _wait_for(self, failed: int) -> Fix | None:
        """Return waiting as the fix of a call that failed once, by a status of HTTP.

        The status says that the trouble is one of the moment.
        """
        is_once = self._failed_calls[_whole(self.events[failed])] == 1
        result = self.events[self.run.end_of(failed)]
        if is_once and status_words(result) in MOMENT_STATUSES:
            return Fix(kind="waiting")
        return None

    def _edits_of(
        self, failed: int, steps: Sequence[int], leave_out: Mask
    ) -> Fix | None:
        """Return the edits among the steps, None if they are of that day only."""
        edits = [n for n in steps if self._edit_call(n, leave_out).whole]
        files = set().union(*(edited_files(self.events[n]) for n in edits))
        in_error = {*_FILE_IN_ERROR.findall(self.failures[failed])}
        # Edits of the very files that the failure names mend the code of that day,
        # unless the run is known to have succeeded by them.
        is_of_day = files and files <= in_error and not self._is_proven
        if not edits or is_of_day:
            return None
        calls = tuple(self._edit_call(n, leave_out) for n in edits)
        return Fix(kind="edit", calls=calls, is_proven=self._is_proven)

    def _edit_call(self, step: int, leave_out: Mask) -> Call:
        """Return what an edit changes, as a difference or by its arguments."""
        event = self.events[step]
        text = edit_of(event)
        if text:
            return Call(text=leave_out(text))
        names: set[str] = set()
        if isinstance(given_to(event), Mapping):
            names = call_fields(event).keys() - {*PATH_ARGUMENTS}
        call = self._call_of(step, leave_out, names)
        return call if names else Call(tool=event.tool)

    def _changes(
        self, failed: int, working_call: int, leave_out: Mask
    ) -> tuple[tuple[str, str | None], ...]:
        """Return the arguments that the call that worked has in place of others.

        A figure or an id that a failed run put there is none: nobody knows whether it
        was right.
        """
        changes = {
            name: value
            for name, _, value in differences(
                self.events[failed], self.events[working_call]
            )
            if name.partition(".")[0] not in (*WRITTEN_ARGUMENTS, *REPLACED_ARGUMENTS)
        }
        if self.run.episode.outcome == "failure":
            changes = {
                name: value
                for name, value in changes.items()
                if not any(map(str.isdecimal, value or ""))
            }
        present = {name: value for name, value in changes.items() if value is not None}
        masked = dict(_masked(present, leave_out))
        return tuple((name, masked.get(name)) for name in changes)

    def _command_digest(self, step: int) -> str:
        """Return the digest by which the command of a step is found; "" without one."""
        command = command_of(given_to(self.events[step]))
        if not command:
            return ""
        return whole_call("", command, self.particulars.root).digest

    def _other_mistakes(self) -> Iterator[FoundMistake]:
        """Yield the mistakes that no failed call shows."""
        run = self.run
        correction = find_correction(run)
        if correction is not None:
            # An answer was refused before another one.
            remark = self.events[correction.remark]
            fix = Fix(
                kind="command",
                calls=(self._answer(correction.accepted),),
                is_proven=self._is_proven,
            )
            yield self._mistake(
                correction.remark,
                remark.error or remark.content,
                action=self._answer(correction.answer),
                fix=fix,
                positions=(correction.answer, correction.remark, correction.accepted),
                fix_steps=(correction.accepted,),
            )
        for position, failure in enumerate(run.failure):
            if failure and run.act[position] is None and run.roles[position] != "act":
                yield self._event_mistake(position)
        for signal in unknown_tool_signals(run):
            call = Call(tool=self.events[signal.at].tool)
            error = "the tool was not offered"
            yield self._mistake(signal.at, error, action=call, place=call.tool)
        repeated = repeated_step(self.events, REPEATED_TIMES)
        if repeated is not None and call_worked(run, repeated.at):
            times = len(repeated.evidence)
            action = self._call_of(repeated.at, str)
            error = f"the same result {times} times in a row"
            yield self._mistake(repeated.at, error, action=action, place=action.tool)
        last = len(self.events) - 1
        if run.episode.outcome != "success" and is_verdict(run, last):
            verdict = self.events[last]
            yield self._mistake(
                last,
                verdict.error or verdict.content,
                action=self._answer(last - 1),
                positions=(last - 1, last),
            )
        fault = run.episode.fault
        if fault is not None and (fault.message or fault.category):
            error = _text_with_words(error_line(fault.message)) or fault.category
            yield self._mistake(last, error, check=RUN_CHECK)

    def _answer(self, position: int) -> Call:
        """Return an answer of the agent as the call of a mistake."""
        text = clean(self.events[position].content, MAX_SHOWN_TEXT_CHARS)
        return Call(tool="answer", text=text)

    def _event_mistake(self, position: int) -> FoundMistake:
        """Return the mistake of an error that belongs to no call."""
        event = self.events[position]
        error = error_line(self.run.failure[position])
        place = event.tool or event.code
        check = place or event.agent or RUN_CHECK
        return self._mistake(position, error, check=check, place=place)

    def _mistake(
        self,
        position: int,
        error: str,
        *,
        action: Call | None = None,
        check: str = "",
        fix: Fix | None = None,
        place: str = "",
        positions: tuple[int, ...] = (),
        fix_steps: tuple[int, ...] = (),
    ) -> FoundMistake:
        """Return a mistake that no failed call shows; `place` tells equal errors apart.

        `position` is that of the event that shows it.
        """
        error = _text_with_words(clean(error, MAX_SHOWN_TEXT_CHARS))
        name = signature(place, error)
        if self.events:
            positions = positions or (position,)
        return FoundMistake(
            mistake=Mistake(
                action=action,
                check=check,
                signature=name.digest,
                error=error,
                fix=fix,
                evidence=self._ids(positions),
            ),
            error=error,
            signature=name,
            failed=position,
            positions=positions,
            fix_steps=fix_steps,
            is_of_work=fix is None,
        )


def call_id(event: Event) -> str:
    """Return the id of a call or its result if no other run has it, else "".

    A short one, such as "call_3", counts the calls of one run.
    """
    return event.call if len(event.call) >= MIN_UNIQUE_ID_CHARS else ""


def call_fields(event: Event) -> Document:
    """Return the arguments of a call without the text of a file."""
    return {
        name: value
        for name, value in arguments_of(given_to(event)).items()
        if name not in (*WRITTEN_ARGUMENTS, *REPLACED_ARGUMENTS)
        and value not in (None, False, "", "...")
    }


def call_text(event: Event) -> str:
    """Return the command of a call, or its arguments as JSON without a file's text."""
    return command_of(given_to(event)) or _as_json(call_fields(event))


def _text_with_words(text: str) -> str:
    """Return a text, "" if it has no words: "...", or only that it is an error."""
    has_words = any(map(str.isalnum, text)) and text.casefold() != "error"
    return text if has_words else ""


def _whole(event: Event) -> str:
    """Return the tool and all arguments of a call as one text."""
    return f"{event.tool} {_as_json(given_to(event))}"


def _as_json(value: Any) -> str:
    """Return data as JSON in one line; what JSON lacks becomes a text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _masked(fields: Fields, leave_out: Mask) -> tuple[tuple[str, str], ...]:
    """Return arguments without particulars, each a name and a value."""
    data = json.loads(leave_out(_as_json(fields)))
    return tuple((name, _value_text(value)) for name, value in data.items())


def _value_text(value: Any) -> str:
    """Return the value of an argument as text.

    Figures in data, such as the amounts in a list of payments, are of the task.
    """
    text = plain_text(value)
    is_data = text[:1] in "[{"
    return _DATA_FIGURE_PATTERN.sub("…", text) if is_data else text


def _is_said(value: Any, error: str) -> bool:
    """Return whether an error, in lower case, has an argument's name or its value."""
    text = plain_text(value).lower()
    return text != "" and bool(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", error))


def edit_of(event: Event) -> str:
    """Return what a call changes in a file, as a difference; "" without a change."""
    arguments = given_to(event)
    if isinstance(arguments, str):
        arguments = {"input": arguments}
    patch = str(arguments.get("input", ""))
    if "*** Begin Patch" in patch:
        return patch

    edits = arguments.get("edits")
    lines: list[str] = []
    for edit in edits if isinstance(edits, list) else [arguments]:
        old = first_text(edit, REPLACED_ARGUMENTS) or ""
        new = first_text(edit, WRITTEN_ARGUMENTS)
        if new is not None:
            difference = difflib.unified_diff(
                old.splitlines(), new.splitlines(), n=1, lineterm=""
            )
            lines += list(difference)[2:]  # without the names of both files

    path = first_text(arguments, PATH_ARGUMENTS)
    return "\n".join([f"edit {path}:", *lines]) if lines else ""


def first_text(arguments: Any, names: Sequence[str]) -> str | None:
    """Return the first text that an object has under one of the names."""
    fields = arguments if isinstance(arguments, Mapping) else {}
    texts = (fields.get(name) for name in names)
    return next((text for text in texts if isinstance(text, str)), None)
