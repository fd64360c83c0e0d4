"""Learn from sessions of coding agents: what failed, what was tried in vain, what put it right."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from operator import or_
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons.action import Step, command_of
from heedful.lessons.lesson import Reflection, Remembered, Scope, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import initial_state, lowest_trust, programs, source_trust
from heedful.memory import draft as drafts
from heedful.memory.memory import Memory, write_lessons
from heedful.memory.reflect import steps_of
from heedful.redact import redact
from heedful.store import episodes
from heedful.store.store import Db, Store
from heedful.traces import signals as trace
from heedful.traces.episode import Ended, Episode, Event, failure
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
    put it right: such a failure is often part of the work. `end` is the position of the last event.
    """

    call: str
    errors: tuple[str, ...]
    vain: tuple[str, ...]
    mends: tuple[str, ...]
    steps: int
    work: bool
    end: int

    @property
    def weight(self) -> float:
        """The importance of its lessons until it comes back."""
        return WORK if self.work or not self.mends else KNOWN

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

    `stored` are the lessons by the digests of their signatures. `again` is true, and all else is
    empty, if this session was learnt before.
    """

    mistakes: tuple[Mistake, ...] = ()
    corrections: tuple[str, ...] = ()
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
    if await kept.store.read(kept.scope, episodes.state, digest):
        return Learned(again=True)
    made = await asyncio.to_thread(_Session, episode)
    lessons = made.lessons(await kept.stated_trust())
    head = digest, episode.id, episode.session, episode.outcome
    stored = await write_lessons(kept, lessons, _record, head, made.actions)
    marks = (one.signature.digest for one in lessons)
    return Learned(made.mistakes, made.corrections, dict(zip(marks, stored, strict=False)))


def _record(
    db: Db,
    scope: Scope,
    head: tuple[str, str, str, Ended],
    steps: Sequence[Step],
    made: Sequence[Reflection],
    **limits: Any,
) -> list[Remembered]:
    """Write the lessons and the actions of a session."""
    stored = episodes.record_session(db, scope, *head, made, **limits)
    ids = {one.signature.digest: row.id for one, row in zip(made, stored, strict=False)}
    if ids:
        about = [replace(one, lesson=ids.get(signature("", one.error).digest, 0)) for one in steps]
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
        self.good = frozenset(n for n in self.steps if not trace.call_failed(run, n))
        self.edits = {n: t for n in self.steps if n in self.good and (t := edit_of(self.events[n]))}
        self.keys = {n: self._key(n) for n in self.steps}
        self.files = {n: _text(trace.given_to(self.events[n]), PATHS) for n in self.steps}
        self.mistakes = tuple(self._mistakes())
        self.corrections = tuple(self._corrections())
        self.actions = steps_of(run, errors={n: next(self._errors(n)) for n in self.failed})

    def lessons(self, stated: Mapping[str, Trust]) -> list[Reflection]:
        """Return the lessons to be stored; `stated` is the trust of sources."""
        sources_at = (trace.sources_at(self.run, at) for at in range(len(self.events)))
        known = list(accumulate(sources_at, or_))
        session = self.episode.session or self.episode.id or self.episode.digest[:32]
        # That a call worked after others had failed is a measured outcome.
        told: list[tuple[str, str, frozenset[str], Trust, float]] = [
            (error, each.text, known[each.end], "measured" if each.mends else "model", each.weight)
            for each in self.mistakes
            for error in each.errors
        ]
        told += ((one, one, frozenset({"user"}), "operator", KNOWN) for one in self.corrections)
        made: dict[str, Reflection] = {}
        for error, text, sources, own, weight in told:
            mark = signature("", error)
            trust = lowest_trust((own, *(source_trust(one, stated) for one in sources)))
            made[mark.digest] = made.get(mark.digest) or Reflection(
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
        return list(made.values())

    def _failed(self, at: int, marked: bool) -> bool:
        event = self.events[self.run.result[at] or at]
        told = not marked or failure(event) or _BROKEN.search(event.content)
        return bool(told) and trace.call_failed(self.run, at)

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
        text = self.run.failure[at] or self.run.failure[self.run.result[at] or at]
        # An exit status names no error.
        lines = error_lines(trace.output(text).splitlines(), others=False) or ["error"]
        yield from islice(map(redact, lines), LINES)

    def _mistake(self, at: int, errors: tuple[str, ...]) -> Mistake:
        call, keys = call_text(self.events[at]), self.keys
        later = (n for n in self.steps if n > at and n in self.good)
        until = next((n for n in later if keys[n] == keys[at]), at)
        mends = [text for n, text in self.edits.items() if at < n < until]
        work = bool(mends)
        if work and (passed := call_text(self.events[until])) != call:
            mends.append(f"then {passed} passed")
        if not work:
            until, mends = self._other(at, until)
        again = [n for n in self.failed if at < n < until and self._likeness(at, n)]
        vain = dict.fromkeys(text for n in again if (text := call_text(self.events[n])) != call)
        return Mistake(
            redact(call),
            errors,
            tuple(map(redact, list(vain)[-VAIN:])),
            tuple(map(redact, mends)),
            sum(at < n <= until for n in self.steps),
            work,
            self.run.result[until] or until,
        )

    def _other(self, at: int, until: int) -> tuple[int, list[str]]:
        """Return the step that is another form of a failed one, or `until`, and what worked."""
        near = [n for n in self.steps if n > at][:AHEAD]
        near = [n for n in near if n in self.good]
        alike = {n: self._likeness(at, n) for n in near if self.keys[n] != self.keys[at]}
        alike = {n: share for n, share in alike.items() if share}
        until = max(alike, key=lambda n: alike[n], default=until)
        # The first call that worked, and the one that is most like the failed one; and what was
        # done with the same file before.
        best = {next(iter(alike)), until} if alike else set()
        first = [n for n in near if n < until and self._same_file(at, n)]
        told = sorted({*first[-VAIN:], *best})
        return until, [self.edits.get(n) or call_text(self.events[n]) for n in told]

    def _likeness(self, at: int, other: int) -> float:
        """Return how much two steps are forms of one action, 0..1."""
        one, two = self.events[at], self.events[other]
        if one.tool != two.tool or one.agent != two.agent:
            return 0.0
        return max(SAME_FILE * self._same_file(at, other), trace.likeness(self.run, at, other))

    def _same_file(self, at: int, other: int) -> bool:
        return self.files[at] is not None and self.files[at] == self.files[other]

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
    held = {"input": given} if isinstance(given, str) else given
    if _PATCH in (patch := str(held.get("input", ""))):
        return patch
    lines: list[str] = []
    for change in held["edits"] if isinstance(held.get("edits"), list) else [held]:
        old, new = (_text(change, names) for names in (REPLACED, WRITTEN))
        if new is not None:
            texts = (old or "").splitlines(), new.splitlines()
            lines += [*difflib.unified_diff(*texts, n=1, lineterm="")][2:]
    return "\n".join([f"edit {_text(held, PATHS)}:", *lines]) if lines else ""


def _text(given: Any, names: Sequence[str]) -> str | None:
    """Return the first text that an object has under one of the names."""
    held = given if isinstance(given, Mapping) else {}
    return next((held[name] for name in names if isinstance(held.get(name), str)), None)
