"""Fixes: which call worked after another had failed, and what made the difference.

The run shows what helped; the error alone does not. There are three rules, asked in
this order:

1. The same call works later: what stood between and is named by the error put it right,
   or the only line of commands there; of other steps, a second run shows which. If
   nothing stood between, waiting did. An edit is named by its file or by its words.
2. A call of the same tool works that is like the failed one: the likest is the fix,
   with the calls that showed its new values.
3. Another program, or another tool, works in the same place: for the same file, id or
   long value, or for what the error names. If they share another word only, a second
   run has to show it, too.

A call that only looks is no step, unless it showed what the next call has. A call that
failed, that did not end, or that only hides a failure is no fix. Pure.

`find_fix` comes first, with what it calls in this order; then what several functions
read of a call, then failures that need no fix, and last `find_correction`.
"""

import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from heedful.episodes.comparison import (
    MIN_WORD_CHARS,
    SHOWN_VALUE_LIKENESS,
    TOKEN_PATTERN,
    begin_alike,
    concerns,
    differences,
    hides_failure,
    is_edit,
    leaves,
    likeness_of_calls,
    text_of_call,
    tokens_of,
)
from heedful.episodes.course import (
    Course,
    call_failed,
    call_worked,
    ends,
    given_to,
    named_arguments,
    only_text,
)
from heedful.episodes.episode import Event
from heedful.episodes.error_lines import error_line, is_of_work
from heedful.episodes.failures import is_bare_status, status_words
from heedful.episodes.looks import changes, checks, looks, words_of_tool
from heedful.lessons.action import (
    PATH_ARGUMENTS,
    QUOTED_TEXT_PATTERN,
    command_of,
)
from heedful.lessons.mistake import FixKind
from heedful.lessons.shell import MINOR_PROGRAMS, program_name, simple_commands
from heedful.lessons.signature import signature

