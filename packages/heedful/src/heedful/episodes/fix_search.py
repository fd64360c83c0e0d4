"""Fixes: which call worked after another had failed, and what made the difference.

A failed call was put right by what the run did until the same call worked, or by a call
that worked in its place: the run shows what helped, and the error alone does not.
`pytest` fails, `pip install yaml` and `pytest` work: the fix is the step in between.
`cat a.txt` fails, `ls` and `cat b.txt` work: the fix is the other path, which `ls`
showed.

The fix of a failed call is the first later success of the same call, or the success of
the call that is most like it, with what lay between. Between a call that failed and the
same call, a step is the fix if nothing else lay there, or if the error names it; edits
are if they change what the error names. Which of several other steps it was, another
run shows. A call that only looks is no fix, unless it found what the next call has.
Trouble that passes by itself teaches waiting only. A call that failed, that only hides
a failure, or that a person refused is no fix. Pure.

`find_fix` comes first, with what it calls in this order; then what several functions
read of a call, then failures that need no fix, and last `find_correction`.
"""

import math
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
    replaces,
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
from heedful.episodes.episode import TIMEOUT_CODE_PATTERN, Event
from heedful.episodes.error_lines import error_line, is_of_work
from heedful.episodes.failures import STATUS_NAMES, is_bare_status, status_words
from heedful.episodes.looks import begins_with, changes, looks
from heedful.lessons.action import (
    PATH_ARGUMENTS,
    QUOTED_TEXT_PATTERN,
    command_of,
)
from heedful.lessons.mistake import FixKind
from heedful.lessons.signature import signature

