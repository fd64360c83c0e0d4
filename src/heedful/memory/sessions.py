"""Lessons from sessions of coding agents: what failed, and what put it right.

`learn_session` studies a session by program, without a model. A failed step with what
was tried in vain and what put it right is a `Mistake`, a message of the user that
forbids a step is a correction, and an order of the user for more than one task is a
rule; each is a lesson.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain, pairwise, takewhile
from typing import Any

from heedful.episodes import course as trace
from heedful.episodes.comparison import begin_alike, likeness, shows_new_values
from heedful.episodes.episode import Episode, Event
from heedful.episodes.error_lines import is_of_work, named_errors
from heedful.episodes.origins import fix_origin, is_outside_at, sources_at
from heedful.episodes.retries import MAX_RETRY_DISTANCE_CALLS
from heedful.lessons import render
from heedful.lessons.action import (
    PATH_ARGUMENTS,
    QUOTED_TEXT_PATTERN,
    arguments_of,
    command_of,
)
from heedful.lessons.before import whole_call
from heedful.lessons.lesson import Lesson, Remembered, source_of
from heedful.lessons.made_names import MadeNames
from heedful.lessons.mistake import Call, Fix, Mistake
from heedful.lessons.origin import NETWORK_SOURCE, Origin, is_outside, keys_in
from heedful.lessons.shell import programs_of, simple_commands
from heedful.lessons.signature import signature
from heedful.lessons.substitution import Replacement, find_replacement
from heedful.lessons.user_rules import read_rules
from heedful.lessons.words import count_common
from heedful.memory.files import file_digests
from heedful.memory.memory import Memory, write_lessons
from heedful.memory.particulars import Particulars
from heedful.memory.reflect import steps_of
from heedful.memory.user_rules import rule_lesson
from heedful.redact import mask_personal, redact
from heedful.store import episodes
from heedful.store.store import Store
from heedful.validation import require

# The source of what the user said.
USER_SOURCE = "user"
# Arguments of tools: the text that an edit writes, the text that it replaces, and the
# name of the file.
NEW_TEXT_ARGUMENTS = (
    "new_string",
    "new_str",
    "new_source",
    "content",
    "file_text",
    "patch",
)
OLD_TEXT_ARGUMENTS = ("old_string", "old_str")
EDIT_ARGUMENTS = (*NEW_TEXT_ARGUMENTS, *OLD_TEXT_ARGUMENTS, "edits")
MAX_FAILED_TRIES = 3  # tries that a lesson names
# The importance of a failure that edits put right, or that nothing did: it may be part
# of the work, until it comes back in another session.
WORK_FAILURE_IMPORTANCE = 0.5
FAILURE_IMPORTANCE = 0.7
# A longer message of the user is a new task and forbids nothing.
MAX_CORRECTION_CHARS = 300
# A clause of the user that forbids what the agent did. After an `order` ("please do not
# run the tests", "never push") the `names` are any words of the agent's last actions;
# after another negation ("npm, not yarn") only names of programs and options. "I never
# said that" and "why do you not use npm?" forbid nothing.
_PROHIBITION_PATTERN = re.compile(
    r"(?:(?P<order>(?<!\bi )(?<!\bthey )\bnever"
    r"|(?:^|[.!?;:\n]\s*|\b(?:no|please|and|we|you),? )"
    r"(?:stop|(?:do|must|should)(?: not|n['’]t)))"
    r"|\b(?:not|no|never|don['’]t|instead of))"
    r"(?P<names>(?: +[\w@./-]+){1,3})(?![^.!?\n]*\?)"
)
_COMMON_WORDS = frozenset(
    "a all an and as at be by do for from if in is it on or that the to".split()
)
# An option of a command: "--force" in "git push --force".
_COMMAND_OPTION_PATTERN = re.compile(r"(?<=\s)--?[a-z][\w-]*")
# A program, a package or a file in a command or a clause: "npm", "@types/node".
_COMMAND_NAME_PATTERN = re.compile(r"[\w@-][\w@./-]*\w")
# A file in the text of an edit: "app.py" in "edit app.py:", as `edit_of` writes it, and
# in "*** Update File: app.py", as in a patch.
_EDITED_FILE_PATTERN = re.compile(r"^(?:edit|\*\*\* \w+ File:) (.+?):?$", re.MULTILINE)
# A line that an edit adds or removes.
_CHANGED_LINE_PATTERN = re.compile(r"^[+-].*", re.MULTILINE)
# The name of an argument, as in {"path":"app.py"}: two calls never differ in it, and an
# error that says "path" means its value.
_PATH_ARGUMENT_PATTERN = re.compile(rf'"(?:{"|".join(PATH_ARGUMENTS)})":')
# A word of a name, an error or a line: "app" and "py" in "app.py".
_NAME_WORD_PATTERN = re.compile(r"\w+")
# A tool with which an agent keeps notes for itself, such as a to-do list.
_NOTE_TOOL_PATTERN = re.compile(
    r"(?i)todo|think|(?:\A|_)(?:update_?)?plan\Z|task_?(?:create|update|list|get)"
)
# A part of a command that records changes, and so changes nothing for what failed.
_RECORD_COMMAND_PATTERN = re.compile(
    r"\s*(?:\w+=\S+ )*(?:(?:git|hg|jj|svn)\b[^;&|]*?"
    r"\b(?:add|commit|status|log|diff|show)\b.*|cd\b.*|)",
    re.DOTALL,
)
# Where one command of a line ends and the next begins.
_COMMAND_END_PATTERN = re.compile(r"&&|\|\||[;\n]")
# What a pipe does to the output of a command, which fixes nothing.
_OUTPUT_FILTER_PATTERN = re.compile(
    r"\s*(?:2>&1|\|\s*(?:head|tail|grep|sed|awk|cat|less|tee|wc|sort)\b.*)", re.DOTALL
)
# A command with one of these passes though a part of it fails: the last of a pipe says
# whether it passed.
_MASKED_FAILURE_PATTERN = re.compile(
    r"[2&]>\s*/dev/null|\|\|\s*(?:true\b|:|echo\b)|(?<!\|)\|(?!\|)"
)
# A file in an error: "cart.go" in "shop/cart.go:3:5: expected '}'".
_ERROR_FILE_PATTERN = re.compile(r"[\w-]+\.[a-zA-Z]\w{0,5}(?=[:(])")
# A file in the text of a failure: "cart.go" in "in shop/cart.go, line 3".
_FILE_IN_ERROR = re.compile(r"[\w@.-]*\w\.[a-zA-Z]\w{0,7}\b")
# Who says a message: "bash:" or "[eslint]". It is not a word of the message.
_MESSAGE_LABEL_PATTERN = re.compile(r"^(?:\[[^\]]*\]|[\w()./-]+:)")
# A part of a word: "build" and "docs" in "build_docs".
_WORD_PART_PATTERN = re.compile(r"[a-z0-9]{2,}")
# Where the arguments of a command end: "|", "&&", ";", "> log", "2>&1".
_SHELL_OPERATOR_PATTERN = re.compile(r"\d?[|&;<>]")
# What separates the words of an error, so that "sh: 'pip': not found" names pip.
_ERROR_SEPARATOR_PATTERN = re.compile(r"[\s:'\"`,]+")


@dataclass(frozen=True, slots=True)
class Learned:
    """What a session taught, and what was stored of it.

    That is mistakes, and corrections and rules of the user. A correction that has a
    rule is stored as the rule only. `stored` maps the digests of signatures to stored
    lessons. If the session was learnt before, `again` is true and the other fields are
    empty.
    """

    mistakes: tuple[Mistake, ...] = ()
    corrections: tuple[str, ...] = ()
    _: KW_ONLY
    stored: Mapping[str, Remembered] = field(default_factory=dict)
    again: bool = False
    rules: tuple[str, ...] = ()


async def learn_session(
    episode: Episode,
    *,
    memory: Memory | Store | str,
    digest: str = "",
    sources: Set[str] = frozenset(),
    root: str = "",
) -> Learned:
    """Store what a session of an agent teaches, once and in one transaction.

    Each failed action with what put it right is a lesson. A session that was learnt
    when it was shorter counts no sighting again. What is from outside waits in
    quarantine; see `Memory.state`. `digest` identifies the session, by
    default by all its events. All lessons depend on `sources`, too, such as the key of
    a service. `root` is the folder of the repository, by default the one that the paths
    of the session have in common: lessons name paths relative to it. Raises
    InvalidInput, QuotaExceeded, StoreError.
    """
    require(isinstance(episode, Episode), "episode", episode, "an Episode")
    memory = Memory.of(memory, None)
    digest = digest or episode.digest
    if await memory.store.read(memory.scope, episodes.state, digest):
        return Learned(again=True)

    study = await asyncio.to_thread(_SessionStudy, episode, root, common=sources)
    stated = await memory.believed()
    has_unstated_key = any(is_outside(source, stated) for source in sources)
    is_from_outside = memory.origin == "outside" or has_unstated_key
    strict = await memory.is_strict(keys_in(sources))
    lessons = study.lessons(
        stated, sources, strict=strict, is_from_outside=is_from_outside
    )

    answers = await write_lessons(
        memory,
        lessons,
        episodes.record_session,
        digest,
        {"name": episode.id, "session": episode.session, "outcome": episode.outcome},
        study.actions,
        keys=keys_in(sources),
        is_trusted=not has_unstated_key,
    )

    return Learned(
        tuple(case.mistake for case in study.cases),
        study.corrections,
        stored={
            lesson.signature.digest: answer
            for lesson, answer in zip(lessons, answers, strict=False)
        },
        rules=tuple(study.rules),
    )


@dataclass(frozen=True, slots=True)
class _MistakeCase:
    """A mistake, and the evidence for it.

    `error` is the line that names the error, as the call `failed` wrote it. `cure` are
    the edits that put it right, or the call. It is of the work if edits did, or if
    another session cannot do what did.
    """

    mistake: Mistake
    error: str
    failed: int
    cure: tuple[int, ...]
    is_edited: bool
    is_of_work: bool


class _SessionStudy:
    """The steps of a session, and what they teach.

    A step is a call with a result. It is identified by a number, `n`: the position of
    the call among the events. These attributes are dicts by step, or lists of steps:

    - `calls`: the command or the arguments of each step; `texts`: the same, with the
      tool;
    - `failures`: the text of each failed step; `errors`: the lines in it that name an
      error;
    - `forbidden`: the steps that the user forbade afterwards, by `corrections`;
    - `good`: the steps that worked and were not forbidden; `edits`: the changes by each
      good step that changed a file.

    `cases` are the mistakes in their order, and `actions` the steps to be stored.
    """

    def __init__(
        self,
        episode: Episode,
        root: str = "",
        *,
        common: Set[str] = frozenset(),
    ) -> None:
        self.name = episode.session or episode.id or episode.digest[:32]
        self.source = source_of(self.name)
        self.run = trace.course(episode)
        self.events = self.run.events
        self.particulars = Particulars.of(self.events, root)
        self.root = root

        calls = [n for n, role in enumerate(self.run.roles) if role == "act"]
        self.steps = [n for n in calls if self.run.result[n]]
        self.calls = {n: call_text(self.events[n]) for n in self.steps}
        self.texts = {n: f"{self.events[n].tool} `{self.calls[n]}`" for n in self.steps}

        self.failures = self._find_failures()
        self.errors = {
            n: named_errors(text, trace.given_to(self.events[n]))
            for n, text in self.failures.items()
        }
        self.corrections, self.forbidden = self._find_corrections()
        messages = [e.content for e in self.events if e.type == "user_message"]
        self.rules = dict.fromkeys(
            chain.from_iterable(
                read_rules(mask_personal(redact(message))) for message in messages
            )
        )

        worked = [n for n in self.steps if not trace.call_failed(self.run, n)]
        self.good = [n for n in worked if n not in self.forbidden]
        edits = {n: edit_of(self.events[n]) for n in self.good}
        self.edits = {n: text for n, text in edits.items() if text}

        self.cases = list(self._find_mistakes())
        self.actions = steps_of(
            self.run,
            errors={n: self._bare_errors_of(n) for n in self.errors},
            folder=self.particulars.root,
            replacements=self._find_replacements(common),
        )

    def _find_failures(self) -> dict[int, str]:
        """Return the text of each failed step."""
        texts = self.run.failure
        failed = [n for n in self.steps if trace.call_failed(self.run, n)]
        return {n: texts[n] or texts[self.run.result[n] or n] for n in failed}

    def _find_corrections(self) -> tuple[tuple[str, ...], set[int]]:
        """Return the messages of the user that forbid a step, and the steps."""
        corrections: list[str] = []
        forbidden: set[int] = set()
        calls: list[int] = []  # since the last message
        for position, event in enumerate(self.events):
            if event.type == "tool_call":
                calls.append(position)
            elif event.type == "user_message":
                text = redact(event.content.strip())
                steps = self._forbidden_by(text, calls)
                if steps:
                    corrections.append(text)
                    forbidden |= steps
                calls = []
        return tuple(corrections), forbidden

    def _forbidden_by(self, message: str, calls: Sequence[int]) -> set[int]:
        """Return the calls that a message of the user forbids.

        For each clause that forbids something, these are the calls that have most of
        its words.
        """
        forbidden: set[int] = set()
        if len(message) > MAX_CORRECTION_CHARS:
            return forbidden

        for clause in _PROHIBITION_PATTERN.finditer(message.lower()):
            names = set(_COMMAND_NAME_PATTERN.findall(clause["names"]))
            is_order = clause["order"] is not None
            common = {n: len(names & self._words_of_call(n, is_order)) for n in calls}
            highest = max(common.values(), default=0)
            forbidden.update(n for n in calls if highest > 0 and common[n] == highest)
        return forbidden

    def _words_of_call(self, call: int, is_order: bool) -> set[str]:
        """Return the words by which a user may forbid a call.

        These are the names of its programs and its options, and after an order all its
        words except the most common ones.
        """
        arguments = trace.given_to(self.events[call])
        command = command_of(arguments).lower()
        options = _COMMAND_OPTION_PATTERN.findall(command)
        words = {*programs_of(command), *options}
        if not is_order:
            return words

        path = _first_text(arguments, PATH_ARGUMENTS) or ""
        text = " ".join(chain.from_iterable(simple_commands(command)))
        text = text or f"{self.events[call].tool} {path}"
        parts = _COMMAND_NAME_PATTERN.findall(text.lower())
        last_parts = [part.rpartition("/")[2].lstrip("-") for part in parts]
        return words.union(parts, last_parts) - _COMMON_WORDS

    def _find_mistakes(self) -> Iterator[_MistakeCase]:
        """Yield the mistake of each error that no step had before.

        What the same edits or the same call put right in one step is one mistake.
        """
        digests: set[str] = set()
        for step, errors in self.errors.items():
            cures: set[tuple[int, ...]] = set()
            for error in errors:
                bare_error = self._names_in(step, error).left_out(error)
                digest = signature("", bare_error).digest
                if digest in digests:
                    continue
                digests.add(digest)
                case = self._study_error(step, error)
                if case.cure not in cures:
                    yield case
                cures.update({case.cure} - {()})

    def _study_error(self, failed: int, error: str) -> _MistakeCase:
        """Find what put an error right: edits before the same call, or another call."""
        failed_text = self.texts[failed]
        names = self._names_in(failed, error)

        # `repeat` is the step where the same call worked later, or else `failed`.
        same = [n for n in self.good if self.texts[n] == failed_text]
        repeat = next((n for n in same if n > failed), failed)

        # Only edits between these two that have to do with the error count.
        between = [n for n in self.edits if failed < n < repeat]
        edits = [n for n in between if _concerns(self.edits[n], error)]

        # `end` is the step that worked, `failed` if nothing put the error right.
        end = repeat if edits else self._other_call(failed, repeat, error)

        # Forms of the call that failed, too, were tried in vain.
        failures = [n for n in self.failures if failed < n < end]
        tries = [n for n in failures if self._likeness(failed, n) > 0]
        vain = [n for n in tries if self.texts[n] != failed_text]
        leave_out = self._masking(failed, error)
        vain_calls = dict.fromkeys(self._call_of(n, leave_out) for n in vain)

        mistake = Mistake(
            action=self._call_of(failed, leave_out),
            signature=signature("", names.left_out(error)).digest,
            error=leave_out(error),
            fix=self._fix_of(failed, end, edits, leave_out),
            vain=tuple(vain_calls)[-MAX_FAILED_TRIES:],
            evidence=tuple(self.events[n].id or str(n) for n in (failed, *edits, end)),
            tries=1 + len(tries),
            steps=sum(failed < n <= end for n in self.steps),
        )
        case = _MistakeCase(
            mistake=mistake,
            error=names.left_out(error),
            failed=failed,
            is_edited=bool(edits),
            cure=tuple(edits) or ((end,) if end != failed else ()),
            is_of_work=bool(edits) or mistake.fix is None,
        )
        files = self._files_of(case)
        return replace(case, mistake=replace(mistake, files=files))

    def _masking(self, failed: int, error: str) -> Callable[[str], str]:
        """Return what leaves the particulars of an error out of a text."""
        names = self._names_in(failed, error)
        position = self.run.result[failed] or failed

        def leave_out(text: str) -> str:
            """Return a text of the mistake without particulars."""
            return self.particulars.leave_out(names.left_out(text), position)

        return leave_out

    def _call_of(self, step: int, leave_out: Callable[[str], str]) -> Call:
        """Return a step as the call of a mistake."""
        text = leave_out(self.calls[step])
        return Call(tool=self.events[step].tool, text=text)

    def _fix_of(
        self,
        failed: int,
        end: int,
        edits: Sequence[int],
        leave_out: Callable[[str], str],
    ) -> Fix | None:
        """Return what put a failed step right, None if no other session can do it."""
        if edits:
            texts = [self.edits[n] for n in edits]
            if self._is_named(texts, failed):
                return None
            calls = tuple(Call(text=leave_out(text)) for text in texts)
            return Fix(kind="edit", calls=calls)
        if end == failed:
            return None
        is_step = any(self.texts[n] == self.texts[failed] for n in self.good if n > end)
        return Fix(
            kind="step" if is_step else "command",
            calls=(self._call_of(end, leave_out),),
            digest=self._command_digest(end),
        )

    def _is_named(self, mends: Sequence[str], failed: int) -> bool:
        """Return True if a failure names every file that the edits in `mends` change.

        It is False for another call.
        """
        text = "\n".join(mends)
        files = {path.rpartition("/")[2] for path in _EDITED_FILE_PATTERN.findall(text)}
        in_error = {*_FILE_IN_ERROR.findall(self.failures[failed])}
        return bool(files) and files <= in_error

    def _bare_errors_of(self, failed: int) -> list[str]:
        """Return the errors of a step without the names that the session made."""
        errors = self.errors[failed]
        return [self._names_in(failed, error).left_out(error) for error in errors]

    def _names_in(self, failed: int, error: str) -> MadeNames:
        """Return the names in an error that the session itself made."""
        return self.particulars.made_until(failed).named_in(error, self.texts[failed])

    def _find_replacements(self, common: Set[str]) -> dict[int, Replacement]:
        """Return what worked in the place of the steps that failed, by step.

        All of it depends on the sources in `common`.
        """
        replacements: dict[int, Replacement] = {}
        for failed, errors in self.errors.items():
            # The same call that works later needed nothing else.
            same = [n for n in self.good if self.texts[n] == self.texts[failed]]
            if max(same, default=0) > failed:
                continue
            edit = min((n for n in self.edits if n > failed), default=len(self.events))
            later = [n for n in self.good if failed < n < edit]
            for step in filter(self._can_cure, later[:MAX_RETRY_DISTANCE_CALLS]):
                replacement = self._replacement(failed, step, errors)
                if replacement is not None:
                    own = self._fix_sources(failed, [step])
                    sources = tuple(sorted({*own, *common}))
                    replacements[failed] = replace(replacement, sources=sources)
                    break
        return replacements

    def _fix_sources(self, failed: int, fix: Sequence[int]) -> set[str]:
        """Return the sources of a failed call's result, and of what put it right."""
        result = self.run.result[failed] or failed
        sources = set(sources_at(self.run, result))
        if fix_origin(self.run, fix, frozenset(), strict=False) == "outside":
            sources.add(NETWORK_SOURCE)
        return sources

    def _replacement(
        self, failed: int, step: int, errors: Sequence[str]
    ) -> Replacement | None:
        """Return what a step that worked has in the place of what failed, if it is one.

        What has particulars of the session is none.
        """
        call = self.events[failed]
        other = self.events[step]
        if call.agent != other.agent or self._differs_in_output(failed, step):
            return None
        replacement = find_replacement(
            (call.tool, arguments_of(trace.given_to(call))),
            (other.tool, arguments_of(trace.given_to(other))),
            errors,
            self.particulars.root,
        )
        if replacement is None:
            return None
        change = replacement.substitution
        text = " ".join((*change.old, *change.new))
        calls = f"{self.texts[failed]} {self.texts[step]}"
        names = self.particulars.made_until(step).named_in(text, calls)
        position = self.run.result[failed] or failed
        bare = self.particulars.leave_out(names.left_out(text), position)
        return replacement if bare == text else None

    def _command_digest(self, step: int) -> str:
        """Return the digest by which the command of a step is found; "" without one."""
        command = command_of(trace.given_to(self.events[step]))
        if not command:
            return ""
        return whole_call("", command, self.particulars.root).digest

    def _files_of(self, case: _MistakeCase) -> dict[str, str]:
        """Return the digests of the files that a mistake is about, by their paths.

        These are the files of its edits, or else that of the call that failed. Without
        a stated root of the repository, none is read.
        """
        if not self.root:
            return {}
        steps = case.cure if case.is_edited else (case.failed,)
        calls = [trace.given_to(self.events[n]) for n in sorted(steps)]
        paths = [_first_text(arguments, PATH_ARGUMENTS) for arguments in calls]
        return file_digests(self.root, filter(None, paths))

    def _other_call(self, failed: int, repeat: int, error: str) -> int:
        """Return the call that put an error right before any edit; else `failed`.

        If the same call worked later (`repeat`), it is the step right before that. This
        step must be done there for the first time, and it must have a word of the
        failure that the call lacks, or be another form of the call. If the same call
        did not work again, it is the form of the call that is most like it.
        """
        edit = min((n for n in self.edits if n > failed), default=len(self.events))
        if repeat == failed:
            # Only the same command shows that an error of the work is gone.
            if is_of_work(error):
                return failed
            steps = [n for n in self.steps if failed < n < edit]
            near = steps[:MAX_RETRY_DISTANCE_CALLS]
            good = [n for n in near if n in self.good and self._can_cure(n)]
            forms = [n for n in good if self._is_form(failed, n, error)]
            return max(forms, key=lambda n: self._likeness(failed, n), default=failed)

        last = max(n for n in self.steps if n < repeat)
        is_first = all(
            self.texts[n] != self.texts[last] for n in self.steps if n < last
        )
        if last <= failed or last not in self.good or not is_first or repeat > edit:
            return failed
        if not self._can_cure(last) or self._is_masked(failed, last):
            return failed
        files = _ERROR_FILE_PATTERN.findall(error)
        if is_of_work(error) and not any(file in self.texts[last] for file in files):
            return failed

        call = self.texts[failed].lower()
        step = self.texts[last].lower()
        words = _NAME_WORD_PATTERN.findall(self.failures[failed].lower())
        # Words of up to three letters are in too many steps.
        is_named = any(len(w) > 3 and w in step and w not in call for w in words)
        return last if is_named or self._is_form(failed, last, error) else failed

    def _can_cure(self, step: int) -> bool:
        """Return whether a step can put another right, by what it does.

        A to-do list and a commit cannot, and of an edit the text must be known.
        """
        event = self.events[step]
        if _NOTE_TOOL_PATTERN.search(event.tool):
            return False
        arguments = trace.given_to(event)
        command = command_of(arguments) if isinstance(arguments, Mapping) else ""
        if command:
            parts = _COMMAND_END_PATTERN.split(command)
            return not all(map(_RECORD_COMMAND_PATTERN.fullmatch, parts))
        is_edit = any(f'{name}"' in str(arguments) for name in EDIT_ARGUMENTS)
        is_edit = is_edit or any(name in arguments for name in EDIT_ARGUMENTS)
        return step in self.edits or not is_edit

    def _is_form(self, failed: int, other: int, error: str) -> bool:
        """Return True if a call is another form of a failed one.

        It is one if it has more words, at its end only options; if it has another
        program, which the error names, or new values that the error shows; or if it is
        similar and differs in a word that all errors of this signature have.
        """
        if self._actor(failed) != self._actor(other):
            return False

        # "make test" becomes "make test -k", but not "make tests" or "make test all".
        old = self.calls[failed]
        new = self.calls[other]
        if self._is_masked(failed, other):
            return False
        if new.startswith(old) and not new[len(old) :][:1].isalnum():
            return new.startswith(f"{old} -")

        before, replaced, after = _split_change(old.split(), new.split())
        if not replaced:
            return len(new.split()) > len(old.split())
        names_program = _names_program(error, before, replaced[0], after)
        if names_program or _adds_to_argument(old, new):
            return True
        calls = (self.events[failed], self.events[other])
        if begin_alike(*calls) and shows_new_values(error, *calls):
            return True

        pattern = _MESSAGE_LABEL_PATTERN.sub("", signature("", error).pattern)
        error_words = _WORD_PART_PATTERN.findall(pattern.lower())
        if not _shares_program(self.events[failed], self.events[other]):
            return False
        differs = not _changed_words(old, new).isdisjoint(error_words)
        return differs and self._likeness(failed, other) > 0

    def _differs_in_output(self, step: int, other: int) -> bool:
        """Return whether two commands differ only in what is shown of their output."""
        commands = [self.calls[step], self.calls[other]]
        bare = {_OUTPUT_FILTER_PATTERN.sub("", command) for command in commands}
        return len(bare) == 1

    def _is_masked(self, failed: int, other: int) -> bool:
        """Return whether a command may fail as `failed` did and only not show it."""
        if self._differs_in_output(failed, other):
            return True
        masks = _MASKED_FAILURE_PATTERN.findall(self.calls[failed])
        return len(_MASKED_FAILURE_PATTERN.findall(self.calls[other])) > len(masks)

    def _likeness(self, step: int, other: int) -> float:
        """Return how much two steps are forms of one action, 0..1."""
        if self._actor(step) != self._actor(other):
            return 0.0
        return likeness(self.calls[step], self.calls[other])

    def _actor(self, step: int) -> tuple[str, str]:
        """Return the tool and the agent of a step."""
        return self.events[step].tool, self.events[step].agent

    def lessons(
        self,
        stated: Set[str],
        common: Set[str],
        *,
        strict: bool,
        is_from_outside: bool,
    ) -> list[Lesson]:
        """Return the lessons, one for each signature.

        `stated` are names of sources; all lessons depend on those in `common`. If the
        session `is_from_outside`, all of them wait.
        """
        mistakes = self._mistake_lessons(stated, strict)
        corrections = self._correction_lessons()
        lessons: dict[str, Lesson] = {}
        for lesson in chain(mistakes, corrections, self._rule_lessons()):
            sources = tuple(sorted({*lesson.sources, *common}))
            lesson = replace(lesson, sources=sources)
            if is_from_outside:
                lesson = replace(lesson, trust="outside", state="quarantined")
            lessons.setdefault(lesson.signature.digest, lesson)
        return list(lessons.values())

    def _mistake_lessons(self, stated: Set[str], strict: bool) -> Iterator[Lesson]:
        """Yield a lesson about each mistake, with the sources that it depends on."""
        for case in self.cases:
            result = self.run.result[case.failed] or case.failed
            error_is_outside = is_outside_at(self.run, result, stated)
            fix = case.mistake.fix
            if fix is not None:
                origin = fix_origin(self.run, case.cure, stated, strict)
                fix = replace(fix, origin=origin)
            mistake = replace(
                case.mistake,
                fix=fix,
                error_origin="outside" if error_is_outside else "local",
            )
            importance = FAILURE_IMPORTANCE
            if case.is_of_work:
                importance = WORK_FAILURE_IMPORTANCE
            lesson = self._lesson(
                case.error,
                render.lesson(mistake),
                sources=self._fix_sources(case.failed, case.cure),
                trust="local",
                importance=importance,
                meta={"mended": not case.is_of_work},
            )
            yield replace(lesson, mistake=mistake)

    def _correction_lessons(self) -> Iterator[Lesson]:
        """Yield a lesson with each message that forbids a step, and has no rule."""
        for correction in self.corrections:
            text = mask_personal(correction)
            if not read_rules(text):
                yield self._lesson(
                    text,
                    text,
                    sources={USER_SOURCE},
                    trust="user",
                    importance=FAILURE_IMPORTANCE,
                    meta={"correction": True},
                )

    def _rule_lessons(self) -> Iterator[Lesson]:
        """Yield a lesson with each rule of the user."""
        for rule in self.rules:
            yield replace(rule_lesson(rule, self.source), sources=(USER_SOURCE,))

    def _lesson(
        self,
        error: str,
        text: str,
        *,
        sources: Set[str],
        trust: Origin,
        importance: float,
        meta: Mapping[str, Any],
    ) -> Lesson:
        """Return a lesson about an error."""
        if self.forbidden:
            meta = {**meta, "forbidden": True}
        return Lesson(
            "reflection",
            signature("", error),
            error_type="",
            text=text,
            sighting=self.particulars.relative(error),
            trust=trust,
            importance=importance,
            meta=meta,
            source=self.source,
            sources=tuple(sources),
        )