# A retry is looked for among this many calls of the tool after the failed one, and
# another program among this many calls of any tool.
MAX_RETRY_DISTANCE_CALLS = 20
MAX_DISTANCE_EVENTS = 200
MAX_TOLD_CALLS = 3
MIN_VALUE_CHARS = 8
# The share of the things in a failed call that another program's call has, too.
MIN_SHARED_THINGS = 1 / 3
_WAIT_PATTERN = re.compile(r"\b(?:start-)?(?:sleep|wait|pause)\b")
# A value that says which thing is meant: it has a digit, a mark or a capital inside.
_THING_PATTERN = re.compile(
    r"(?=\S*[\d_./@:-]|\S*[a-z][A-Z])[^\s\"'`,;()=\[\]{}|\\]{5,}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFix:
    """What put a failed call right: positions of calls in a run.

    `failed_calls` are in their order, and `working_call` is the one that worked.
    `needed_steps` lay between: steps before the same call, edits, or what showed the
    new values of the call. Of the `possible_steps`, another run has to show which was
    the fix.
    """

    kind: FixKind
    failed_calls: tuple[int, ...]
    working_call: int
    needed_steps: tuple[int, ...] = ()
    possible_steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """An answer, the remark that refused it, and the answer that was accepted."""

    answer: int
    remark: int
    accepted: int


class CallIndex:
    """The calls of a run that have a result: by agent and tool, and equal ones.

    Calls are given and returned as positions in the run.
    """

    def __init__(self, run: Course) -> None:
        self._run = run
        self.by_tool: dict[tuple[str, str], list[int]] = {}
        self._successes: dict[Hashable, list[int]] = {}
        for position, role in enumerate(run.roles):
            if role != "act" or run.result[position] is None:
                continue
            event = run.events[position]
            self.by_tool.setdefault(self._actor(event), []).append(position)
            if call_worked(run, position):
                self._successes.setdefault(self._key(event), []).append(position)

    def _actor(self, event: Event) -> tuple[str, str]:
        """Return the agent and the tool of a call; without a tool, no agent."""
        agent = event.agent if event.tool else ""
        return agent, event.tool

    def _key(self, event: Event) -> Hashable:
        """Return what equal calls have in common."""
        return (self._actor(event), tuple(leaves(event).items()))

    def calls_after(self, call: int) -> Sequence[int]:
        """Return the next calls of the same tool, as many as are searched."""
        calls = self.by_tool[self._actor(self._run.events[call])]
        start = bisect_right(calls, call)
        return calls[start : start + MAX_RETRY_DISTANCE_CALLS]

    def success_after(self, call: int) -> int | None:
        """Return the first later success of the same call, None without one."""
        calls = self._successes.get(self._key(self._run.events[call]), [])
        start = bisect_right(calls, call)
        return calls[start] if start < len(calls) else None


def find_fix(
    run: Course, failed: int, index: CallIndex, error: str = ""
) -> FoundFix | None:
    """Return what put a failed call right, None if nothing is known to have.

    `index` has the calls of the run, and `error` is the line that names the error, by
    default all that the result says.
    """
    failure = run.failure_of(failed)
    needs_work = is_of_work(error or error_line(failure))
    text = f"{error}\n{_result_text(run, failed)}".lower()
    working_call = index.success_after(failed)
    retries = index.calls_after(failed)
    # The same call decides if it soon works.
    if working_call not in retries:
        likeness = _likeness_of_retries(run, failed, retries, text, needs_work)
        working_call = max(likeness, key=likeness.__getitem__, default=working_call)
    if working_call is None:
        return None if needs_work else _find_other_program(run, failed, text)

    failed_calls = [failed, *_other_failures(run, failed, working_call, retries)]
    success = run.events[working_call]
    equal_calls = [
        n
        for n in failed_calls
        if run.events[n].tool == success.tool
        and not differences(run.events[n], success)
    ]
    if not equal_calls:
        return _changed_call(run, failed_calls, working_call, text)
    fix = _fix_between(run, failed_calls, equal_calls, working_call, error=text)
    # What is wrong with the work does not pass.
    if fix.kind == "waiting" and needs_work:
        return None
    if equal_calls[0] != failed and fix.needed_steps:
        kind = _kind_of(run.events[failed], success)
        return replace(fix, kind=kind, possible_steps=())
    return fix


def _likeness_of_retries(
    run: Course, failed: int, retries: Sequence[int], error: str, needs_work: bool
) -> dict[int, float]:
    """Return how alike to a failed call its retries are, those that worked.

    What works after another failure may be the fix of that one. An error of the work is
    gone only when a call has what it names.
    """
    likeness: dict[int, float] = {}
    for call in retries:
        if likeness and call_failed(run, call):
            break
        if needs_work and not _has_named(run, failed, call, error):
            continue
        share = _likeness_of(run, failed, call, error)
        if share > 0 and call_worked(run, call):
            likeness[call] = share
    return likeness


def _has_named(run: Course, failed: int, call: int, error: str) -> bool:
    """Return whether a call has a new option that the error of the failed one names."""
    words = set(text_of_call(run.events[call]).lower().split())
    new = words - set(text_of_call(run.events[failed]).lower().split())
    return any(word.lstrip("-") in error for word in new if word.startswith("-"))


def _likeness_of(run: Course, failed: int, other: int, error: str) -> float:
    """Return how alike two calls of one tool are; 0 if one is not the other's retry."""
    old = run.events[failed]
    new = run.events[other]
    share = likeness_of_calls(old, new, error)
    if share > 0 or not begin_alike(old, new):
        return share
    return SHOWN_VALUE_LIKENESS if _find_shown(run, failed, other) else 0.0


def _find_other_program(run: Course, failed: int, error: str) -> FoundFix | None:
    """Return the call of another program or tool in the same place, None without one.

    It names a thing of the failed call, such as a file or an id; of several such calls
    it is the first that has most of them. Or it has a word of the call that is no
    option, as `uv add flask` has of `pip install flask`: then it is the fix if the
    error names this word or its program, or says that the failed program is not there;
    else another run has to show it. A look is
    one only for a call that looks, and a change of the thing never is.
    """
    event = run.events[failed]
    program, words = _program_and_words(event)
    things = _thing_names(event)
    error_words = _words_of(error)
    is_missing = program in error_words and "not found" in error
    later = range(failed + 1, len(run.events))
    calls = (n for n in later if run.roles[n] == "act" and call_worked(run, n))
    fix: FoundFix | None = None
    most_things = MIN_SHARED_THINGS * len(things)
    for call in islice(calls, MAX_RETRY_DISTANCE_CALLS):
        candidate = run.events[call]
        other_program, other_words = _program_and_words(candidate)
        if other_program == program or _changes_things(candidate):
            continue
        if is_look(candidate) and not is_look(event):
            continue
        other_fix = FoundFix(
            kind=_kind_of(event, candidate), failed_calls=(failed,), working_call=call
        )
        number = len(things & _thing_names(candidate))
        if number and number >= most_things and _result_text(run, call).strip():
            most_things = number + 1
            fix = other_fix
        # What one program ran another may run: `pytest`, then `uv run pytest`.
        common = (words | {program}) & other_words
        if fix is None and common:
            is_certain = is_missing or other_program in error_words
            possible_steps = () if is_certain else (call,)
            fix = replace(other_fix, possible_steps=possible_steps)
    return fix


def _words_of(text: str) -> set[str]:
    """Return the words of a text without the marks around them."""
    return {word.strip("'\"`“”‘’(),;:<>[].!?") for word in text.split()}


def _program_and_words(event: Event) -> tuple[str, set[str]]:
    """Return the program of a command with its words that are no options.

    Of another call, it is the tool, without words.
    """
    commands = list(simple_commands(_line_of(event)))
    major = [
        words for words in commands if program_name(words[0]) not in MINOR_PROGRAMS
    ]
    if not major:
        return f"{event.tool} (tool)", set()
    program, *words = major[0]
    return program.lower(), {word for word in words if not word.startswith("-")}


def _thing_names(event: Event) -> set[str]:
    """Return the names of things in a call: paths, ids, long values.

    The folder where a command runs is none.
    """
    line = _line_of(event)
    long_values = set[str]() if line else _long_values(event)
    names = long_values.union(_THING_PATTERN.findall(line or text_of_call(event)))
    return {name for name in names if not name.startswith("-")}


def _long_values(event: Event) -> set[str]:
    """Return the values of a call that are long enough to name something."""
    return {value for value in leaves(event).values() if len(value) >= MIN_VALUE_CHARS}


def _other_failures(
    run: Course, failed: int, working_call: int, retries: Sequence[int]
) -> Iterator[int]:
    """Yield the retries that failed before one worked, if they are like either."""
    for call in retries:
        if call <= working_call and call_failed(run, call):
            error = _result_text(run, call)
            others = (working_call, failed)
            if any(_likeness_of(run, call, other, error) > 0 for other in others):
                yield call


def _fix_between(
    run: Course,
    failed_calls: Sequence[int],
    equal_calls: Sequence[int],
    working_call: int,
    *,
    error: str,
) -> FoundFix:
    """Return what lay between a call that failed and the same call that worked.

    `equal_calls` are those of the `failed_calls` that equal the one that worked. A step
    after which the call failed with the same error was in vain. Those of the others
    that the error names are the fix; else the only step is, if it and the failed call
    are lines of commands and the user did not speak meanwhile. Without a step,
    waiting is.
    """
    fix = FoundFix(
        kind="step", failed_calls=tuple(failed_calls), working_call=working_call
    )
    others = [
        n
        for n in range(equal_calls[0] + 1, working_call)
        if run.roles[n] == "act"
        and n not in equal_calls
        and not _only_shows(run.events[n])
    ]
    vain_steps = [
        step
        for call, next_call in pairwise(equal_calls)
        if _error_digest(run, call) == _error_digest(run, next_call)
        for step in range(call, next_call)
    ]
    good_calls = _good_calls(run, equal_calls[0], working_call)
    steps = [
        n
        for n in others
        if n in good_calls
        and n not in vain_steps
        and not hides_failure(run.events[working_call], run.events[n])
    ]
    waits = [n for n in steps if is_wait(run.events[n])]
    if waits or not others:
        return replace(fix, kind="waiting", needed_steps=tuple(waits[-1:]))

    errors = "\n".join([error, *(_result_text(run, n) for n in equal_calls)])
    needed_steps = _named_steps(run, steps, errors)
    if not steps:
        return fix
    if not needed_steps:
        lines = {_line_of(run.events[n]) for n in steps}
        is_only = len(lines) == 1 and "" not in lines
        has_spoken = _messages(run, equal_calls[-1], working_call) != ""
        if not is_only or has_spoken or not _line_of(run.events[working_call]):
            return replace(fix, possible_steps=tuple(steps))
        needed_steps = steps
    if all(is_edit(run.events[n]) for n in needed_steps):
        fix = replace(fix, kind="edit")
    return replace(fix, needed_steps=tuple(needed_steps[-MAX_TOLD_CALLS:]))


def _named_steps(run: Course, steps: Sequence[int], error: str) -> list[int]:
    """Return the steps that an error names, and further edits of their files."""
    named_steps = [n for n in steps if _is_about(run, n, error)]
    named_files = set().union(*(_long_values(run.events[n]) for n in named_steps))
    return [
        n
        for n in steps
        if n in named_steps or not named_files.isdisjoint(_long_values(run.events[n]))
    ]


def _error_digest(run: Course, call: int) -> str:
    """Return the digest of the error of a call, apart from numbers and names."""
    failure = run.failure_of(call)
    return signature("", error_line(failure)).digest


def _is_about(run: Course, step: int, error: str) -> bool:
    """Return whether an edit changes what an error names, or it names another step.

    It names a step by the line, or by a name in it.
    """
    event = run.events[step]
    if is_edit(event):
        return concerns(event, error)
    line = only_text(event).lower()
    if line and line in error:
        return True
    # A part of a name may stand alone: the table of "shop.orders".
    parts = set(" ".join(_thing_names(event)).lower().replace(".", " ").split())
    words = {word for word in _words_of(error) if len(word) > MIN_WORD_CHARS}
    return not _named(event).isdisjoint(_names_in(error)) or not parts.isdisjoint(words)


def _changed_call(
    run: Course, failed_calls: Sequence[int], working_call: int, error: str
) -> FoundFix | None:
    """Return the call that worked in place of another, and what it needed.

    It needed the calls that showed its new values; without such calls, the steps with
    a name that the error has and the failed call lacks.
    """
    first_failed = failed_calls[0]
    failed = run.events[first_failed]
    success = run.events[working_call]
    if failed.tool == success.tool and hides_failure(failed, success):
        return None
    steps = _find_shown(run, first_failed, working_call)[:MAX_TOLD_CALLS]
    if not steps:
        names = _names_in(error) - _named(failed)
        steps = [
            n
            for n in _good_calls(run, failed_calls[-1], working_call)
            if not _only_shows(run.events[n])
            and not names.isdisjoint(_named(run.events[n]))
        ][-MAX_TOLD_CALLS:]
    return FoundFix(
        kind=_kind_of(failed, success),
        failed_calls=tuple(failed_calls),
        working_call=working_call,
        needed_steps=tuple(steps),
    )


def _find_shown(run: Course, failed: int, working_call: int) -> list[int]:
    """Return the calls in between whose results first showed a new value of a call."""
    unexplained = _new_tokens(run, failed, working_call)
    steps: list[int] = []
    for call in _good_calls(run, failed, working_call):
        text = _result_text(run, call)
        shown_tokens = {token for token in unexplained if _has_token(text, token)}
        if shown_tokens:
            steps.append(call)
            unexplained -= shown_tokens
    return steps


def _new_tokens(run: Course, failed: int, working_call: int) -> set[str]:
    """Return what a call has that the failed one and its error lack."""
    before = f"{text_of_call(run.events[failed])} {_result_text(run, failed)}".lower()
    tokens = tokens_of(text_of_call(run.events[working_call]))
    tokens |= {value.lower() for value in _long_values(run.events[working_call])}
    return {token for token in tokens if token not in before}


def _kind_of(failed: Event, success: Event) -> FixKind:
    """Return the kind of a fix by what differs between two calls."""
    if failed.tool != success.tool:
        return "tool"
    if command_of(given_to(success)) != command_of(given_to(failed)):
        return "command"
    changed = {name.lower() for name, _, _ in differences(failed, success)}
    return "path" if changed and changed <= set(PATH_ARGUMENTS) else "arguments"


def _good_calls(run: Course, start: int, end: int) -> list[int]:
    """Return the calls of tools between two positions that did not fail.

    Only the last `MAX_DISTANCE_EVENTS` events of a long way count.
    """
    return [
        position
        for position in range(max(start + 1, end - MAX_DISTANCE_EVENTS), end)
        if run.roles[position] == "act"
        and run.events[position].tool
        and call_worked(run, position)
    ]


def _result_text(run: Course, call: int) -> str:
    """Return what the result of a call says, in lower case."""
    result = run.result[call]
    if result is None:
        return ""
    event = run.events[result]
    return ends(f"{event.error}\n{event.content}").lower()


def _messages(run: Course, start: int, end: int) -> str:
    """Return what the user says between two positions."""
    events = run.events[start:end]
    return " ".join(e.content for e in events if e.type == "user_message")


def _has_token(text: str, token: str) -> bool:
    """Return whether a text in lower case has a token; a number stands alone."""
    if token.isdigit():
        return re.search(rf"(?<!\d){token}(?!\d)", text) is not None
    return token in text


def _named(event: Event) -> set[str]:
    """Return the names in a call: paths with their parts, ids, and whole values."""
    text = text_of_call(event)
    names = set(_THING_PATTERN.findall(text))
    parts = _split_names(names)
    values = {value for value in leaves(event).values() if len(value.split()) == 1}
    tokens = {token for token in tokens_of(text) if len(token) > MIN_WORD_CHARS}
    return {name.lower() for name in names | parts | values | tokens if len(name) > 2}


def _names_in(text: str) -> set[str]:
    """Return the names in an error: quoted texts, paths, and words with marks."""
    quoted = set(map("".join, QUOTED_TEXT_PATTERN.findall(text)))
    names = set(_THING_PATTERN.findall(text))
    parts = _split_names(names)
    return {name.lower().strip(".") for name in quoted | names | parts if len(name) > 2}


def _split_names(names: Iterable[str]) -> set[str]:
    """Return the parts of paths and of names such as "image:tag"."""
    return set(" ".join(names).replace("/", " ").replace(":", " ").split())


def is_look(event: Event) -> bool:
    """Return whether a call only looks at something."""
    return looks(event.tool, _command(event))


def _only_shows(event: Event) -> bool:
    """Return whether a call looks at something or checks the work."""
    return is_look(event) or checks(_line_of(event))


def _changes_things(event: Event) -> bool:
    """Return whether a call edits, moves or removes what it names."""
    return changes(event.tool, _command(event))


def _command(event: Event) -> str:
    """Return the only or the longest argument of a call, in lower case."""
    longest = max(named_arguments(event).values(), key=len, default="")
    return (only_text(event) or longest).lower().lstrip()


def found_nothing(run: Course, call: int) -> bool:
    """Return whether a command looked for something, and only its exit code 1 says no.

    Any other status, such as 404 or 503, is that of a step that failed.
    """
    result = run.result[call]
    event = run.events[call]
    command = command_of(given_to(event))
    if result is None or not command or not looks(event.tool, command):
        return False
    has_words = not is_bare_status(run.failure[result])
    return not has_words and status_words(run.events[result]) == "exit code 1"


def is_wait(event: Event) -> bool:
    """Return whether a call waits, by the name of its tool or program."""
    return bool(
        _WAIT_PATTERN.search(words_of_tool(event.tool))
        or _WAIT_PATTERN.match(_command(event))
    )


def _line_of(event: Event) -> str:
    """Return the line of commands of a call, "" for another call, or a query."""
    if "sql" in event.tool.casefold():
        return ""
    text = only_text(event)
    return command_of(given_to(event)) or (text if " " in text else "")


def was_wanted(run: Course, failed: int, working_call: int) -> bool:
    """Return whether the user wanted both calls: the first by the task, then another.

    Then the first call was not a mistake. What the user says about a value that the
    task does not have is a fix.
    """
    failed_tokens = tokens_of(text_of_call(run.events[failed]))
    working_tokens = tokens_of(text_of_call(run.events[working_call]))
    new = working_tokens - failed_tokens
    if not new:
        return False

    prompts = _messages(run, 0, failed)
    task = tokens_of(f"{run.episode.task} {prompts}")
    old = failed_tokens - working_tokens
    if not old or not old <= task:
        return False
    return new <= task or new <= tokens_of(_messages(run, failed, working_call))


def was_dropped(run: Course, failed: int) -> bool:
    """Return whether the user answered a failure, and the call was not tried again.

    Then the user asked for something else: there was nothing to fix.
    """
    result = run.end_of(failed)
    later = [n for n in range(result + 1, len(run.events)) if run.roles[n] == "act"]
    next_call = (*later, len(run.events))[0]
    if not _messages(run, result, next_call):
        return False
    tool = run.events[failed].tool
    same = [n for n in later if run.events[n].tool == tool]
    error = _result_text(run, failed)
    return not any(_likeness_of(run, failed, call, error) for call in same)


def find_correction(run: Course) -> Correction | None:
    """Return the last answer that was refused, None unless another was accepted.

    A remark is an error that belongs to no call, or what somebody else than the agent
    and the user says about an answer.
    """
    if run.episode.outcome not in ("success", "partial"):
        return None
    answers = [n for n, event in enumerate(run.events) if _is_answer(event)]
    remarks = [n for n in range(len(run.events)) if _is_remark(run, n, answers)]
    for remark in reversed(remarks):
        before = [n for n in answers if n < remark]
        after = [n for n in answers if n > remark]
        if before and after:
            refused = run.events[before[-1]].content
            accepted = run.events[after[-1]].content
            if _holds(accepted, refused) or _holds(refused, accepted):
                return None
            return Correction(answer=before[-1], remark=remark, accepted=after[-1])
    return None


def _is_answer(event: Event) -> bool:
    """Return whether an event is a text of the agent."""
    return event.type == "llm_response" and bool(event.content.strip())


def _is_remark(run: Course, position: int, answers: Sequence[int]) -> bool:
    """Return whether an event judges the answer just before it."""
    event = run.events[position]
    if position - 1 not in answers or not (event.error or event.content).strip():
        return False
    if event.type == "error_event":
        return run.act[position] is None
    speaker = run.events[position - 1].agent
    is_other = event.agent not in ("", "user", speaker)
    return is_other and event.type in ("user_message", "system_event", "llm_response")


def is_verdict(run: Course, position: int) -> bool:
    """Return whether an event is what a checker says of the answer just before it."""
    before = position - 1
    if position < 1 or run.events[position].type != "system_event":
        return False
    return _is_answer(run.events[before]) and _is_remark(run, position, [before])


def _holds(text: str, part: str) -> bool:
    """Return whether a text has the words of a part in a row."""
    words = " ".join(TOKEN_PATTERN.findall(text.lower()))
    part_words = " ".join(TOKEN_PATTERN.findall(part.lower()))
    return f" {part_words} " in f" {words} "
