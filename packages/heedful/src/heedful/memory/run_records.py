"""What a finished run leaves in memory: lessons about its mistakes, and its steps.

A `LessonWriter` makes the lessons of one draft, with what all of them have in common.
`steps_of` returns the calls of the run, with how they ended and what a failure cost;
`Memory.before` compares later calls with them.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain

from heedful.episodes.comparison import likeness
from heedful.episodes.course import Course, given_to
from heedful.episodes.origins import is_outside_at
from heedful.episodes.procedures import Procedure
from heedful.episodes.run_mistakes import FoundMistake, call_id
from heedful.lessons import render
from heedful.lessons.action import arguments_of, command_of, path_of, relative_path
from heedful.lessons.call_marks import (
    FORGETTING_CODES,
    Step,
    contract_marks,
    failed_marks,
    has_unread,
    marks_of,
    touched_path,
)
from heedful.lessons.contracts import find_contract
from heedful.lessons.lesson import (
    Evidence,
    Example,
    Lesson,
    LessonRun,
    Signature,
)
from heedful.lessons.mistake import Mistake, with_origin, with_words
from heedful.lessons.origin import Origin, lowest_origin
from heedful.lessons.quarantine import initial_state
from heedful.lessons.scope import (
    FAILED_OUTCOMES,
    MAX_READ_CHARS,
    short_digest,
    source_of,
)
from heedful.lessons.signature import strategy_signature
from heedful.memory.draft import DRAFT_BY_RULES, Draft
from heedful.memory.study import Study
from heedful.memory.user_rules import USER_SOURCE, correction_lessons
from heedful.redact import redact
from heedful.validation import MAX_STORED_TEXT_CHARS

# A strategy, which can be followed, is more important than its reflection.
STRATEGY_IMPORTANCE_FACTOR = 1.1
# What a failure costs: of so many next calls, the first like it that passes ends it.
MAX_NEXT_CALLS = 20
MAX_LOST_CALLS = 5
# The importance of a failure that edits put right, or that nothing did: it may be part
# of the work, until it comes back in another run.
WORK_FAILURE_IMPORTANCE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonWriter:
    """What the lessons of one draft have in common.

    `digest` identifies the episode, and `task` is the beginning of its task. `keys` are
    the sources of the keys of a service that sent the episode, and `related` are ids
    that are stored with the lessons.
    """

    study: Study
    draft: Draft
    digest: str
    task: str
    keys: tuple[str, ...]
    related: Sequence[str]

    @property
    def source(self) -> str:
        """The source of the lessons: a run that grew since it was read is the same."""
        episode = self.study.episode
        if not (episode.session and episode.events):
            return source_of(self.digest[:16])
        # The digest changes as a run grows. Its session, task and first event do not.
        first = repr(replace(episode.events[0], id=""))
        return source_of(short_digest(f"{episode.session}\0{episode.task}\0{first}"))

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the words of the run."""
        return (*self.study.sources, *self.keys)

    def write(self, kind: str, text: str, trust: Origin, importance: float) -> Lesson:
        """Return the reflection or strategy of the draft, whose words are `text`.

        A strategy says what to do, and a reflection what went wrong: that is its
        `kind`. The lesson is trusted no more than `trust`.
        """
        draft = self.draft
        name = self.study.signature
        tags = draft.tags
        mistake = draft.mistake
        if mistake and draft.by != DRAFT_BY_RULES:
            # A model's words are kept in the record unless the rules would say the
            # same, without or with parts from outside.
            variants = (mistake, with_origin(mistake, "local"))
            texts = [redact(render.text_of(kind, variant)) for variant in variants]
            if text not in texts:
                mistake = with_words(mistake, text, trust)
        # How important the author of the draft found it, if he said so.
        rated = draft.rated
        if kind == "strategy":
            name = strategy_signature(name)
            tags = (*tags, kind)
            if rated:
                rated = strategy_importance(rated)
        # From the last to the first: a tag goes if an earlier one differs in case only.
        by_word = {tag.casefold(): tag for tag in reversed(tags)}
        return self._lesson(
            name,
            text,
            trust,
            kind=kind,
            importance=importance,
            mistake=mistake,
            tags=tuple(reversed(by_word.values())),
            evidence=self._evidence,
            run=replace(self.run, rated=rated),
        )

    def write_other(self, finding: FoundMistake, importance: float) -> Lesson:
        """Return the lesson about a mistake of the run that is not its main one.

        A failure that edits put right, or that nothing did, is less important than
        `importance`: it may be part of the work.
        """
        mistake = self.study.record(finding)
        if finding.is_of_work:
            importance = min(importance, WORK_FAILURE_IMPORTANCE)
        return self._lesson(
            finding.signature,
            redact(render.lesson(mistake)),
            "local",
            importance=importance,
            mistake=mistake,
            evidence="put right" if mistake.fix else self._evidence_of_failure,
            run=replace(self.run, by=DRAFT_BY_RULES),
        )

    def write_procedure(
        self, procedure: Procedure, shared: Sequence[str], importance: float
    ) -> Lesson:
        """Return the strategy of like runs that succeeded by the same tools.

        `procedure` has the tools in their order, and `shared` the words that the tasks
        of these runs have in common.
        """
        return self._lesson(
            procedure.signature,
            render.procedure(procedure.tools, shared),
            "local",
            kind="strategy",
            importance=importance,
            tags=("success", "strategy", "procedure"),
            evidence="put right",
            run=self.run,
        )

    def write_rules(self) -> tuple[Lesson, ...]:
        """Return a lesson for each rule with which the user refused an answer.

        It is trusted as the user's words, unless the run itself is trusted less.
        """
        return tuple(
            replace(
                rule,
                trust=lowest_origin((rule.trust, self.study.origin)),
                sources=(USER_SOURCE, *self.keys),
            )
            for rule in correction_lessons(
                self.study.episode.events, task=self.task, source=self.source
            )
        )

    def _lesson(
        self,
        name: Signature,
        text: str,
        trust: Origin,
        *,
        importance: float,
        kind: str = "reflection",
        mistake: Mistake | None = None,
        tags: tuple[str, ...] = (),
        evidence: Evidence,
        run: LessonRun,
    ) -> Lesson:
        """Return a lesson with what all lessons of the run have in common.

        `name` is its signature. It is trusted no more than `trust` and than who handed
        in the run. Without `tags`, it has those of the draft.
        """
        text = text[:MAX_STORED_TEXT_CHARS]
        trust = lowest_origin((trust, self.study.origin))
        example = Example(self.task, "") if self.task else None
        return Lesson(
            kind,
            name,
            error_type=name.error_type,
            text=text,
            sighting=text,
            example=example,
            state=initial_state(trust),
            trust=trust,
            importance=importance,
            tags=tags or self.draft.tags,
            evidence=evidence,
            run=run,
            source=self.source,
            sources=self.sources,
            mistake=mistake,
        )

    @property
    def _evidence(self) -> Evidence:
        """What shows that the draft holds."""
        draft = self.draft
        if self.study.main is None and draft.by == DRAFT_BY_RULES:
            return "nothing failed"
        return "put right" if draft.mended else self._evidence_of_failure

    @property
    def _evidence_of_failure(self) -> Evidence:
        """What shows that a failure matters which nothing put right."""
        has_failed = self.study.episode.outcome in FAILED_OUTCOMES
        return "failed run" if has_failed else "once"

    @property
    def run(self) -> LessonRun:
        """What each lesson of the run stores about the run and the draft.

        The events that the draft cites are given by their ids, or else their positions.
        """
        draft = self.draft
        episode = self.study.episode
        cited = sorted(set(chain.from_iterable(claim.events for claim in draft.claims)))
        return LessonRun(
            by=draft.by,
            confidence=draft.confidence,
            rated=draft.rated,
            outcome=episode.outcome,
            error_category=self.study.category,
            events=len(episode.events) + episode.omitted,
            session=episode.session,
            episode=self.digest,
            cited_events=tuple(episode.events[n].id or str(n) for n in cited),
            related=tuple(self.related),
        )


