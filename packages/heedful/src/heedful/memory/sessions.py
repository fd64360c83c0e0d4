"""Lessons from sessions of coding agents: what failed, and what fixed it.

`learn_session` studies a session by program, without a model. A failed step, with what
was tried in vain and what fixed it, is a `Mistake`. A sentence of the user with a word
such as "always" is a rule. Each of both is a lesson.
"""

import asyncio
from collections.abc import Mapping, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain

from heedful.episodes import course as trace
from heedful.episodes.course import Course
from heedful.episodes.episode import Episode, Event, without_secrets
from heedful.episodes.run_mistakes import FoundMistake, MistakeFinder, first_text
from heedful.lessons import render
from heedful.lessons.action import PATH_ARGUMENTS
from heedful.lessons.lesson import Evidence, Lesson, Remembered
from heedful.lessons.mistake import Mistake, with_origin
from heedful.lessons.origin import is_outside, keys_in
from heedful.lessons.rule_reading import read_rules
from heedful.lessons.scope import source_of
from heedful.memory.files import file_digests
from heedful.memory.memory import Memory, open_memory, write_lessons
from heedful.memory.run_records import WORK_FAILURE_IMPORTANCE, steps_of
from heedful.memory.user_rules import (
    USER_SOURCE,
    correction_lessons,
    rule_lesson,
)
from heedful.redact import mask_personal
from heedful.store import episode_lessons, episodes
from heedful.store.store import Store
from heedful.validation import MAX_SHOWN_TEXT_CHARS, require

FAILURE_IMPORTANCE = 0.7


@dataclass(frozen=True, slots=True)
class Learned:
    """What a session taught, and what was stored of it.

    `mistakes` have the origins of their parts, and `rules` are those of the user.
    `stored` maps the digests of signatures to stored lessons. If the session was learnt
    before, `was_known` is true and the other fields are empty.
    """

    mistakes: tuple[Mistake, ...] = ()
    _: KW_ONLY
    stored: Mapping[str, Remembered] = field(default_factory=dict)
    was_known: bool = False
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

    Returns what was learnt and stored. Each failed action with what fixed it is a
    lesson. If the session was learnt before, when it was shorter, its earlier sightings
    do not count again. What is from outside waits in quarantine; see
    `Quarantine.state`. `digest` identifies the session, by default by all its events.
    All lessons depend on `sources`, too, such as the key of a service. `root` is the
    folder of the repository, by default the one that the paths of the session have in
    common: lessons name paths relative to it. Raises InvalidInput, QuotaExceeded,
    StoreError.
    """
    require(isinstance(episode, Episode), "episode", episode, "an Episode")
    memory = open_memory(memory)
    episode = await asyncio.to_thread(without_secrets, episode)
    digest = digest or episode.digest
    # It was learnt before. Two calls at a time are told apart when they write.
    if await memory.store.read(memory.scope, episodes.state, digest):
        return Learned(was_known=True)

    run = await asyncio.to_thread(trace.course, episode)
    finder = await asyncio.to_thread(MistakeFinder, run, root)
    source = source_of(episode.session or episode.id or episode.digest[:32])
    stated = await memory.quarantine.believed()
    has_unstated_key = any(is_outside(key, stated) for key in sources)
    has_strict_key = await memory.quarantine.has_strict(keys_in(sources))
    rules = _rules_of(run)
    lessons = [
        _mistake_lesson(
            finding,
            finder,
            source,
            stated,
            strict=memory.strict or has_strict_key,
            root=root,
        )
        for finding in finder.found
    ]
    # Of two equal lessons the first is kept, and a correction has its task.
    corrections = correction_lessons(run.events, task=episode.task, source=source)
    words_of_user = [*corrections, *(rule_lesson(rule, source) for rule in rules)]
    lessons += [replace(lesson, sources=(USER_SOURCE,)) for lesson in words_of_user]
    by_signature: dict[str, Lesson] = {}
    for lesson in lessons:
        lesson = replace(lesson, sources=tuple(sorted({*lesson.sources, *sources})))
        # Who is not believed can hand in any session, so all of it is from outside.
        if has_unstated_key or memory.origin == "outside":
            mistake = lesson.mistake and with_origin(lesson.mistake, "outside")
            lesson = replace(lesson, trust="outside", mistake=mistake)
        by_signature.setdefault(lesson.signature.digest, lesson)

    lessons = list(by_signature.values())
    errors = finder.errors_without_names()
    digests = finder.digests()
    steps = steps_of(run, errors, digests, folder=finder.particulars.root)
    answers = await write_lessons(
        memory,
        lessons,
        episode_lessons.record_session,
        digest,
        {
            "name": episode.id,
            "session": episode.session,
            "outcome": episode.outcome,
            "task": mask_personal(episode.task)[:MAX_SHOWN_TEXT_CHARS],
        },
        steps,
        keys=keys_in(sources),
        is_trusted=not has_unstated_key,
    )

    return Learned(
        tuple(lesson.mistake for lesson in lessons if lesson.mistake is not None),
        stored={
            lesson.signature.digest: answer
            for lesson, answer in zip(lessons, answers, strict=False)
        },
        rules=tuple(rules),
    )


def _rules_of(run: Course) -> list[str]:
    """Return the rules in what the user says in a run, each once.

    A rule is a sentence with a word such as "always". Personal data are masked.
    """
    messages = [e.content for e in run.events if _is_of_user(e)]
    rules = (read_rules(mask_personal(message)) for message in messages)
    return list(dict.fromkeys(chain.from_iterable(rules)))


def _is_of_user(event: Event) -> bool:
    """Return True if the user wrote the text of an event."""
    return event.type == "user_message" and not event.origin


def _files_of(finding: FoundMistake, run: Course, root: str) -> dict[str, str]:
    """Return the digests of the files that a mistake is about, by their paths.

    These are the files that the fix edited or, if it edited none, the file of the call
    that failed. Returns {} without the `root` of the repository.
    """
    if not root:
        return {}
    steps = finding.fix_steps if finding.is_edited else (finding.failed,)
    calls = [trace.given_to(run.events[n]) for n in sorted(steps)]
    paths = [first_text(arguments, PATH_ARGUMENTS) for arguments in calls]
    return file_digests(root, filter(None, paths))


def _mistake_lesson(
    finding: FoundMistake,
    finder: MistakeFinder,
    source: str,
    stated: Set[str],
    *,
    strict: bool,
    root: str,
) -> Lesson:
    """Return the lesson about a mistake that the `finder` found in a session.

    `source` is that of the session. `stated` are the names of sources that people
    declared to be their own. If `strict`, a fix is believed less. `root` is the folder
    of the repository, "" if unknown.
    """
    mistake = finding.with_origins(finder.run, stated, strict)
    mistake = replace(mistake, files=_files_of(finding, finder.run, root))
    importance = FAILURE_IMPORTANCE
    evidence: Evidence = "put right"
    # Only a fix of the call itself counts; an edit of the work does not.
    if finding.is_of_work:
        importance = WORK_FAILURE_IMPORTANCE
        evidence = "once"
    return Lesson(
        "reflection",
        finding.signature,
        error_type=finding.signature.error_type,
        text=render.lesson(mistake),
        sighting=finder.particulars.relative(finding.error),
        trust="local",
        importance=importance,
        evidence=evidence,
        source=source,
        sources=tuple(finding.sources(finder.run)),
        mistake=mistake,
    )
