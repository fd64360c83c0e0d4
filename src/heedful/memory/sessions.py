"""Learn from sessions of coding agents: what failed, what was tried in vain, what put it right."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons.action import Step, action, command_of
from heedful.lessons.lesson import Reflection, Remembered, Scope, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import (
    initial_state,
    lowest_trust,
    programs,
    source_trust,
)
from heedful.loop.record import clean
from heedful.memory import draft as drafts
from heedful.memory.memory import Memory, write_lessons
from heedful.redact import redact
from heedful.store import episodes
from heedful.store.store import Db, Store
from heedful.traces import signals as trace
from heedful.traces.episode import Episode, Event, failure
from heedful.traces.signals import error_lines

# Arguments with the text that an edit writes, the text that it replaces, and the name of the file.
WRITTEN = ("new_string", "new_str", "new_source", "content", "file_text", "patch")
REPLACED = ("old_string", "old_str")
PATHS = ("file_path", "path", "notebook_path", "filename")
# Calls after a failed call that may be its other form, and vain tries that a lesson names.
AHEAD = 20
VAIN = 3
SAME_FILE = 0.5  # the least likeness of two calls about one file
LINES = 5  # errors of one failed call
STATE = 160  # characters of the step before a failed step
# The importance of a failure that edits put right, which may be the work itself, until it comes
# back in another session; and of other failures. Prompts show lessons from 0.6 on.
WORK, KNOWN = 0.5, 0.7
# A clause of the user that names a word of the agent's last commands right after a negation.
LONGEST_CORRECTION = 300
_FORBIDDEN = re.compile(
    r"\b(?:not|never|no|don['’]t|instead of)(?P<names>(?: +[\w@./-]+){1,3})(?![^.!?\n]*\?)",
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?<=\s)--?[a-z][\w-]*")
_NAME = re.compile(r"[\w@-][\w@./-]*\w")
# An output of tests that failed, or a traceback, in what is marked as a success: of `… | tail`.
_BROKEN = re.compile(r"^(?:--- FAIL|FAIL(?:ED)?\b|Traceback \(|panic: )", re.MULTILINE)
_REDIRECTED = re.compile(r"\s*\d?>>?\s*(?:&\d|/dev/null)")
_PATCH = "*** Begin Patch"


@dataclass(frozen=True, slots=True)
class Mistake:
    """An action of a session that failed, and what put it right.

    `call` is the action in words, and `errors` are the lines that name its errors. `vain` are the
    actions that were tried without effect. `mends` are the edits, or the other call, that put it
    right, whole; empty if nothing did. `steps` is how many actions it took. `work` is true if edits
    put it right: such a failure is often part of the work. `events` are the positions of the failed
    calls and of the last event.
    """

    tool: str
    call: str
    errors: tuple[str, ...]
    vain: tuple[str, ...]
    mends: tuple[str, ...]
    steps: int
    work: bool
    events: tuple[int, ...]

    @property
    def text(self) -> str:
        """The mistake as a lesson."""
        said = [f"{self.call} failed with {', '.join(f'“{each}”' for each in self.errors)}."]
        if self.vain:
            said.append(f"Tried in vain: {'; '.join(self.vain)}.")
        if self.mends:
            said.append("What put it right:" if self.work else "What worked instead:")
        return "\n".join((*said, *self.mends))


@dataclass(frozen=True, slots=True)
class Learned:
    """What a session taught: its mistakes, the corrections of its user, and what was stored.

    `stored` are the lessons by the digests of their signatures. `again` is true if nothing was
    stored because this session was learnt before.
    """

    mistakes: tuple[Mistake, ...]
    corrections: tuple[str, ...]
    stored: Mapping[str, Remembered] = field(default_factory=dict)
    again: bool = False


async def learn_session(
    episode: Episode, *, memory: Memory | Store | str, digest: str = ""
) -> Learned:
    """Store what a session of an agent teaches, in one transaction; the same session only once.

    Each failed action with what put it right is a lesson. A session that was learnt when it was
    shorter counts no sighting again. What depends on an untrusted source waits in quarantine; see
    `Memory.set_trust`. `digest` identifies the session, by default by all its events. Raises
    InvalidInput, QuotaExceeded, StoreError.
    """
    if not isinstance(episode, Episode):
        raise InvalidInput("episode", episode, "an Episode")
    kept, digest = Memory.of(memory, None), digest or episode.digest
    made = await asyncio.to_thread(_Session, episode)
    found = Learned(made.mistakes, made.corrections)
    if await kept.store.read(kept.scope, episodes.state, digest):
        return replace(found, again=True)
    lessons, key = made.lessons(await kept.stated_trust()), (digest, episode, made.actions())
    stored = await write_lessons(kept, lessons, _record, *key)
    marks = (one.signature.digest for one in lessons)
    return replace(
        found, stored=dict(zip(marks, stored, strict=False)), again=bool(lessons) and not stored
    )


def mistakes(episode: Episode) -> tuple[Mistake, ...]:
    """Return the failed actions of a session with what put them right, in their order."""
    return _Session(episode).mistakes


def _record(
    db: Db,
    scope: Scope,
    digest: str,
    episode: Episode,
    steps: Sequence[tuple[Step, str]],
    made: Sequence[Reflection],
    **limits: Any,
) -> list[Remembered]:
    """Write the lessons and the actions of a session; `steps` have the digests of their lessons."""
    head = episode.id, episode.session, episode.outcome
    stored = episodes.record_session(db, scope, digest, *head, made, **limits)
    ids = {one.signature.digest: row.id for one, row in zip(made, stored, strict=False)}
    if ids:
        about = [replace(step, lesson=ids.get(mark, 0)) for step, mark in steps]
        episodes.record_steps(db, scope, made[0].source, about)
    return stored


class _Session:
    """An episode, its steps, and what they teach."""

    def __init__(self, episode: Episode) -> None:
        self.episode = drafts.remove_lessons(episode)
        self.run = run = trace.course(self.episode)
        self.events = run.events
        self.steps = [n for n, role in enumerate(run.roles) if role == "act" and run.result[n]]
        # Where a format marks failures, a text that only begins like an error is none.
        marked = any(event.error for event in self.events if event.type == "tool_response")
        self.failed = [n for n in self.steps if self._failed(n, marked)]
        self.worked = [n for n in self.steps if not trace.call_failed(run, n)]
        self.edits = {n: text for n in self.worked if (text := edit_of(self.events[n]))}
        self.good = frozenset(self.worked)
        self.same: dict[tuple[str, str], list[int]] = {}
        for n in self.worked:
            self.same.setdefault(self._key(n), []).append(n)
        self.mistakes = tuple(self._mistakes())
        self.corrections = tuple(self._corrections())

    def lessons(self, stated: Mapping[str, Trust]) -> list[Reflection]:
        """Return the lessons to be stored; `stated` is the trust of sources."""
        sources = (trace.sources_at(self.run, at) for at in range(len(self.events)))
        known = list(accumulate(sources, lambda before, own: before | own))
        session = self.episode.session or self.episode.id or self.episode.digest[:32]
        made: dict[str, Reflection] = {}

        def add(error: str, text: str, sources: frozenset[str], own: Trust, weight: float) -> None:
            mark = signature("", error)
            trust = lowest_trust((own, *(source_trust(one, stated) for one in sources)))
            lesson = Reflection(
                "reflection",
                mark,
                "",
                text,
                error,
                state=initial_state(trust),
                trust=trust,
                importance=weight,
                source=f"episode:{session}"[:200],
                sources=tuple(sorted(sources)),
            )
            made.setdefault(mark.digest, lesson)

        for each in self.mistakes:
            weight = WORK if each.work or not each.mends else KNOWN
            for error in each.errors:
                # That a call worked after others had failed is a measured outcome.
                own: Trust = "measured" if each.mends else "model"
                add(error, each.text, known[each.events[-1]], own, weight)
        for said in self.corrections:
            add(said, said, frozenset({"user"}), "operator", KNOWN)
        return list(made.values())

    def actions(self) -> list[tuple[Step, str]]:
        """Return the steps for `Memory.before`, each with the digest of its lesson or ""."""
        found, before = list[tuple[Step, str]](), ""
        failed = set(self.failed)
        for at in self.steps:
            event = self.events[at]
            acted = action(event.tool, trace.given_to(event))
            said = next(iter(self._errors(at)), "error") if at in failed else ""
            found.append((Step(acted, said, state=before), signature("", said).digest))
            before = f"after {clean(f'{event.tool}: {acted.text}', STATE)}"
        return found

    def _failed(self, at: int, marked: bool) -> bool:
        result = self.run.result[at]
        if result is None or not trace.call_failed(self.run, at):
            return False
        event = self.events[result]
        return not marked or failure(event) or bool(_BROKEN.search(event.content))

    def _key(self, at: int) -> tuple[str, str]:
        """Return what makes two calls the same: a command without what only shows its output."""
        event = self.events[at]
        command = essence(command_of(trace.given_to(event)))
        return event.tool, command or trace.canonical_arguments(event)

    def _mistakes(self) -> Iterator[Mistake]:
        known = set[str]()
        for at in self.failed:
            marks = {signature("", each).digest: each for each in self._errors(at)}
            new = tuple(each for mark, each in marks.items() if mark not in known)
            known |= marks.keys()
            if new:
                yield self._mistake(at, new)

    def _errors(self, at: int) -> Iterator[str]:
        """Yield the lines that name the errors of a failed step."""
        result = self.run.result[at]
        text = self.run.failure[at] or self.run.failure[at if result is None else result]
        # An exit status names no error.
        lines = error_lines(trace.output(text).splitlines(), others=False) or ["error"]
        yield from islice(map(redact, lines), LINES)

    def _mistake(self, at: int, errors: tuple[str, ...]) -> Mistake:
        events, run = self.events, self.run
        passed = next((n for n in self.same.get(self._key(at), ()) if n > at), None)
        edits = [text for n, text in self.edits.items() if at < n < (passed or at)]
        end, mends = passed, list(edits)
        if edits and passed is not None and call_text(events[passed]) != call_text(events[at]):
            mends.append(f"then {call_text(events[passed])} passed")
        if not edits:
            near = [n for n in self.steps if n > at][:AHEAD]
            alike = {n: self._likeness(at, n) for n in near if not trace.call_failed(run, n)}
            alike = {n: alike[n] for n in alike if alike[n] and self._key(n) != self._key(at)}
            end = max(alike, key=lambda n: alike[n], default=passed)
            # The first call that worked, and the one that is most like the failed one; and what
            # was done with the same file before.
            best = {next(iter(alike)), end} if alike and end is not None else set()
            first = [
                n for n in near if self._same_file(at, n) and n < (end or at) and n in self.good
            ]
            mends = [
                self.edits.get(n) or call_text(events[n]) for n in sorted({*first[-VAIN:], *best})
            ]
        until = at if end is None else end
        again = [n for n in self.failed if at < n < until and self._likeness(at, n)]
        call = call_text(events[at])
        vain = dict.fromkeys(text for n in again if (text := call_text(events[n])) != call)
        return Mistake(
            events[at].tool,
            redact(call),
            errors,
            tuple(map(redact, list(vain)[-VAIN:])),
            tuple(map(redact, mends)),
            sum(at < n <= until for n in self.steps),
            bool(edits),
            (at, *again, run.result[until] or until),
        )

    def _likeness(self, at: int, other: int) -> float:
        """Return how much two steps are forms of one action, 0..1."""
        one, two = self.events[at], self.events[other]
        if one.tool != two.tool or one.agent != two.agent:
            return 0.0
        return max(SAME_FILE * self._same_file(at, other), trace.likeness(self.run, at, other))

    def _same_file(self, at: int, other: int) -> bool:
        given = (trace.given_to(self.events[n]) for n in (at, other))
        files = [_first_text(each, PATHS) if isinstance(each, Mapping) else None for each in given]
        return files[0] is not None and files[0] == files[1]

    def _corrections(self) -> Iterator[str]:
        """Yield the messages in which the user forbids what the agent just did."""
        did = set[str]()
        for event in self.events:
            if event.type == "tool_call":
                command = command_of(trace.given_to(event)).lower()
                did |= {*programs(command), *_OPTION.findall(command)}
            elif event.type == "user_message":
                said = redact(event.content.strip())
                found = _FORBIDDEN.finditer(said.lower()) if len(said) <= LONGEST_CORRECTION else ()
                if any(name in did for one in found for name in _NAME.findall(one["names"])):
                    yield said
                did = set()


def essence(command: str) -> str:
    """Return a command without redirections and without the pipe that shows its output.

    >>> essence("cd app && go test ./... 2>&1 | tail -20")
    'cd app && go test ./...'
    """
    bare = _REDIRECTED.sub("", command).strip()
    head, pipe, _ = bare.partition(" | ")
    return head.strip() if pipe and programs(head) else bare


def call_text(event: Event) -> str:
    """Return a call in words, whole: the tool, and its command or its arguments."""
    given = trace.given_to(event)
    text = json.dumps(given, ensure_ascii=False, separators=(",", ":"), default=str)
    return f"{event.tool} `{command_of(given) or text}`"


def edit_of(event: Event) -> str:
    """Return what a call changes in a file, whole, with signs as in a difference; "" if nothing."""
    given = trace.given_to(event)
    if isinstance(given, str) or _PATCH in str(given.get("input", "")):
        text = given if isinstance(given, str) else str(given["input"])
        return text if _PATCH in text else ""
    changes = given["edits"] if isinstance(given.get("edits"), list) else [given]
    lines: list[str] = []
    for change in changes:
        one = change if isinstance(change, Mapping) else {}
        old, new = (_first_text(one, names) for names in (REPLACED, WRITTEN))
        if new is not None:
            texts = (old or "").splitlines(), new.splitlines()
            lines += [*difflib.unified_diff(*texts, n=1, lineterm="")][2:]
    return "\n".join([f"edit {_first_text(given, PATHS)}:", *lines]) if lines else ""


def _first_text(given: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)
