"""Learn from sessions of coding agents: what failed, what was tried in vain, what put it right."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate, chain, groupby, pairwise, takewhile
from operator import or_
from typing import Any

from heedful.lessons import trust as trusts
from heedful.lessons.action import MENDED, QUOTED, command_of
from heedful.lessons.lesson import Reflection, Remembered, Trust
from heedful.lessons.signature import signature
from heedful.lessons.words import count_common
from heedful.loop.record import require
from heedful.memory import draft as drafts
from heedful.memory.memory import Memory, write_lessons
from heedful.memory.reflect import steps_of
from heedful.redact import redact
from heedful.store import episodes
from heedful.store.store import Store
from heedful.traces import signals as trace
from heedful.traces.episode import SAID, Episode, Event, failure
from heedful.traces.signals import error_lines, event_text

# Arguments with the text that an edit writes, the text that it replaces, and the name of the file.
WRITTEN = ("new_string", "new_str", "new_source", "content", "file_text", "patch")
REPLACED = ("old_string", "old_str")
CONTENT = (*WRITTEN, *REPLACED, "edits")
PATHS = ("file_path", "path", "notebook_path", "filename")
VAIN = 3  # tries that a lesson names
LINES = 5  # errors of one failed call
# The importance of a failure that edits put right, which may be the work itself, until it comes
# back in another session; and of other failures. Prompts show lessons from 0.6 on.
WORK, KNOWN = 0.5, 0.7
# A clause of the user with the names of programs and options right after a negation, or with any
# words of the agent's last actions right after an order.
LONGEST_CORRECTION = 300
_FORBIDDEN = re.compile(
    r"(?:(?P<order>(?<!\bi )(?<!\bthey )\bnever|(?:^|[.!?;:\n]\s*|\b(?:no|please|and|we|you),? )"
    r"(?:stop|(?:do|must|should)(?: not|n['’]t)))|\b(?:not|no|never|don['’]t|instead of))"
    r"(?P<names>(?: +[\w@./-]+){1,3})(?![^.!?\n]*\?)"
)
_COMMON = frozenset("a all an and as at be by do for from if in is it on or that the to".split())
_OPTION = re.compile(r"(?<=\s)--?[a-z][\w-]*")
_NAME = re.compile(r"[\w@-][\w@./-]*\w")
# In an edit as text: the names of its files, and the lines that it adds and removes.
_EDITED = re.compile(r"^(?:edit|\*\*\* \w+ File:) (.+?):?$", re.MULTILINE)
_CHANGED = re.compile(r"^[+-].*", re.MULTILINE)
_PATH = re.compile(rf'"(?:{"|".join(PATHS)})":')
_NAMED = re.compile(r"\w+")
_ERROR = re.compile(r"(?:\S+ )?(?:error|err|fatal)\b\S*", re.IGNORECASE)
# Lines that only count failures, name the place of one, or say that what a runner ran has failed.
_ECHO = re.compile(
    r"make(?:\[\d+\])?: \*\*\* .* Error \d+$"
    r"|=*(?: ?\d+ \w+,)* ?\d+ (?:failed|passed|errors?)\b.* in "
    r"|\S+:\d+: \w+(?:Error|Exception|Failed)$|FAIL$|[a-z]+: \d+$"
)
# What stands before a message: who says it.
_LABEL = re.compile(r"^(?:\[[^\]]*\]|[\w()./-]+:)")
_PART = re.compile(r"[a-z0-9]{2,}")  # of a word


@dataclass(frozen=True, slots=True)
class Mistake:
    """An error in a session, and what put it right.

    `call` is the action that failed, in words, and `error` the line that names the error. Each
    error of a call is a mistake. `vain` are the actions that were tried without effect. `mends`
    are the edits, or the other call, that put it right, whole; empty if nothing did. `steps` is how
    many actions it took. `work` is true if edits put it right: such a failure is often part of the
    work. `end` is the position of the last event.
    """

    call: str
    error: str
    vain: tuple[str, ...]
    mends: tuple[str, ...]
    steps: int
    work: bool
    end: int

    @property
    def text(self) -> str:
        """The mistake as a lesson."""
        said = [f"{self.call} failed with “{self.error}”."]
        if self.vain:
            said.append(f"Tried in vain: {'; '.join(self.vain)}.")
        if self.mends:
            said += MENDED, *self.mends
        return "\n".join(said)


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
    episode: Episode,
    *,
    memory: Memory | Store | str,
    digest: str = "",
    sources: Set[str] = frozenset(),
) -> Learned:
    """Store what a session of an agent teaches, in one transaction; the same session only once.

    Each failed action with what put it right is a lesson. A session that was learnt when it was
    shorter counts no sighting again. What depends on an untrusted source waits in quarantine; see
    `Memory.set_trust`. `digest` identifies the session, by default by all its events. All lessons
    depend on `sources`, too, such as the key of a service. Raises InvalidInput, QuotaExceeded,
    StoreError.
    """
    require(isinstance(episode, Episode), "episode", episode, "an Episode")
    kept, digest = Memory.of(memory, None), digest or episode.digest
    if await kept.store.read(kept.scope, episodes.state, digest):
        return Learned(again=True)
    made = await asyncio.to_thread(_Session, episode)
    lessons = made.lessons(await kept.stated_trust(), sources)
    head = {"name": episode.id, "session": episode.session, "outcome": episode.outcome}
    work = episodes.record_session
    stored = await write_lessons(kept, lessons, work, digest, head, made.actions)
    marks = (one.signature.digest for one in lessons)
    return Learned(made.mistakes, made.corrections, dict(zip(marks, stored, strict=False)))


class _Session:
    """An episode, its steps, and what they teach."""

    def __init__(self, episode: Episode) -> None:
        self.episode = drafts.remove_lessons(episode)
        self.run = run = trace.course(self.episode)
        self.events = run.events
        self.steps = [n for n, role in enumerate(run.roles) if role == "act" and run.result[n]]
        results = {n: self.events[run.result[n] or n] for n in self.steps}
        # Where a format marks failures, a text that only begins like an error is none.
        marked = any(event.error for event in results.values())
        bad = {n: event for n, event in results.items() if trace.call_failed(run, n)}
        self.failed = [n for n, event in bad.items() if not marked or failure(event)]
        self.said = {n: run.failure[n] or run.failure[run.result[n] or n] for n in self.failed}
        self.banned = banned = self._bans()
        self.good = [n for n in self.steps if n not in bad and n not in banned]
        self.edits = {n: text for n in self.good if (text := edit_of(self.events[n]))}
        self.calls = {n: call_text(self.events[n]) for n in self.steps}
        self.texts = {n: f"{self.events[n].tool} `{text}`" for n, text in self.calls.items()}
        # Of each mistake, the words of the agent with their steps, and the steps that it tells.
        self._parts: list[tuple[list[tuple[str, int]], set[int]]] = []
        self.mistakes = tuple(self._mistakes())
        self.actions = steps_of(run, errors={n: self._errors(n)[0] for n in self.failed})

    def lessons(self, stated: Mapping[str, Trust], also: Set[str]) -> list[Reflection]:
        """Return the lessons; `stated` is the trust of sources, all depend on those in `also`."""
        sources_at = (trace.sources_at(self.run, at) for at in range(len(self.events)))
        known = list(accumulate(sources_at, or_))
        session = self.episode.session or self.episode.id or self.episode.digest[:32]
        made: dict[str, Reflection] = {}

        def teach(error: str, text: str, sources: Set[str], own: Trust, weight: float) -> None:
            mark, sources = signature("", error), sources | also
            trust = trusts.lowest_trust(
                (own, *(trusts.source_trust(one, stated) for one in sources))
            )
            about: Any = {
                "trust": trust,
                "state": trusts.initial_state(trust),
                "importance": weight,
            }
            about["meta"] = {"forbidden": True} if self.banned else {}
            about |= {"source": f"episode:{session}"[:200], "sources": tuple(sorted(sources))}
            one = Reflection("reflection", mark, "", text, error, **about)
            made.setdefault(mark.digest, one)

        words = [word for said, _ in self._parts for word, _ in said]
        quoted, shown = trace.find_quoted(self.run, words), trace.quoted_sources(self.run, words)
        for one, (said, told) in zip(self.mistakes, self._parts, strict=True):
            pasted = any(quoted.get(word, one.end) < one.end for word, _ in said)
            tools = (trace.sources_at(self.run, self.run.result[n] or n) for n in told)
            read = {s for word, by in said for s, at in shown.get(word, {}).items() if at < by}
            # That a call worked after others had failed is a measured outcome: its text replaces
            # one without a mend.
            own: Trust = "measured" if one.mends else "model"
            weight = KNOWN if one.mends and not one.work else WORK
            far = {source for source in known[one.end] if not source.startswith(trusts.LOCAL)}
            sources = far.union(read, *tools) | ({trusts.NETWORK} if pasted else set())
            teach(one.error, one.text, sources, own, weight)
        others = (event_text(e) for e in self.events if e.type not in trace.GIVEN | SAID)
        quoted = trusts.find_quotations(self.corrections, others)
        for text in self.corrections:  # the user may have pasted it, or repeat what a tool said
            own_words = {"user", trusts.NETWORK} if "\n" in text else {"user"}
            teach(text, text, known[-1] if text in quoted else own_words, "operator", KNOWN)
        return list(made.values())

    def _errors(self, at: int) -> list[str]:
        """Return the lines that name the errors of a failed step."""
        said = trace.output(self.said[at]).splitlines()  # an exit status names no error
        lines = error_lines(said, others=False) or ["error"]
        # Neighbouring lines with the same label are one message.
        bare = filter(None, map(trace.without_margin, said))
        labelled = groupby(bare, lambda line: (_ERROR.match(line) or [line])[0])
        parts = [{*part} for _, part in labelled]
        less = {line for part in parts for line in [one for one in lines if one in part][1:]}
        found = [line for line in lines[:LINES] if line not in less]
        # A line that another one quotes, and a count or an echo beside it, name no other error.
        kept = [one for one in found if not _ECHO.match(one)] or found[:1]
        twice = {a for a in kept for b in kept if b.endswith(f" - {a}")}
        return [redact(line) for line in kept if line not in twice]

    def _mistakes(self) -> Iterator[Mistake]:
        known = set[str]()
        for at in self.failed:
            for error in self._errors(at):
                if (mark := signature("", error).digest) not in known:
                    known.add(mark)
                    yield self._mistake(at, error)

    def _mistake(self, at: int, error: str) -> Mistake:
        again = next((n for n in self.good if n > at and self.texts[n] == self.texts[at]), at)
        edits = [n for n in self.edits if at < n < again and self._concerns(n, error)]
        until = again if edits else self._other_call(at, again, error)
        mends = [self.edits[n] for n in edits] or [self.texts[until]] * (until != at)
        tries = [n for n in self.failed if at < n < until and self._likeness(at, n)]
        vain = list(dict.fromkeys(self.texts[n] for n in tries if self.texts[n] != self.texts[at]))
        used = [(n,) for n in (at, *tries, *edits)] if edits else [(at, *tries, until)]
        words = [(w, one[-1]) for one in used for w in trace.words_of(self.run, one)]
        self._parts.append((words, {at, *tries, until}))
        tried, right = (tuple(map(redact, each)) for each in (vain[-VAIN:], mends))
        steps, end = sum(at < n <= until for n in self.steps), self.run.result[until] or until
        return Mistake(redact(self.texts[at]), error, tried, right, steps, bool(edits), end)

    def _concerns(self, edit: int, error: str) -> bool:
        """Return True if an edit changes a file that the error names, or a word that it quotes."""
        text = self.edits[edit]
        files = (name.rpartition("/")[2] for name in _EDITED.findall(text))
        changed = _NAMED.findall("\n".join(_CHANGED.findall(text)))
        quoted = _NAMED.findall(" ".join(chain.from_iterable(QUOTED.findall(error))))
        return any(name in error for name in files) or not {*changed}.isdisjoint(quoted)

    def _other_call(self, at: int, again: int, error: str) -> int:
        """Return the call that put an error right, or `at`; no edit stands before it.

        If the same call worked `again`, it is the step right before, if it is new, and has a word
        that only the failure has or is a form of the call. Else it is the form most like the call.
        """
        edit = min((n for n in self.edits if n > at), default=len(self.events))
        if again != at:
            last = max(n for n in self.steps if n < again)
            call, step = self.texts[at].lower(), self.texts[last].lower()
            words = {word for word in _NAMED.findall(self.said[at].lower()) if word not in call}
            named = any(word[3:] and word in step for word in words)
            first = next(n for n in self.steps if self.texts[n] == self.texts[last])
            works = last > at and first == last and last in self.good and again <= edit
            return last if works and (named or self._is_form(at, last, error)) else at
        near = [n for n in self.steps if at < n < edit][: trace.AHEAD]
        fit = [n for n in near if n in self.good and self._is_form(at, n, error)]
        return max(fit, key=lambda n: self._likeness(at, n), default=at)

    def _is_form(self, at: int, other: int, error: str) -> bool:
        """Return True if a call is another form of a failed one.

        It has more words, at its end only options; or another program, which the error names; or it
        is alike, and differs in a word that all errors of this signature have.
        """
        old, new = self.calls[at], self.calls[other]
        if len({(self.events[n].tool, self.events[n].agent) for n in (at, other)}) > 1:
            return False
        if new.startswith(old) and not new[len(old) :][:1].isalnum():
            return new.startswith(f"{old} -")
        was, now = old.split(), new.split()
        head = count_common(was, now)
        gone = was[head : len(was) - count_common(was[head:][::-1], now[head:][::-1])]
        kept = takewhile(lambda word: not re.match(r"\d?[|&;<>]", word), was[head + len(gone) :])
        if not gone:
            return len(now) > len(was)
        starts = was[:head][-1:] in ([], ["&&"])
        named = [word.rpartition("/")[2] for word in re.split(r"[\s:'\"`,]+", error)]
        program = starts and gone[0].rpartition("/")[2] in named
        if program and any(word[0] != "-" for word in kept):
            return True
        # Words in which the calls differ, each with the words beside it.
        parts = [_PART.findall(_PATH.sub("", text).lower()) for text in (old, new)]
        head = count_common(*parts)
        more = len(parts[1]) > len(parts[0]) and parts[1][head - len(parts[0]) :] == parts[0][head:]
        if old[:1] == "{" and "/" not in old and more:
            return True  # an argument has more words; another path is another file
        pairs = ({*pairwise(["", *words, ""])} for words in parts)
        changed = {*chain.from_iterable(next(pairs) ^ next(pairs))}
        named = _PART.findall(_LABEL.sub("", signature("", error).pattern).lower())
        return not changed.isdisjoint(named) and self._likeness(at, other) > 0

    def _likeness(self, at: int, other: int) -> float:
        """Return how much two steps are forms of one action, 0..1."""
        tools = {(self.events[n].tool, self.events[n].agent) for n in (at, other)}
        return trace.likeness(self.calls[at], self.calls[other]) if len(tools) == 1 else 0.0

    def _bans(self) -> set[int]:
        """Return the steps that the user then forbade, and keep the messages as `corrections`."""
        banned, since, said = set[int](), list[int](), list[str]()
        for at, event in enumerate(self.events):
            if event.type == "tool_call":
                since.append(at)
            elif event.type == "user_message":
                text = redact(event.content.strip())
                found = _FORBIDDEN.finditer(text.lower()) if len(text) <= LONGEST_CORRECTION else ()
                steps = {n for one in found for n in self._meant(one, since)}
                said += [text] * bool(steps)
                banned |= steps
                since = []
        self.corrections = tuple(said)
        return banned

    def _meant(self, clause: re.Match[str], steps: Sequence[int]) -> list[int]:
        """Return the steps that hold most of the words that a clause forbids."""
        names, held = {*_NAME.findall(clause["names"])}, dict[int, int]()
        for at in steps:
            given = trace.given_to(self.events[at])
            command = command_of(given).lower()
            words = {*trusts.programs(command), *_OPTION.findall(command)}
            if clause["order"]:
                path = f"{self.events[at].tool} {_text(given, PATHS) or ''}".lower()
                parts = _NAME.findall(trusts.without_data(command) or path)
                words |= {part.rpartition("/")[2].lstrip("-") for part in parts} | {*parts}
                words -= _COMMON
            held[at] = len(names & words)
        most = max(held.values(), default=0)
        return [at for at in steps if most and held[at] == most]


def call_text(event: Event) -> str:
    """Return the command of a call, or its arguments without a file's text."""
    given = trace.given_to(event)
    held = given if isinstance(given, Mapping) else {}
    named = {name: value for name, value in held.items() if name not in CONTENT}
    text = json.dumps(named, ensure_ascii=False, separators=(",", ":"), default=str)
    return command_of(given) or text


def edit_of(event: Event) -> str:
    """Return what a call changes in a file, whole, with signs as in a difference; "" if nothing."""
    given = trace.given_to(event)
    held = {"input": given} if isinstance(given, str) else given
    if "*** Begin Patch" in (patch := str(held.get("input", ""))):
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