# A retry is looked for among this many calls of the tool after the failed one, and
# another way among this many calls of any tool.
MAX_RETRY_DISTANCE_CALLS = 20
MAX_DISTANCE_EVENTS = 200
MAX_TOLD_CALLS = 3
MIN_VALUE_CHARS = 8
# The share of the names in a failed call that another way has, too.
MIN_SHARED_NAMES = 1 / 3
# A value that says which thing is meant: it has a digit, a mark or a capital inside.
_THING_PATTERN = re.compile(
    r"(?=\S*[\d_./@:-]|\S*[a-z][A-Z])[^\s\"'`,;()=\[\]{}|\\]{5,}"
)
_WAIT_PATTERN = re.compile(r"(?:\w+[ .])?(?:start-)?(?:sleep|wait|pause)\b")
# A trouble of time: a limit of calls, a time-out, a connection that broke off, or a
# status of a server, which is no part of a path or of a place in a file.
_PASSING_PATTERN = re.compile(
    r"rate.?limit|too many requests|retry[-_ ]?after|try again (?:later|in|after)"
    r"|\be?time[d ]?[ -]?out\b|\bconnection (?:was )?(?:reset|closed|lost|aborted)\b"
    r"|\bclosed the connection\b|\bdeadline[ _]exceeded\b"
    r"|(?<![\w/.:,-])(?:429|5\d\d)(?![\w/,-])"
    rf"|{'|'.join(name for name, code in STATUS_NAMES.items() if code >= '500')}"
)
# What passes, or what somebody has to start or to free: a refused connection, a name
# that is not resolved, a lock, a deadlock, a conflict of transactions, a quota, a full
# disk, a daemon that does not run.
_TRANSIENT_PATTERN = re.compile(
    r"connection refused|econnre(?:fused|set)|could not resolve|name resolution"
    r"|name or service not known|getaddrinfo|\block(?:ed)?\b|deadlock|overloaded"
    r"|temporarily unavailable|\beagain\b|\bserializ\w+ (?:access|failure)|\bquota\b"
    r"|no space left|disk (?:is )?full|daemon (?:is )?(?:not running|running\?)"
)
# In the output of a command: what it called took too long.
_REMOTE_TIMEOUT_PATTERN = re.compile(r"\b(?:408|504|e?timedout)\b|deadline")
# How long an error asks to wait, in seconds if it says no unit.
_DELAY_PATTERN = re.compile(
    r"(?:retry[-_ ]?after|again (?:in|after)|wait)\W{0,4}(?:\w+ ){0,2}(\d{1,5})"
    r" ?(ms|m(?:in)?)?",
    re.IGNORECASE,
)
# What the agent says of a failure that it wanted to see, in a part of a sentence.
_EXPECTED_PATTERN = re.compile(
    r"(?:\A|[.!?:;]\s)(?:(?!\bnot\b|n't|[:;]\s)[^.!?])*?"
    r"\b(?:as (?:it should|expected|wanted|intended|planned|desired|required)"
    r"|(?:is|was|were) (?:expected|intended|meant) to)\b",
    re.IGNORECASE,
)
# A task that asks to see a failure, as "watch it fail" or "check that it rejects" do,
# but not "check why it fails". The second shape is in four languages.
_PROBING_TASK_PATTERN = re.compile(
    r"\b(?:see|watch|let) (?:it|them|this|that|the tests?) fail\b"
    r"|\bfailing test\b.{0,40}\bfirst\b"
    r"|\b(?:check|test|verif|confirm|prov|prüf|überprüf|vérifi|compr(?:ue|o)b)\w{0,4}"
    r"(?:\W+\w+)?\W+(?:that|whether|if|dass|ob|que|si)\b.{0,60}"
    r"\b(?:(?:rejects?|refuses?|den(?:y|ies)|fails?|blocks?|forbids?|prevents?)\b"
    r"|(?:is|are) (?:rejected|refused|denied|blocked|forbidden|prevented)\b"
    r"|(?:does not|doesn't|cannot|can't) (?:accept|allow|permit)"
    r"|(?:abweis|ablehn|verweiger|verhinder|blockier|fehlschl|scheiter)"
    r"|(?:empêche|refuse|rejette|bloque|interdi|échou)"
    r"|(?:rechaz|impid|bloque|denieg|prohíb|fall))",
    re.IGNORECASE | re.DOTALL,
)
# A task about something that may be absent.
_EXISTENCE_TASK_PATTERN = re.compile(
    r"(?is)\b(?:unless|if|whether)\b.{0,60}\bexists?\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFix:
    """What put a failed call right: positions of calls in a run.

    `failed_calls` are in their order, and `working_call` is the one that worked.
    `needed_steps` lay between: steps before the same call, edits, or what showed the
    new values of the call. Of the `possible_steps`, it is not known which was the fix.
    Without steps, nothing is known to have made the same call work.
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

    The same call decides if it soon works. If not, the fix is the most similar call of
    the tool that soon worked, else the same call much later, else another tool.
    `index` has the calls of the run, and `error` is the line that names the error, by
    default all that the result says.
    """
    failure = run.failure_of(failed)
    needs_work = is_of_work(error or error_line(failure))
    text = f"{error}\n{_result_text(run, failed)}".lower()
    working_call = index.success_after(failed)
    retries = index.calls_after(failed)
    if working_call not in retries:
        successes = [call for call in retries if call_worked(run, call)]
        if needs_work:
            # It is gone when the same command works, or one with what the error names.
            successes = [
                call for call in successes if _has_named(run, failed, call, text)
            ]
        likeness = {call: _likeness_of(run, failed, call, text) for call in successes}
        alike = [call for call in likeness if likeness[call] > 0]
        working_call = max(alike, key=likeness.__getitem__, default=working_call)
        if working_call is None and not needs_work:
            working_call = _find_other_way(run, failed)
    if working_call is None:
        return None

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
    if equal_calls[0] != failed and fix.kind != "waiting":
        kind = _kind_of(run.events[failed], success)
        return replace(fix, kind=kind, possible_steps=())
    return fix


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


def _find_other_way(run: Course, failed: int) -> int | None:
    """Return a call of another tool or program for the same thing, None without one.

    It names what the failed call names; of several calls it is the first that has most
    of these names. A look is another way only for a call that looks, and a change of
    the thing never is.
    """
    event = run.events[failed]
    names = _thing_names(event)
    later = range(failed + 1, len(run.events))
    calls = (n for n in later if run.roles[n] == "act")

    other: int | None = None
    highest = max(0, math.ceil(MIN_SHARED_NAMES * len(names)) - 1)
    for call in islice(calls, MAX_RETRY_DISTANCE_CALLS):
        candidate = run.events[call]
        if not call_worked(run, call):
            continue
        if candidate.tool == event.tool and begin_alike(event, candidate):
            continue
        if _changes_things(candidate):
            continue
        if is_look(candidate) and not is_look(event):
            continue

        common = len(names & _thing_names(candidate))
        if common > highest and _result_text(run, call).strip():
            other = call
            highest = common
    return other


def _thing_names(event: Event) -> set[str]:
    """Return the names of things in a call: paths, ids, long values."""
    names = _long_values(event).union(_THING_PATTERN.findall(text_of_call(event)))
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
    after which the call failed with the same error was in vain. Of the others, the only
    one is the fix; if there are several, if the user spoke meanwhile, or if the trouble
    passes by itself, a step needs to be named by the error.
    """
    fix = FoundFix(
        kind="step", failed_calls=tuple(failed_calls), working_call=working_call
    )
    last_failed = equal_calls[-1]
    between = [
        n
        for n in _good_calls(run, equal_calls[0], working_call)
        if not is_look(run.events[n])
        and not hides_failure(run.events[working_call], run.events[n])
    ]
    waits = [n for n in between if n > last_failed and is_wait(run, n, last_failed)]
    if waits:
        return replace(fix, kind="waiting", needed_steps=tuple(waits[-1:]))

    vain_steps = [
        step
        for call, next_call in pairwise(equal_calls)
        if _error_digest(run, call) == _error_digest(run, next_call)
        for step in between
        if call < step < next_call
    ]
    steps = [n for n in between if n not in vain_steps]
    distinct = {(run.events[n].tool, text_of_call(run.events[n])) for n in steps}
    is_only = len(distinct) == 1 and not _messages(run, last_failed, working_call)
    if not is_only or passes_by_itself(run, last_failed):
        errors = "\n".join([error, *(_result_text(run, n) for n in equal_calls)])
        named_steps = [n for n in steps if _is_about(run, n, errors)]
        named_files = set().union(*(_long_values(run.events[n]) for n in named_steps))
        # Another edit of a file belongs to the first one.
        needed_steps = [
            n
            for n in steps
            if n in named_steps
            or not named_files.isdisjoint(_long_values(run.events[n]))
        ]
        if not needed_steps and is_transient(run, last_failed):
            return replace(fix, kind="waiting")
        if not needed_steps:
            return replace(fix, possible_steps=tuple(steps))
        steps = needed_steps
    if all(is_edit(run.events[n]) for n in steps):
        fix = replace(fix, kind="edit")
    lasting_steps = _without_replaced(run, steps)
    return replace(fix, needed_steps=tuple(lasting_steps[-MAX_TOLD_CALLS:]))


def _error_digest(run: Course, call: int) -> str:
    """Return the digest of the error of a call, apart from numbers and names."""
    failure = run.failure_of(call)
    return signature("", error_line(failure)).digest


def _is_about(run: Course, step: int, error: str) -> bool:
    """Return whether an edit changes what an error names, or it names another step."""
    if is_edit(run.events[step]):
        return concerns(run.events[step], error)
    command = only_text(run.events[step]).lower()
    if command and command in error:
        return True
    return not _named(run.events[step]).isdisjoint(_names_in(error))


def _without_replaced(run: Course, edits: Sequence[int]) -> list[int]:
    """Return the edits that no later one takes back."""
    lasting: list[int] = []
    for step in edits:
        event = run.events[step]
        lasting = [n for n in lasting if not replaces(event, run.events[n])]
        lasting.append(step)
    return lasting


def _changed_call(
    run: Course, failed_calls: Sequence[int], working_call: int, error: str
) -> FoundFix | None:
    """Return the call that worked in place of another, and what it needed.

    It needed the calls that showed its new values; without such calls, the steps just
    before it that change something or that the error names.
    """
    first_failed = failed_calls[0]
    failed = run.events[first_failed]
    success = run.events[working_call]
    if failed.tool == success.tool and hides_failure(failed, success):
        return None
    steps = _find_shown(run, first_failed, working_call)[:MAX_TOLD_CALLS]
    if not steps:
        error_names = _names_in(error)
        for n in _good_calls(run, failed_calls[-1], working_call):
            event = run.events[n]
            if is_look(event):
                continue
            is_retry = event.tool == failed.tool and _likeness_of(
                run, first_failed, n, error
            )
            if not is_retry and (_changes_things(event) or _named(event) & error_names):
                steps.append(n)
        steps = steps[-MAX_TOLD_CALLS:]
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
    if command_of(given_to(success)):
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


def is_wait(run: Course, step: int, failed: int) -> bool:
    """Return whether a step waits, by its name or by a number that the error gives."""
    event = run.events[step]
    if begins_with(_WAIT_PATTERN, event.tool) or _WAIT_PATTERN.match(_command(event)):
        return True
    arguments = list(leaves(event).values())
    if len(arguments) != 1 or not arguments[0].isdigit():
        return False
    return _has_token(_result_text(run, failed), arguments[0])


def passes_by_itself(run: Course, call: int) -> bool:
    """Return whether a failure is one of time, which no step puts right.

    That is a time-out, a limit of calls, or a server that fails or is overloaded.
    """
    code = run.events[run.end_of(call)].code
    if TIMEOUT_CODE_PATTERN.search(code):
        return True
    return _PASSING_PATTERN.search(f"{code} {_result_text(run, call)}") is not None


def is_transient(run: Course, call: int) -> bool:
    """Return whether a failure may be gone when the same call is made later."""
    text = _result_text(run, call)
    return passes_by_itself(run, call) or _TRANSIENT_PATTERN.search(text) is not None


def took_too_long(run: Course, call: int) -> bool:
    """Return whether a command was stopped because it took too long.

    It would again. That another computer took too long, passes.
    """
    text = _result_text(run, call)
    is_command = command_of(given_to(run.events[call])) != ""
    is_late = TIMEOUT_CODE_PATTERN.search(text) is not None
    return is_command and is_late and not _REMOTE_TIMEOUT_PATTERN.search(text)


def asked_delay(run: Course, call: int) -> float | None:
    """Return the seconds that the error of a call asks to wait, None if it does not."""
    match = _DELAY_PATTERN.search(_result_text(run, call))
    if match is None:
        return None
    unit = (match[2] or "").lower()
    seconds_in_unit = {"ms": 0.001, "m": 60.0, "min": 60.0}.get(unit, 1.0)
    return float(match[1]) * seconds_in_unit


def asks_to_wait(run: Course, call: int) -> bool:
    """Return whether the error of a call says that it may work later."""
    text = _result_text(run, call)
    is_limited = "too many requests" in text or re.search("rate.?limit", text)
    return bool(is_limited) or asked_delay(run, call) is not None


def waited(run: Course, failed: int, working_call: int) -> float | None:
    """Return the asked delay if as much time passed before a call worked, else None."""
    delay = asked_delay(run, failed)
    start = run.events[run.end_of(failed)].at
    end = run.events[working_call].at
    if delay is None or start is None or end is None or end - start < 0.9 * delay:
        return None
    return delay


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


def was_meant(run: Course, failed: int) -> bool:
    """Return whether a failure was wanted: the task asks for it, or the agent says so.

    The agent says it before its next call.
    """
    task = f"{run.episode.task}\n{_messages(run, 0, failed)}"
    if _PROBING_TASK_PATTERN.search(task):
        return True
    text = _result_text(run, failed)
    says_absent = any(sign in text for sign in ("not found", "no such", "not exist"))
    if says_absent and _EXISTENCE_TASK_PATTERN.search(task):
        return True

    for position in range(run.end_of(failed) + 1, len(run.events)):
        if run.roles[position] == "act":
            break
        if run.roles[position] == "said":
            return _EXPECTED_PATTERN.search(run.events[position].content) is not None
    return False


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