def strategy_importance(importance: float) -> float:
    """Return the importance of a strategy, at most 1, from that of its reflection."""
    return min(1.0, round(importance * STRATEGY_IMPORTANCE_FACTOR, 6))


@dataclass(frozen=True, slots=True)
class _ComparedCall:
    """A step, and the `tool` and the `text` by which its call is compared with others.

    A command is the same call whichever tool runs it, so its tool is "". Marks lack
    folders, so they do not tell calls apart.
    """

    step: Step
    tool: str
    text: str


def steps_of(
    run: Course,
    errors: Mapping[int, Sequence[str]],
    digests: Mapping[int, tuple[str, ...]],
    *,
    folder: str = "",
    stated: Set[str] = frozenset(),
) -> tuple[Step, ...]:
    """Return the steps of a run: its calls that have a result, and how they ended.

    Calls that a person refused are left out. `errors` are the error lines by the
    position of the call, and `digests` those of their signatures. Paths below the
    `folder` of the repository are relative to it. `stated` are the names of sources
    that are not from outside. Each step has the marks of its call, by which later calls
    are found to be like it; an edit of a file that the agent has surely not read has
    one more. A failed step has the number of calls that it cost.
    """
    calls: list[_ComparedCall] = []
    known_paths = set[str]()
    for position, event in enumerate(run.events):
        # The agent has lost its context, and with it what it has read.
        if event.type == "system_event" and event.code in FORGETTING_CODES:
            known_paths.clear()
        result = run.result[position]
        if event.type != "tool_call" or not event.tool or result is None:
            continue
        if position in run.unfinished:
            continue

        # The failure stands in the call or in its result.
        failure = run.failure[position] or run.failure[result] or ""
        error_texts = tuple(errors.get(position, ()))

        call_input = given_to(event)
        arguments = arguments_of(call_input)
        contract = None
        if error_texts:
            contract = find_contract(arguments, failure, error_texts)
        origin: Origin = "local"
        if is_outside_at(run, result, stated):
            origin = "outside"
        unread = has_unread(arguments, known_paths, folder)
        step = Step(
            (
                *marks_of(event.tool, arguments, folder),
                *contract_marks(event.tool, arguments, unread=unread),
            ),
            error_texts,
            digests=digests.get(position, ()),
            failed=tuple(
                failed_marks(
                    event.tool,
                    arguments,
                    error_texts,
                    contract=contract,
                    folder=folder,
                ).items()
            ),
            path=relative_path(path_of(arguments), folder),
            at=run.events[result].at or 0,
            id=call_id(event),
            origin=origin,
        )
        # A file whose call failed may not have been read.
        if not error_texts:
            known_paths.update(filter(None, [touched_path(arguments, folder)]))

        command = command_of(call_input)
        data = json.dumps(call_input, sort_keys=True, ensure_ascii=False, default=repr)
        # A command is the same call whichever tool runs it.
        tool = "" if command else event.tool.strip().lower()
        text = (command or data)[:MAX_READ_CHARS]
        calls.append(_ComparedCall(step, tool, text))
    return tuple(
        replace(call.step, calls=1 + _calls_until_passed(call, calls[number:]))
        if call.step.errors
        else call.step
        for number, call in enumerate(calls, start=1)
    )


def _calls_until_passed(failed: _ComparedCall, later: Sequence[_ComparedCall]) -> int:
    """Return how many calls lie between a failed call and a like one that passed.

    `later` are the calls after it. A like call is one of the same tool on the same file
    or with half of the words. At most `MAX_LOST_CALLS`; 0 if no such call is among the
    next `MAX_NEXT_CALLS`.
    """
    path = failed.step.path
    for count, call in enumerate(later[:MAX_NEXT_CALLS]):
        if call.step.errors or call.tool != failed.tool:
            continue
        is_same_file = path != "" and path == call.step.path
        if is_same_file or likeness(failed.text, call.text):
            return min(count, MAX_LOST_CALLS)
    return 0
