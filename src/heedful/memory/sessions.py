"""Learn from sessions of coding agents: what failed, what was tried in vain, what put
it right.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate, chain, groupby, pairwise, takewhile
from operator import or_
from typing import Any

from heedful.lessons import trust as trusts
from heedful.lessons.action import MEND_HEADING, QUOTED_TEXT_PATTERN, command_of
from heedful.lessons.lesson import Lesson, Remembered, Trust
from heedful.lessons.signature import signature
from heedful.lessons.words import count_common
from heedful.memory.memory import Memory, write_lessons
from heedful.memory.reflect import steps_of
from heedful.memory.study import remove_lessons
from heedful.redact import redact
from heedful.store import episodes
from heedful.store.store import Store
from heedful.traces import signals as trace
from heedful.traces.episode import MODEL_WORD_EVENTS, Episode, Event, failure
from heedful.traces.error_lines import error_lines, output, without_margin
from heedful.traces.signals import event_text
from heedful.validation import require

# Arguments with the text that an edit writes, the text that it replaces, and the name
# of the file.
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
PATH_ARGUMENTS = ("file_path", "path", "notebook_path", "filename")
MAX_FAILED_TRIES = 3  # tries that a lesson names
MAX_CALL_ERRORS = 5  # errors of one failed call
# The importance of a failure that edits put right, which may be the work itself, until
# it comes back in another session; and of other failures. Prompts show lessons from 0.6
# on.
WORK_FAILURE_IMPORTANCE = 0.5
FAILURE_IMPORTANCE = 0.7
# A clause of the user with the names of programs and options right after a negation, or
# with any words of the agent's last actions right after an order.
MAX_CORRECTION_CHARS = 300
_PROHIBITION_PATTERN = re.compile(
    r"(?:(?P<order>(?<!\bi )(?<!\bthey )\bnever|(?:^|[.!?;:\n]\s*|\b(?:no|please|and|we|you),? )"
    r"(?:stop|(?:do|must|should)(?: not|n['’]t)))|\b(?:not|no|never|don['’]t|instead of))"
    r"(?P<names>(?: +[\w@./-]+){1,3})(?![^.!?\n]*\?)"
)
_COMMON_WORDS = frozenset(
    "a all an and as at be by do for from if in is it on or that the to".split()
)
_COMMAND_OPTION_PATTERN = re.compile(r"(?<=\s)--?[a-z][\w-]*")
_COMMAND_NAME_PATTERN = re.compile(r"[\w@-][\w@./-]*\w")
# In an edit as text: the names of its files, and the lines that it adds and removes.
_EDITED_FILE_PATTERN = re.compile(r"^(?:edit|\*\*\* \w+ File:) (.+?):?$", re.MULTILINE)
_CHANGED_LINE_PATTERN = re.compile(r"^[+-].*", re.MULTILINE)
_PATH_ARGUMENT_PATTERN = re.compile(rf'"(?:{"|".join(PATH_ARGUMENTS)})":')
_NAME_WORD_PATTERN = re.compile(r"\w+")
_ERROR_LABEL_PATTERN = re.compile(r"(?:\S+ )?(?:error|err|fatal)\b\S*", re.IGNORECASE)
# Lines that only count failures, name the place of one, or say that what a runner ran
# has failed.
_FAILURE_COUNT_PATTERN = re.compile(
    r"make(?:\[\d+\])?: \*\*\* .* Error \d+$"
    r"|=*(?: ?\d+ \w+,)* ?\d+ (?:failed|passed|errors?)\b.* in "
    r"|\S+:\d+: \w+(?:Error|Exception|Failed)$|FAIL$|[a-z]+: \d+$"
)
# What stands before a message: who says it.
_MESSAGE_LABEL_PATTERN = re.compile(r"^(?:\[[^\]]*\]|[\w()./-]+:)")
_WORD_PART_PATTERN = re.compile(r"[a-z0-9]{2,}")  # of a word


@dataclass(frozen=True, slots=True)
class Mistake:
    """An error in a session, and what put it right.

    `call` is the action that failed, in words, and `error` the line that names the
    error. Each error of a call is a mistake. `vain` are the actions that were tried
    without effect. `mends` are the edits, or the other call, that put it right, whole;
    empty if nothing did. `steps` is how many actions it took. `work` is true if edits
    put it right: such a failure is often part of the work. `end` is the position of the
    last event.
    """

    call: str
    error: str
    _: KW_ONLY
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
            said += MEND_HEADING, *self.mends
        return "\n".join(said)


@dataclass(frozen=True, slots=True)
class Learned:
    """What a session taught: its mistakes, the corrections of its user, and what was
    stored.

    `stored` are the lessons by the digests of their signatures. `again` is true, and
    all else is empty, if this session was learnt before.
    """

    mistakes: tuple[Mistake, ...] = ()
    corrections: tuple[str, ...] = ()
    _: KW_ONLY
    stored: Mapping[str, Remembered] = field(default_factory=dict)
    again: bool = False


async def learn_session(
    episode: Episode,
    *,
    memory: Memory | Store | str,
    digest: str = "",
    sources: Set[str] = frozenset(),
) -> Learned:
    """Store what a session of an agent teaches, in one transaction; the same session
    only once.

    Each failed action with what put it right is a lesson. A session that was learnt
    when it was shorter counts no sighting again. What depends on an untrusted source
    waits in quarantine; see `Memory.set_trust`. `digest` identifies the session, by
    default by all its events. All lessons depend on `sources`, too, such as the key of
    a service. Raises InvalidInput, QuotaExceeded, StoreError.
    """
    require(isinstance(episode, Episode), "episode", episode, "an Episode")
    kept = Memory.of(memory, None)
    digest = digest or episode.digest
    if await kept.store.read(kept.scope, episodes.state, digest):
        return Learned(again=True)
    made = await asyncio.to_thread(_SessionStudy, episode)
    lessons = made.lessons(await kept.stated_trust(), sources)
    head = {"name": episode.id, "session": episode.session, "outcome": episode.outcome}
    work = episodes.record_session
    stored = await write_lessons(kept, lessons, work, digest, head, made.actions)
    marks = (one.signature.digest for one in lessons)
    return Learned(
        made.mistakes, made.corrections, stored=dict(zip(marks, stored, strict=False))
    )


class _SessionStudy:
    """An episode, its steps, and what they teach."""

    def __init__(self, episode: Episode) -> None:
        self.episode = remove_lessons(episode)
        self.run = run = trace.course(self.episode)
        self.events = run.events
        self.steps = [
            n for n, role in enumerate(run.roles) if role == "act" and run.result[n]
        ]
        results = {n: self.events[run.result[n] or n] for n in self.steps}
        # Where a format marks failures, a text that only begins like an error is none.
        marked = any(event.error for event in results.values())
        bad = {n: event for n, event in results.items() if trace.call_failed(run, n)}
        self.failed = [n for n, event in bad.items() if not marked or failure(event)]
        self.said = {
            n: run.failure[n] or run.failure[run.result[n] or n] for n in self.failed
        }
        self.banned = banned = self._bans()
        self.good = [n for n in self.steps if n not in bad and n not in banned]
        self.edits = {n: text for n in self.good if (text := edit_of(self.events[n]))}
        self.calls = {n: call_text(self.events[n]) for n in self.steps}
        self.texts = {
            n: f"{self.events[n].tool} `{text}`" for n, text in self.calls.items()
        }
        # Of each mistake, the words of the agent with their steps, and the steps that
        # it tells.
        self._parts: list[tuple[list[tuple[str, int]], set[int]]] = []
        self.mistakes = tuple(self._mistakes())
        self.actions = steps_of(
            run, errors={n: self._errors(n)[0] for n in self.failed}
        )

    def lessons(self, stated: Mapping[str, Trust], also: Set[str]) -> list[Lesson]:
        """Return the lessons; `stated` is the trust of sources, all depend on those in
        `also`.
        """
        sources_at = (trace.sources_at(self.run, at) for at in range(len(self.events)))
        known = list(accumulate(sources_at, or_))
        session = self.episode.session or self.episode.id or self.episode.digest[:32]
        made: dict[str, Lesson] = {}

        def teach(
            error: str, text: str, sources: Set[str], own: Trust, weight: float
        ) -> None:
            mark = signature("", error)
            sources = sources | also
            trust = trusts.lowest_trust(
                (own, *(trusts.source_trust(one, stated) for one in sources))
            )
            about: Any = {
                "trust": trust,
                "state": trusts.initial_state(trust),
                "importance": weight,
            }
            about["meta"] = {"forbidden": True} if self.banned else {}
            about |= {
                "source": f"episode:{session}"[:200],
                "sources": tuple(sorted(sources)),
            }
            one = Lesson(
                "reflection", mark, error_type="", text=text, sighting=error, **about
            )
            made.setdefault(mark.digest, one)

        words = [word for said, _ in self._parts for word, _ in said]
        quoted = trace.find_quoted(self.run, words)
        shown = trace.quoted_sources(self.run, words)
        for one, (said, told) in zip(self.mistakes, self._parts, strict=True):
            pasted = any(quoted.get(word, one.end) < one.end for word, _ in said)
            tools = (trace.sources_at(self.run, self.run.result[n] or n) for n in told)
            read = {
                s
                for word, by in said
                for s, at in shown.get(word, {}).items()
                if at < by
            }
            # That a call worked after others had failed is a measured outcome: its text
            # replaces one without a mend.
            own: Trust = "measured" if one.mends else "model"
            weight = (
                FAILURE_IMPORTANCE
                if one.mends and not one.work
                else WORK_FAILURE_IMPORTANCE
            )
            far = {
                source
                for source in known[one.end]
                if not source.startswith(trusts.LOCAL_SOURCE_PREFIXES)
            }
            sources = far.union(read, *tools) | (
                {trusts.NETWORK_SOURCE} if pasted else set()
            )
            teach(one.error, text=one.text, sources=sources, own=own, weight=weight)
        others = (
            event_text(e)
            for e in self.events
            if e.type not in trace.SURROUNDING_EVENTS | MODEL_WORD_EVENTS
        )
        quoted = trusts.find_quotations(self.corrections, others)
        for text in (
            self.corrections
        ):  # the user may have pasted it, or repeat what a tool said
            own_words = {"user", trusts.NETWORK_SOURCE} if "\n" in text else {"user"}
            teach(
                text,
                text,
                sources=known[-1] if text in quoted else own_words,
                own="operator",
                weight=FAILURE_IMPORTANCE,
            )
        return list(made.values())

    def _errors(self, at: int) -> list[str]:
        """Return the lines that name the errors of a failed step."""
        said = output(self.said[at]).splitlines()  # an exit status names no error
        lines = error_lines(said, others=False) or ["error"]
        # Neighbouring lines with the same label are one message.
        bare = filter(None, map(without_margin, said))
        labelled = groupby(
            bare, lambda line: (_ERROR_LABEL_PATTERN.match(line) or [line])[0]
        )
        parts = [{*part} for _, part in labelled]
        less = {
            line for part in parts for line in [one for one in lines if one in part][1:]
        }
        found = [line for line in lines[:MAX_CALL_ERRORS] if line not in less]
        # A line that another one quotes, and a count or an echo beside it, name no
        # other error.
        kept = [one for one in found if not _FAILURE_COUNT_PATTERN.match(one)] or found[
            :1
        ]
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
        again = next(
            (n for n in self.good if n > at and self.texts[n] == self.texts[at]), at
        )
        edits = [n for n in self.edits if at < n < again and self._concerns(n, error)]
        until = again if edits else self._other_call(at, again, error)
        mends = [self.edits[n] for n in edits] or [self.texts[until]] * (until != at)
        tries = [n for n in self.failed if at < n < until and self._likeness(at, n)]
        vain = list(
            dict.fromkeys(
                self.texts[n] for n in tries if self.texts[n] != self.texts[at]
            )
        )
        used = [(n,) for n in (at, *tries, *edits)] if edits else [(at, *tries, until)]
        words = [(w, one[-1]) for one in used for w in trace.words_of(self.run, one)]
        self._parts.append((words, {at, *tries, until}))
        tried, right = (
            tuple(map(redact, each)) for each in (vain[-MAX_FAILED_TRIES:], mends)
        )
        steps = sum(at < n <= until for n in self.steps)
        end = self.run.result[until] or until
        return Mistake(
            redact(self.texts[at]),
            error,
            vain=tried,
            mends=right,
            steps=steps,
            work=bool(edits),
            end=end,
        )

    def _concerns(self, edit: int, error: str) -> bool:
        """Return True if an edit changes a file that the error names, or a word that it
        quotes.
        """
        text = self.edits[edit]
        files = (name.rpartition("/")[2] for name in _EDITED_FILE_PATTERN.findall(text))
        changed = _NAME_WORD_PATTERN.findall(
            "\n".join(_CHANGED_LINE_PATTERN.findall(text))
        )
        quoted = _NAME_WORD_PATTERN.findall(
            " ".join(chain.from_iterable(QUOTED_TEXT_PATTERN.findall(error)))
        )
        return any(name in error for name in files) or not {*changed}.isdisjoint(quoted)

    def _other_call(self, at: int, again: int, error: str) -> int:
        """Return the call that put an error right, or `at`; no edit stands before it.

        If the same call worked `again`, it is the step right before, if it is new, and
        has a word that only the failure has or is a form of the call. Else it is the
        form most like the call.
        """
        edit = min((n for n in self.edits if n > at), default=len(self.events))
        if again != at:
            last = max(n for n in self.steps if n < again)
            call = self.texts[at].lower()
            step = self.texts[last].lower()
            words = {
                word
                for word in _NAME_WORD_PATTERN.findall(self.said[at].lower())
                if word not in call
            }
            named = any(word[3:] and word in step for word in words)
            first = next(n for n in self.steps if self.texts[n] == self.texts[last])
            works = last > at and first == last and last in self.good and again <= edit
            return last if works and (named or self._is_form(at, last, error)) else at
        near = [n for n in self.steps if at < n < edit][
            : trace.MAX_RETRY_DISTANCE_CALLS
        ]
        fit = [n for n in near if n in self.good and self._is_form(at, n, error)]
        return max(fit, key=lambda n: self._likeness(at, n), default=at)

    def _is_form(self, at: int, other: int, error: str) -> bool:
        """Return True if a call is another form of a failed one.

        It has more words, at its end only options; or another program, which the error
        names; or it is alike, and differs in a word that all errors of this signature
        have.
        """
        old = self.calls[at]
        new = self.calls[other]
        if len({(self.events[n].tool, self.events[n].agent) for n in (at, other)}) > 1:
            return False
        if new.startswith(old) and not new[len(old) :][:1].isalnum():
            return new.startswith(f"{old} -")
        was = old.split()
        now = new.split()
        head = count_common(was, now)
        gone = was[head : len(was) - count_common(was[head:][::-1], now[head:][::-1])]
        kept = takewhile(
            lambda word: not re.match(r"\d?[|&;<>]", word), was[head + len(gone) :]
        )
        if not gone:
            return len(now) > len(was)
        starts = was[:head][-1:] in ([], ["&&"])
        named = [word.rpartition("/")[2] for word in re.split(r"[\s:'\"`,]+", error)]
        program = starts and gone[0].rpartition("/")[2] in named
        if program and any(word[0] != "-" for word in kept):
            return True
        # Words in which the calls differ, each with the words beside it.
        parts = [
            _WORD_PART_PATTERN.findall(_PATH_ARGUMENT_PATTERN.sub("", text).lower())
            for text in (old, new)
        ]
        head = count_common(*parts)
        more = (
            len(parts[1]) > len(parts[0])
            and parts[1][head - len(parts[0]) :] == parts[0][head:]
        )
        if old[:1] == "{" and "/" not in old and more:
            return True  # an argument has more words; another path is another file
        pairs = ({*pairwise(["", *words, ""])} for words in parts)
        changed = {*chain.from_iterable(next(pairs) ^ next(pairs))}
        named = _WORD_PART_PATTERN.findall(
            _MESSAGE_LABEL_PATTERN.sub("", signature("", error).pattern).lower()
        )
        return not changed.isdisjoint(named) and self._likeness(at, other) > 0

    def _likeness(self, at: int, other: int) -> float:
        """Return how much two steps are forms of one action, 0..1."""
        tools = {(self.events[n].tool, self.events[n].agent) for n in (at, other)}
        return (
            trace.likeness(self.calls[at], self.calls[other])
            if len(tools) == 1
            else 0.0
        )

    def _bans(self) -> set[int]:
        """Return the steps that the user then forbade, and keep the messages as
        `corrections`.
        """
        banned = set[int]()
        since = list[int]()
        said = list[str]()
        for at, event in enumerate(self.events):
            if event.type == "tool_call":
                since.append(at)
            elif event.type == "user_message":
                text = redact(event.content.strip())
                found = (
                    _PROHIBITION_PATTERN.finditer(text.lower())
                    if len(text) <= MAX_CORRECTION_CHARS
                    else ()
                )
                steps = {n for one in found for n in self._meant(one, since)}
                said += [text] * bool(steps)
                banned |= steps
                since = []
        self.corrections = tuple(said)
        return banned

    def _meant(self, clause: re.Match[str], steps: Sequence[int]) -> list[int]:
        """Return the steps that hold most of the words that a clause forbids."""
        names = {*_COMMAND_NAME_PATTERN.findall(clause["names"])}
        held = dict[int, int]()
        for at in steps:
            given = trace.given_to(self.events[at])
            command = command_of(given).lower()
            words = {
                *trusts.programs(command),
                *_COMMAND_OPTION_PATTERN.findall(command),
            }
            if clause["order"]:
                path = f"{self.events[at].tool} {_text(given, PATH_ARGUMENTS) or ''}".lower()
                parts = _COMMAND_NAME_PATTERN.findall(
                    trusts.without_data(command) or path
                )
                words |= {part.rpartition("/")[2].lstrip("-") for part in parts} | {
                    *parts
                }
                words -= _COMMON_WORDS
            held[at] = len(names & words)
        most = max(held.values(), default=0)
        return [at for at in steps if most and held[at] == most]


def call_text(event: Event) -> str:
    """Return the command of a call, or its arguments without a file's text."""
    given = trace.given_to(event)
    held = given if isinstance(given, Mapping) else {}
    named = {name: value for name, value in held.items() if name not in EDIT_ARGUMENTS}
    text = json.dumps(named, ensure_ascii=False, separators=(",", ":"), default=str)
    return command_of(given) or text


def edit_of(event: Event) -> str:
    """Return what a call changes in a file, whole, with signs as in a difference; "" if
    nothing.
    """
    given = trace.given_to(event)
    held = {"input": given} if isinstance(given, str) else given
    if "*** Begin Patch" in (patch := str(held.get("input", ""))):
        return patch
    lines: list[str] = []
    for change in held["edits"] if isinstance(held.get("edits"), list) else [held]:
        old, new = (
            _text(change, names) for names in (OLD_TEXT_ARGUMENTS, NEW_TEXT_ARGUMENTS)
        )
        if new is not None:
            texts = (old or "").splitlines(), new.splitlines()
            lines += [*difflib.unified_diff(*texts, n=1, lineterm="")][2:]
    return "\n".join([f"edit {_text(held, PATH_ARGUMENTS)}:", *lines]) if lines else ""


def _text(given: Any, names: Sequence[str]) -> str | None:
    """Return the first text that an object has under one of the names."""
    held = given if isinstance(given, Mapping) else {}
    return next((held[name] for name in names if isinstance(held.get(name), str)), None)
