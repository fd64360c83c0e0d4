"""Learn from sessions of coding agents: what failed, what was tried in vain, what put it right."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Reflection, Remembered, Trust
from heedful.lessons.signature import signature
from heedful.lessons.trust import NETWORK, initial_state, lowest_trust, source_trust, sources_of
from heedful.memory import draft as drafts
from heedful.memory.memory import Memory, write_lessons
from heedful.redact import redact
from heedful.store import episodes
from heedful.store.store import Store
from heedful.traces import signals as trace
from heedful.traces.episode import Episode, Event, call_arguments

# Arguments with the text that an edit writes, and with the text that it replaces.
WRITTEN = ("new_string", "new_str", "new_source", "content", "file_text", "patch", "input")
REPLACED = ("old_string", "old_str")
PATHS = ("file_path", "path", "notebook_path", "filename")
# Calls after a failed call that may be its other form; failures of one call; vain tries in words.
AHEAD = 20
LINES = 5
VAIN = 3
# What a failure of the work itself teaches at first, and any other failure: see `RECALLED`.
WORK, KNOWN = 0.5, 0.7
# A user's message that forbids something, and names it in the same clause.
LONGEST_CORRECTION = 500
_FORBIDDEN = re.compile(
    r"\b(?:no|not|never|stop|without|instead of|(?:do|does|did|is|are)n['’]t)\b(?P<clause>[^.;!?\n]{1,80})",
    re.IGNORECASE,
)
_NAMED = re.compile(r"[\w@][\w@./-]*\w")


@dataclass(frozen=True, slots=True)
class Mistake:
    """An action of a session that failed, and what put it right.

    `call` is the action in words, and `errors` are the lines that name its errors. `vain` are the
    actions that were tried without effect. `mends` are the edits, or the other call, that put it
    right, whole. `steps` is how many actions it took. `work` is true if edits put it right: such a
    failure is often part of the work. `events` are the positions of the first and last event.
    """

    tool: str
    call: str
    errors: tuple[str, ...]
    vain: tuple[str, ...]
    mends: tuple[str, ...]
    steps: int
    work: bool
    events: tuple[int, int]

    @property
    def text(self) -> str:
        """The mistake as a lesson."""
        said = [f"{self.call} failed with “{self.errors[0]}”."]
        if self.vain:
            said.append(f"Tried in vain: {'; '.join(self.vain)}.")
        if self.mends:
            said.append("What put it right:" if self.work else "What worked instead:")
            said += self.mends
        return "\n".join(said)


@dataclass(frozen=True, slots=True)
class Learned:
    """What a session taught: its mistakes, the corrections of its user, and what was stored.

    `again` is true if nothing was stored because this session was learnt before.
    """

    mistakes: tuple[Mistake, ...]
    corrections: tuple[str, ...]
    stored: tuple[Remembered, ...] = ()
    again: bool = False


async def learn_session(
    episode: Episode, *, memory: Memory | Store | str, digest: str = ""
) -> Learned:
    """Store what a session of an agent teaches, in one transaction; the same session only once.

    Each failed action with what put it right is a lesson; a session that was learnt when it was
    shorter counts no sighting again. What depends on an untrusted source waits in quarantine; see
    `Memory.set_trust`. `digest` is stored for the session, by default that of the episode. Raises
    InvalidInput, QuotaExceeded, StoreError.
    """
    if not isinstance(episode, Episode):
        raise InvalidInput("episode", episode, "an Episode")
    kept, digest = Memory.of(memory, None), digest or episode.digest
    made = await asyncio.to_thread(_Session, episode)
    found = Learned(made.mistakes, made.corrections)
    if await kept.store.read(kept.scope, episodes.state, digest):
        return Learned(found.mistakes, found.corrections, again=True)
    key = digest, episode.id, episode.session, episode.outcome
    lessons = made.lessons(await kept.stated_trust())
    stored = await write_lessons(kept, lessons, episodes.record_session, *key)
    return Learned(found.mistakes, found.corrections, tuple(stored))


def mistakes(episode: Episode) -> tuple[Mistake, ...]:
    """Return the failed actions of a session with what put them right, in their order."""
    return _Session(episode).mistakes


class _Session:
    """An episode, its steps, and what they teach."""

    def __init__(self, episode: Episode) -> None:
        self.episode = drafts.remove_lessons(episode)
        self.run = run = trace.course(self.episode)
        self.events = run.events
        self.steps = [n for n, role in enumerate(run.roles) if role == "act" and run.result[n]]
        self.failed = [n for n in self.steps if trace.call_failed(run, n)]
        self.worked = [n for n in self.steps if not trace.call_failed(run, n)]
        self.same: dict[tuple[str, str], list[int]] = {}
        for n in self.worked:
            self.same.setdefault(self._key(n), []).append(n)
        self.mistakes = tuple(self._mistakes())
        self.corrections = tuple(self._corrections())

    def lessons(self, stated: Mapping[str, Trust]) -> list[Reflection]:
        """Return the lessons to be stored; `stated` is the trust of sources."""
        known = list(accumulate(map(self._sources, range(len(self.events))), frozenset.union))
        session = self.episode.session or self.episode.id or self.episode.digest[:32]
        made: dict[str, Reflection] = {}

        def add(error: str, text: str, sources: frozenset[str], own: Trust, weight: float) -> None:
            mark = signature("", error)
            trust = lowest_trust((own, *(source_trust(one, stated) for one in sources)))
            one = Reflection("reflection", mark, "", text, error, importance=weight, trust=trust)
            origin = {"source": f"episode:{session}"[:200], "sources": tuple(sorted(sources))}
            made.setdefault(mark.digest, replace(one, state=initial_state(trust), **origin))

        for each in self.mistakes:
            weight = WORK if each.work or not each.mends else KNOWN
            for error in each.errors:
                add(error, each.text, known[each.events[1]], "model", weight)
        for said in self.corrections:
            add(said, said, frozenset({"user"}), "operator", KNOWN)
        return list(made.values())

    def _key(self, at: int) -> tuple[str, str]:
        return self.events[at].tool, trace.canonical_arguments(self.events[at])

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
        yield redact(trace.error_line(self.run.failure[at if result is None else result]))

    def _mistake(self, at: int, errors: tuple[str, ...]) -> Mistake:
        events, run = self.events, self.run
        passed = next((n for n in self.same.get(self._key(at), ()) if n > at), None)
        edits = [n for n in self.worked if at < n < (passed or at) and edit_of(events[n])]
        end, mends = passed, [edit_of(events[n]) for n in edits]
        if not edits:
            near = [n for n in self.steps if n > at][:AHEAD]
            alike = {n: self._likeness(at, n) for n in near if not trace.call_failed(run, n)}
            other = max(alike, key=lambda n: alike[n], default=at)
            if alike.get(other, 0) > 0 and other != passed:
                end, mends = other, [edit_of(events[other]) or call_text(events[other])]
        until = at if end is None else end
        again = (n for n in self.failed if at < n < until and self._likeness(at, n))
        call, last = call_text(events[at]), run.result[until] or until
        vain = dict.fromkeys(text for n in again if (text := call_text(events[n])) != call)
        return Mistake(
            events[at].tool,
            redact(call),
            errors,
            tuple(map(redact, list(vain)[-VAIN:])),
            tuple(map(redact, mends)),
            sum(at < n <= until for n in self.steps),
            bool(edits),
            (at, last),
        )

    def _likeness(self, at: int, other: int) -> float:
        """Return how much two steps are forms of one action, 0..1."""
        one, two = self.events[at], self.events[other]
        same = one.tool == two.tool and one.agent == two.agent
        return trace.likeness(self.run, at, other) if same else 0.0

    def _corrections(self) -> Iterator[str]:
        """Yield the messages in which the user forbids what the agent just did."""
        did = ""
        for event in self.events:
            if event.type == "tool_call":
                did += f" {call_text(event)}"
            if event.type == "user_message":
                said = redact(event.content.strip())
                if did and len(said) <= LONGEST_CORRECTION and _forbids(said, did):
                    yield said
                did = ""

    def _sources(self, at: int) -> frozenset[str]:
        event, call = self.events[at], self.run.act[at]
        if event.type in ("llm_response", "tool_call", "summary"):
            return frozenset()
        if event.type not in trace.ANSWERS:
            return frozenset({"user" if event.type in trace.GIVEN else NETWORK})
        if call is None:
            return sources_of(event.tool, "")
        given = call_arguments(self.events[call])
        return sources_of(event.tool, command_of(given), json.dumps(given, default=str))


def _forbids(said: str, did: str) -> bool:
    words = set(_NAMED.findall(did.lower()))
    clauses = (found["clause"].lower() for found in _FORBIDDEN.finditer(said))
    return any(name in words for clause in clauses for name in _NAMED.findall(clause))


def command_of(given: object) -> str:
    """Return the command in the arguments of a shell tool, or ""."""
    if isinstance(given, Mapping):
        given = given.get("command", given.get("cmd", ""))
    if isinstance(given, list):
        return " ".join(map(str, given))
    return given if isinstance(given, str) else ""


def call_text(event: Event) -> str:
    """Return a call in words, whole: the tool, and its command or its arguments."""
    given = call_arguments(event)
    text = command_of(given) or json.dumps(given, ensure_ascii=False, default=str)
    return f"{event.tool} `{text}`"


def edit_of(event: Event) -> str:
    """Return what a call changes in a file, whole, with signs as in a difference; "" if nothing."""
    given = call_arguments(event)
    if not isinstance(given, Mapping):
        return given if isinstance(given, str) and given.startswith("*** Begin Patch") else ""
    changes = given.get("edits") if isinstance(given.get("edits"), list) else [given]
    lines: list[str] = []
    for change in changes or ():
        one = change if isinstance(change, Mapping) else {}
        old, new = (first_text(one, names) for names in (REPLACED, WRITTEN))
        if new is not None:
            texts = (old or "").splitlines(), new.splitlines()
            lines += [*difflib.unified_diff(*texts, n=1, lineterm="")][2:]
    return "\n".join([f"edit {first_text(given, PATHS)}:", *lines]) if lines else ""


def first_text(given: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the first argument with one of these names that is a text."""
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)