def _concerns(edit: str, error: str) -> bool:
    """Return True if an edit changes a file or a word that the error names."""
    files = [path.rpartition("/")[2] for path in _EDITED_FILE_PATTERN.findall(edit)]
    if any(name in error for name in files):
        return True

    # Each sort of quotes has a group; two of the three groups are empty.
    quoted = " ".join(map("".join, QUOTED_TEXT_PATTERN.findall(error)))
    changed = "\n".join(_CHANGED_LINE_PATTERN.findall(edit))
    changed_words = _NAME_WORD_PATTERN.findall(changed)
    return not set(_NAME_WORD_PATTERN.findall(quoted)).isdisjoint(changed_words)


def _split_change(
    old: Sequence[str], new: Sequence[str]
) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Return the old words before, in and after the place where the new ones differ."""
    start = count_common(old, new)
    end = len(old) - count_common(old[start:][::-1], new[start:][::-1])
    return old[:start], old[start:end], old[end:]


def _names_program(
    error: str, before: Sequence[str], program: str, after: Sequence[str]
) -> bool:
    """Return True if an error names a program that the next call replaces.

    "sh: pip: not found" names "pip", if "pip3 list" follows "pip list". The words
    `before` and `after` the program are those of both calls; an argument that is not an
    option must stay.
    """
    is_program = not before or before[-1] == "&&"
    arguments = takewhile(lambda word: not _SHELL_OPERATOR_PATTERN.match(word), after)
    if not is_program or all(word.startswith("-") for word in arguments):
        return False
    words = _ERROR_SEPARATOR_PATTERN.split(error)
    return program.rpartition("/")[2] in [word.rpartition("/")[2] for word in words]


def _shares_program(call: Event, other: Event) -> bool:
    """Return True if two commands run a program in common, or if one is no command."""
    programs = [
        {*programs_of(command_of(trace.given_to(event)))} for event in (call, other)
    ]
    return not all(programs) or not programs[0].isdisjoint(programs[1])


def _adds_to_argument(old: str, new: str) -> bool:
    """Return True if the new call has more words in an argument.

    That is False for a command, and for arguments with a path: another path is another
    file.
    """
    if not old.startswith("{") or "/" in old:
        return False

    old_words = _call_words(old)
    new_words = _call_words(new)
    tail = old_words[count_common(old_words, new_words) :]
    ends_alike = bool(tail) and new_words[-len(tail) :] == tail
    return ends_alike and len(new_words) > len(old_words)


def _changed_words(old: str, new: str) -> set[str]:
    """Return the words in which two calls differ, each with the words beside it."""
    old_pairs = {*pairwise(["", *_call_words(old), ""])}
    new_pairs = {*pairwise(["", *_call_words(new), ""])}
    return {*chain.from_iterable(old_pairs ^ new_pairs)}


def _call_words(call: str) -> list[str]:
    """Return the words of a call, without the names of arguments for paths."""
    return _WORD_PART_PATTERN.findall(_PATH_ARGUMENT_PATTERN.sub("", call).lower())


def call_text(event: Event) -> str:
    """Return the command of a call, or its arguments without a file's text."""
    arguments = trace.given_to(event)
    fields = arguments if isinstance(arguments, Mapping) else {}
    fields = {name: fields[name] for name in fields if name not in EDIT_ARGUMENTS}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=str)
    return command_of(arguments) or text


def edit_of(event: Event) -> str:
    """Return what a call changes in a file, as a difference; "" without a change."""
    arguments = trace.given_to(event)
    if isinstance(arguments, str):
        arguments = {"input": arguments}
    patch = str(arguments.get("input", ""))
    if "*** Begin Patch" in patch:
        return patch

    edits = arguments.get("edits")
    lines: list[str] = []
    for edit in edits if isinstance(edits, list) else [arguments]:
        old = _first_text(edit, OLD_TEXT_ARGUMENTS) or ""
        new = _first_text(edit, NEW_TEXT_ARGUMENTS)
        if new is not None:
            difference = difflib.unified_diff(
                old.splitlines(), new.splitlines(), n=1, lineterm=""
            )
            lines += list(difference)[2:]  # without the names of both files

    path = _first_text(arguments, PATH_ARGUMENTS)
    return "\n".join([f"edit {path}:", *lines]) if lines else ""


def _first_text(arguments: Any, names: Sequence[str]) -> str | None:
    """Return the first text that an object has under one of the names."""
    fields = arguments if isinstance(arguments, Mapping) else {}
    texts = (fields.get(name) for name in names)
    return next((text for text in texts if isinstance(text, str)), None)
