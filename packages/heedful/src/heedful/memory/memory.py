"""Memory of one scope: what agents got wrong, and what put it right.

A sighting of an error is remembered under its signature; `seen` reads it back at once.
`recall` finds lessons for a task, by words and, with an embedder, by vectors; `render`
puts the nearest into a prompt. `brief` selects what one loop is shown, and withholds a
part at random, so that `prove` can tell whether a lesson helps. Lessons from tools and
documents wait in `quarantine` until a person decides about them; no prompt contains
them before. A `Memory` holds no state of its own: every call reads or writes its store,
in one transaction.
"""

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from heedful import telemetry
from heedful.episodes.error_lines import error_lines, named_errors, output
from heedful.errors import InvalidInput
from heedful.lessons import ranking, render
from heedful.lessons.briefing import Briefing, choices_of, silence_of
from heedful.lessons.holdout import plan_holdout
from heedful.lessons.lesson import (
    Example,
    Filter,
    Lesson,
    Match,
    Matches,
    Signature,
    check_memory,
    check_source,
)
from heedful.lessons.loop_lessons import is_proof_due
from heedful.lessons.origin import Origin, read_origin
from heedful.lessons.reasons import Reason
from heedful.lessons.scope import (
    DEFAULT_HOLDOUT_SHARE,
    PROMPT_BUDGET_TOKENS,
    Remembered,
    Scope,
)
from heedful.lessons.session_names import MadeNames
from heedful.lessons.signature import lesson_signature, signature
from heedful.lessons.telling import (
    LessonCandidate,
    Moment,
    Situation,
    Tell,
    TellingBudget,
    drawn_names,
    tell as tell_reader,
)
from heedful.memory.call_memory import CallMemory
from heedful.models import installed_embedder
from heedful.models.contract import Embedder, Message
from heedful.models.embedding import embed, space_of
from heedful.redact import mask_personal, redact
from heedful.sanitize import redact_ends
from heedful.store import (
    exposures as exposure_store,
    lessons as lesson_store,
    search,
)
from heedful.store.connection import Db
from heedful.store.inline import in_thread
from heedful.store.store import Store
from heedful.validation import (
    MAX_LOOKED_UP_CHARS,
    MAX_SCORE,
    MAX_STORED_TEXT_CHARS,
    Fields,
    check_actor,
    check_integer,
    check_number,
    check_share,
    check_texts,
    refuses_unknown_options,
    require,
)

if TYPE_CHECKING:  # a hook process starts for each event, and needs none of these
    from heedful.checks.evaluate import Check
    from heedful.lessons.forgetting import Forgotten
    from heedful.lessons.patterns import Seen
    from heedful.lessons.proof import Proof
    from heedful.memory.transfer import Exported, File, Imported
    from heedful.memory.user_rules import UserRules

# The space of an embedder and the vector of a text in it; ("", None) without one.
Place = tuple[str, Sequence[float] | None]
# Says whether a loop refuses the accepted answer of an example now.
Refuses = Callable[[Example], Awaitable[bool]]

_log = logging.getLogger("heedful")
EMBEDDER_FORMS = "an embedder such as heedful.models.open_embedder(), or None"
# How many candidates a search by words and one by vectors find each: 10 lose 0.01 of
# recall@5, 50 gain nothing and cost a third more.
MIN_LEG_CANDIDATES = 30
# The same for `query`: a person reads the results, and importance is filtered later.
MIN_QUERY_CANDIDATES = 200
# A signature is computed from this much of an error's text.
MAX_SIGNED_CHARS = 10_000


@refuses_unknown_options
class Memory(CallMemory):
    """A memory of lessons for one scope.

    `store` is a Store or its name (a path, or `:memory:`). Recall compares words, and
    also vectors if there is an `embedder`. `holdout` is the share of recalled lessons
    that is withheld at random, so that loops with and without them can be compared; it
    is below 1, and 0 turns this off. `max_entries` limits the lessons of the scope and
    the examples of each lesson. When it is reached, a new lesson replaces the least
    useful lesson (a quarantined one first), and a new example the oldest example.
    Pinned lessons stay. `quota` limits the entries in quarantine of each source.
    `origin` says whose words are remembered and reflected on here: "user", "local" or
    "outside". With `strict`, a fix also waits if it installs something, or if the agent
    read something from outside shortly before it. `trust` are names of sources that
    are stated, as with `Quarantine.state`. Raises InvalidInput.
    """

    def __init__(
        self,
        store: Store | str,
        scope: Scope | None = None,
        embedder: Embedder | None = None,
        holdout: float = DEFAULT_HOLDOUT_SHARE,
        max_entries: int | None = None,
        quota: int = 1_000,
        origin: Origin = "user",
        strict: bool = False,
        trust: Collection[str] = (),
    ) -> None:
        """Open the memory of `scope` in a store, which may be given by its name.

        The text of the class says what the options mean. Raises InvalidInput.
        """
        if max_entries is not None:
            check_integer("max_entries", max_entries, least=1, alternative=", or None")
        check_integer("quota", quota)
        is_embedder = isinstance(embedder, Embedder) and not isinstance(embedder, type)
        require(embedder is None or is_embedder, "embedder", embedder, EMBEDDER_FORMS)

        super().__init__(store, scope, holdout=holdout, strict=strict, trust=trust)
        self.embedder = embedder
        self.max_entries = max_entries
        self.quota = quota
        self.origin: Origin = read_origin(origin)
        # A host that embeds in its own job sets a function to call after each write.
        # With None, each write embeds what it stores.
        self.later: Callable[[], Awaitable[None]] | None = None

    @refuses_unknown_options
    async def remember(
        self,
        error_type: str,
        text: str,
        *,
        lesson: str = "",
        example: Example | None = None,
        origin: Origin | None = None,
        tags: Sequence[str] = (),
        context: str = "",
        importance: float = 0.5,
        source: str = "",
        derived_from: Sequence[int] = (),
        pinned: bool = False,
        key: str = "",
    ) -> Remembered:
        """Count a sighting of an error; store a new pattern as a lesson.

        Both are one transaction. `recall` finds the lesson by the task of its example,
        or by its own text if it has no example. It also finds the lesson by `context`,
        the text around the error. `origin` says who wrote the text, by default that of
        the memory: text from "outside" is quarantined. `source` names where the text is
        from, so that it can be revoked. `derived_from` are ids of examples, which the
        matches of `recall` have as `id`; the lesson has at most their origin. `tags`
        and `importance` (0..1) apply to a new lesson. Only a lesson of an operator may
        be `pinned`. A call that is made again with its `key` within a day counts
        nothing and gets the first answer. Raises InvalidInput, QuotaExceeded,
        StoreError, and Conflict if the key belongs to another call; it never fails
        silently.
        """
        check_texts(error_type=error_type, text=text, lesson=lesson, context=context)
        author = read_origin(origin or self.origin)
        check_memory(
            text,
            author,
            importance=importance,
            tags=tags,
            example=example,
            parents=derived_from,
            pinned=pinned,
        )

        text = redact(text)  # before masking or cutting could split a secret
        if example is not None:
            example = replace(example, context=example.context or context)

        new_lesson = Lesson(
            "error",
            lesson_signature(error_type, text, redact(lesson)),
            error_type=error_type,
            text=(redact(lesson) or text)[:MAX_STORED_TEXT_CHARS],
            sighting=text[:MAX_STORED_TEXT_CHARS],
            example=example,
            trust=author,
            importance=importance,
            tags=tuple(tags),
            context=context,
            source=check_source(source),
            parents=tuple(derived_from),
            pinned=pinned,
        )
        return await self.keep(new_lesson, key=key)

    @telemetry.upsert
    async def keep(self, lesson: Lesson, *, key: str = "") -> Remembered:
        """Store a lesson as it is, or count a sighting if its pattern is known.

        The result says which, and whether the lesson waits in quarantine. A call that
        is made again with its `key` within a day stores nothing and gets the first
        answer. Raises InvalidInput, QuotaExceeded, StoreError, and Conflict if the key
        belongs to another call.
        """
        (answer,) = await self.store.once(
            self.scope,
            exposure_store.remember,
            partial(write_lessons, self, [lesson], exposure_store.remember),
            key=key,
            request=("remember", lesson),
        )

        message = "skipped"  # nothing was stored, and so there is no id
        if answer.id:
            message = f"duplicate: lesson {answer.id}, seen {answer.seen} times"
            if answer.created:
                message = f"stored: lesson {answer.id}"
            elif answer.updated:
                message = f"updated: lesson {answer.id}, seen {answer.seen} times"
            if answer.entry:
                message += f", waits in quarantine: {answer.release}"
        _log.info(message)
        return answer

    @property
    def user_rules(self) -> "UserRules":
        """The rules that the user gave agents in this project."""
        from heedful.memory.user_rules import UserRules  # slow to import for a hook

        return UserRules(
            self.store,
            self.scope,
            quarantine=self.quarantine,
            write=partial(write_lessons, self),
        )

    @refuses_unknown_options
    async def seen(self, error_type: str, text: str = "") -> "Seen":
        """Return how often an error was seen, and its lessons, with what fixed it.

        `text` is a message, or the whole output of a command, whose error lines are
        looked up. `error_type` is the type of the error, the tool that failed, or "";
        with a single argument, it is the text. An error that is stored under another
        type or tool is found if none is stored under this one, and so is one that
        differs only in names if its fix fits other names. What a check of a loop
        reported is found by its exact words, whichever check it was. Of a very long
        text, the middle is left out. All reads use an index. Raises InvalidInput,
        StoreError.
        """
        from heedful.store import patterns as pattern_store  # few hooks look up errors

        check_texts(error_type=error_type, text=text)
        if not text:
            text = error_type
            error_type = ""

        # The output of a command takes long, and other tasks of the loop go on.
        if len(text) > MAX_STORED_TEXT_CHARS:
            pattern, lines = await in_thread(partial(_signatures, error_type, text))
        else:
            pattern, lines = _signatures(error_type, text)
        return await self.store.read(
            self.scope, pattern_store.find_with_findings, pattern, lines, text
        )

    @telemetry.search
    @refuses_unknown_options
    async def recall(
        self,
        task: str,
        limit: int = 5,
        *,
        tags: Sequence[str] = (),
        match: Literal["any", "all"] = "any",
        kind: str = "",
        error_type: str = "",
        importance: float = 0.0,
        since: float = 0.0,
        reviews: bool = True,
    ) -> Matches:
        """Return examples, and lessons without examples, for a task, best first.

        Only lessons that match the filters are returned: any of the `tags`
        (`match="all"`: all of them), the `kind`, the `error_type`, at least this
        `importance` (0..1), stored `since` this time (seconds since 1970).

        Lessons of a run are returned if they have evidence: they say what worked, or
        are the strategy of a success, or the run failed, or the failure came back in
        another run, or a person confirmed them. A filter by tag, kind or importance
        finds the others, too. Rules of a memory key, that is the name under which a
        function or a stage learns, are left out: `brief` with a `memory_key` has them.

        If there are none, `silence` of the result says what keeps the nearest lesson
        back; only an asker who `reviews` is told that it waits in quarantine. Raises
        InvalidInput, StoreError.
        """
        check_integer("limit", limit)
        check_texts(task=task)
        only = Filter(
            tags,
            match,
            kind=kind,
            error_type=error_type,
            importance=importance,
            since=since,
        )

        place = await self._embed(task)
        matches = await self._search(
            task, place, limit=max(MIN_LEG_CANDIDATES, limit), only=only
        )
        budget = TellingBudget(lessons=limit, unchecked=limit)
        situation = Situation(moment="question", budget=budget)
        candidates = ranking.candidates_for_question(matches, time.time(), only)
        telling = tell_reader(situation, candidates)
        if telling.told:
            return Matches(candidate.record for candidate in telling.told)
        silence = await self.store.read(
            self.scope, _explain_silence, task, place, only=only, reviews=reviews
        )
        return Matches(silence=silence)

    async def candidates(self, task: str, tell: Tell = "both") -> list[LessonCandidate]:
        """Return the lessons near a task as candidates for a prompt.

        `tell` is that of `brief`.
        """
        place = await self._embed(task)
        matches = await self._search(task, place, limit=MIN_LEG_CANDIDATES)
        candidates = ranking.candidates_for_prompt(matches, task, time.time(), tell)
        return [c for c in candidates if tell in ("both", c.form)]

    @telemetry.search
    @refuses_unknown_options
    async def query(
        self,
        text: str = "",
        limit: int = 5,
        *,
        tags: Sequence[str] = (),
        match: Literal["any", "all"] = "any",
        kind: str | tuple[str, ...] = "",
        error_type: str = "",
        importance: float = 0.0,
        since: float = 0.0,
        waiting: bool = True,
        reviews: bool = True,
    ) -> Matches:
        """Return lessons to read, best first; for a blank `text` the most important.

        If there are none, `silence` of the result says what keeps the nearest back.
        Only an asker who `reviews` is told of lessons that wait in quarantine.

        The filters are those of `recall`; `kind` may name several. With `tags`, the
        `text` only decides the order: every lesson with the tags is found. Lessons that
        wait in quarantine are returned, too, unless `waiting` is False: `state` and
        `trust` mark them, and `release` is the command that releases them. Do not put
        them into a prompt; `render` leaves them out. The order and the filter
        `importance` use what the author of a lesson claims, if the author claims any.
        Raises InvalidInput, StoreError.
        """
        check_integer("limit", limit)
        check_texts(text=text)
        only = Filter(
            tags, match, kind=kind, error_type=error_type, importance=0.0, since=since
        )
        check_share("importance", importance)

        lists_all = bool(only.tags) or not text.strip()
        # Where the text is among the vectors, for a search by its meaning.
        place = await self._embed(text)
        matches = await self._search(
            text,
            place,
            limit=max(MIN_QUERY_CANDIDATES, limit),
            only=only,
            waiting=waiting and reviews,
            every=lists_all,
            min_shared=1,
        )
        answers = ranking.rank_answers(
            matches,
            limit=limit,
            least=importance,
            now=time.time(),
            every=lists_all,
        )
        if answers:
            return Matches(answers)

        silence = await self.store.read(
            self.scope,
            _explain_silence,
            text,
            place,
            only=only,
            reviews=reviews,
        )
        return Matches(silence=silence)

    @overload
    def render(
        self, found: Sequence[Match], budget: int = ..., form: Literal["messages"] = ...
    ) -> tuple[Message, ...]: ...

    @overload
    def render(
        self, found: Sequence[Match], budget: int = ..., *, form: Literal["text"]
    ) -> str: ...

    @refuses_unknown_options
    def render(
        self,
        found: Sequence[Match],
        budget: int = PROMPT_BUDGET_TOKENS,
        form: Literal["messages", "text"] = "messages",
    ) -> tuple[Message, ...] | str:
        """Return at most 3 near examples as chat turns for a prompt.

        `found` are the results of `recall` or `query`. At most 1 of the examples is not
        verified. The turns have at most `budget` tokens, as heedful estimates them; an
        example that does not fit is left out. The `source` of each turn names its
        origin. With the `form` "text", return examples and lessons as one text between
        random delimiters, "" if nothing is near. Raises InvalidInput.
        """
        require(form in ("messages", "text"), "form", form, "messages or text")
        # Random delimiters: the author of a lesson cannot guess them to end its text.
        seed = secrets.randbits(64)
        is_text = form == "text"
        telling = ranking.tell_prompt(
            found, time.time(), budget, advice=is_text, seed=seed
        )
        chosen = [candidate.record for candidate in telling.told]
        turns = render.as_messages(chosen)
        return render.as_text(turns, seed, chosen) if is_text else turns

    @telemetry.search
    @refuses_unknown_options
    async def brief(
        self,
        task: str,
        loop: str,
        begins: bool = True,
        memory_key: str = "",
        checks: Sequence[str] = (),
        tell: Tell = "both",
        every: bool = False,
        model: str = "",
        withholds: bool = True,
        check_ids: Sequence[str] = (),
        refuses: Refuses | None = None,
    ) -> Briefing:
        """Return what to show a loop before its task, and what to withhold at random.

        A loop lets an agent try a task until its checks accept the answer. A part of
        the lessons is withheld, so that loops with and without them can be compared.
        The draw depends only on scope, loop and lesson; unless the loop `withholds`,
        all are shown. Where memory is proven to hurt, one loop in 40 is shown lessons.
        A loop whose exposures are stored, that is what was shown or withheld, is shown
        the same again; another one is shown lessons only if it `begins`.

        Rules of the `memory_key`, by default that of the stored loop, are shown only to
        loops with a check that may find their mistake: `checks` are names, and without
        names all rules are shown. The `check_ids` of its checks find rules that loops
        of other keys broke. `tell` is "rules" (lessons without an accepted output),
        "examples" (with one) or "both". Lessons that are proven to hurt loops of the
        `model`, by default that of the stored loop, are not shown. Nor is an accepted
        answer that a new loop now `refuses`. The checks that lessons became judge the
        loop, whatever it is shown.

        The result also says of lessons why they were chosen or not: of those shown or
        withheld, of rules left out for now, and of the nearest miss if no lesson is
        shown for a similar task; with `every`, of all that the search found.
        """
        space, vector = await self._embed(task)
        find = partial(
            search.search,
            text=task,
            space=space,
            vector=vector,
            limit=MIN_LEG_CANDIDATES,
        )
        # A loop that is shown no outputs may work on something else under the same
        # name, as a stage of a pipeline does.
        own_task = "" if tell == "rules" else task
        matches, past, lesson_checks = await self.store.read(
            self.scope,
            exposure_store.brief,
            loop,
            memory_key,
            find=find,
            task=own_task,
            model=model,
            check_ids=check_ids,
        )

        exposures = past.exposures
        draws = begins and not exposures
        moment: Moment = "first attempt" if draws else "retry"
        share = self.holdout if draws and withholds else 0.0
        shown_before = drawn_names(exposures) if exposures else None
        situation = Situation(
            moment=moment,
            reader=loop,
            task=task,
            memory_key=past.memory_key,
            checks=checks,
            check_ids=check_ids,
            model=past.model,
            form=tell,
            shown_before=shown_before,
            budget=ranking.prompt_budget(),
            holdout=plan_holdout(share, past),
            seed=self.scope.seed,
            draws={exposure.lesson: exposure.shown for exposure in exposures},
        )
        candidates = ranking.candidates_for_prompt(matches, task, time.time(), tell)
        if refuses is not None and draws:
            situation = await _with_refused(situation, candidates, refuses)
        telling = tell_reader(situation, candidates)
        # A near lesson that may not be told explains why nothing is shown.
        if every or not telling.chosen:
            hidden = await self.store.read(
                self.scope, search.hidden, task, space=space, vector=vector
            )
            candidates += ranking.candidates_for_prompt(hidden, task)
            found = {candidate.lesson for candidate in candidates}
            rest = max(0, await self.count() - len(found))
            telling = tell_reader(situation, candidates, rest)
        chosen = [candidate.record for candidate in telling.chosen]
        if refuses is not None and draws:
            chosen = [await _without_refused(match, refuses) for match in chosen]
        if draws:
            exposures = telling.exposures

        briefing = Briefing(
            past.memory_key,
            space,
            waiting=past.waiting,
            rest=telling.rest if every else 0,
            choices=choices_of(telling, past.memory_key, every),
            exposures=exposures,
            chosen=tuple(chosen),
            vector=vector,
            checks=lesson_checks,
        )
        if briefing.silence:
            _log.info("heedful: loop %s: memory: %s", loop, briefing.silence)
        text = render.as_text(briefing.examples, advice=briefing.advice)
        return replace(briefing, prompt=text)

    async def prove(self, model: str = "") -> "Proof":
        """Return what the loops of this scope prove about its lessons.

        Loops that were shown a lesson are compared with those from which it was
        withheld at random, by how they ended. With a `model`, only loops of this model
        count. Raises InvalidInput, StoreError.
        """
        from heedful.memory import proving  # slow to import

        check_texts(model=model)
        return await proving.prove(self.store, self.scope, model, self.holdout)

    async def look(self, outcomes: int | None = None) -> Sequence[str]:
        """Retire lessons proven to hurt, and update how useful the others are.

        A lesson that hurts only loops of one model is no longer shown to these. Record
        the verdict on memory as a whole, if it changed: where memory hurts, it is
        withheld from all new loops but one in 40, until a later proof ends this.
        Lessons that an operator wrote or pinned stay until `pin(pinned=False)`; a
        ruling "review" asks a person to decide about them. With a number of `outcomes`,
        do this only if enough loops have ended since the last time. Returns the names
        (`kind/signature`) of the retired lessons.
        """
        from heedful.memory import proving  # slow to import

        if outcomes is not None and not is_proof_due(outcomes):
            return ()
        return await proving.conclude(self.store, self.scope)

    async def top(self, limit: int = 20) -> Sequence[Fields]:
        """Return the lessons seen most often, as data, without quarantined text.

        Failures of agents that nothing put right come last.
        """
        check_integer("limit", limit, least=0)
        return await self.store.read(self.scope, lesson_store.top, limit)

    @refuses_unknown_options
    async def pin(
        self, id: int, *, by: str, why: str = "", pinned: bool = True, key: str = ""
    ) -> None:
        """Protect a lesson from eviction, pruning and retirement.

        `pinned=False` ends the protection. The decision is recorded with its author
        `by` and the reason `why`; calls with one `key` are recorded once a day. Raises
        NotFound, Conflict if the key belongs to another call, and InvalidInput without
        an author.
        """
        check_integer("id", id, least=0)
        await self.store.write_once(
            key, self.scope, lesson_store.pin, id, pinned=pinned, by=by, why=why
        )

    @refuses_unknown_options
    async def edit(self, id: int, text: str, *, by: str, why: str = "") -> int:
        """Give a lesson the new words of a person, `by` whom and `why`.

        The old words stay as a version. What was measured for the old words does not
        count for the new ones. A lesson in quarantine keeps waiting, with the new
        words: then the id of these in quarantine is returned, and else 0. The edit is
        recorded. Raises NotFound, and InvalidInput without an author, for a superseded
        lesson and for the same words.
        """
        check_integer("id", id, least=0)
        check_texts(text=text)
        space, vector = await self._embed(text[:MAX_STORED_TEXT_CHARS])
        return await self.store.write(
            self.scope,
            lesson_store.edit,
            id,
            text,
            by=by,
            why=why,
            space=space,
            vector=vector,
        )

    async def correct(
        self,
        loop: str,
        accepted: Any,
        *,
        by: str,
        why: str = "",
        checks: "Sequence[Check]" = (),
    ) -> Sequence[Remembered]:
        """Store the answer that a person accepts for a loop that did not pass.

        The answer becomes a worked example in the words of the user, which later loops
        with the same memory key are told, and a note on the loop. Returns what was
        stored: nothing if the same answer was stored before. Raises NotFound, and
        InvalidInput without an author `by`, for a loop that goes on or passed, and for
        an answer that the loop has refused, or that one of the `checks` or the check of
        a lesson refuses.
        """
        from heedful.memory import accepting  # slow to import: it runs checks

        check_actor(by, why)
        answer, lessons = await accepting.accept(
            self.store, self.scope, loop, accepted, by=by, checks=checks
        )
        return await write_lessons(
            self,
            lessons,
            accepting.store_answer,
            loop,
            answer=answer,
            by=by,
            why=why,
        )

    @refuses_unknown_options
    async def prune(
        self,
        *,
        by: str,
        unused_for: float | None = None,
        keep: int | None = None,
        dry_run: bool = False,
        key: str = "",
    ) -> Sequence[Fields]:
        """Remove unused lessons, and the least useful ones beyond the number `keep`.

        Unused means neither seen nor shown for `unused_for` seconds. Pinned and proven
        lessons stay. Returns the removed lessons as plain data, each with the reason
        `why`; with `dry_run`, those that would be removed. The removal is one
        transaction, recorded with its author `by`. Calls with one `key` remove once a
        day. Raises InvalidInput, and Conflict if the key belongs to another call.
        """
        from heedful.store import retention  # a hook prunes nothing

        check_actor(by, "")
        if unused_for is None and keep is None:
            raise InvalidInput("prune", None, "called with unused_for, keep, or both")
        if unused_for is not None:
            check_number("unused_for", unused_for, low=1e-9, high=MAX_SCORE)
        if keep is not None:
            check_integer("keep", keep, least=0)

        # For the store, 0 seconds and -1 lessons mean no limit: None becomes these.
        unused_seconds = unused_for or 0.0
        max_lessons = -1 if keep is None else keep
        if dry_run:
            return await self.store.read(
                self.scope, retention.prunable, unused_seconds, max_lessons
            )

        return await self.store.write_once(
            key, self.scope, retention.prune, unused_seconds, max_lessons, by=by
        )

    @refuses_unknown_options
    async def forget(
        self,
        *,
        lesson: int | None = None,
        person: str = "",
        loop: str = "",
        before: float | None = None,
        by: str = "",
        why: str = "",
        dry_run: bool = False,
    ) -> "Forgotten":
        """Delete the texts of a lesson, a person or a loop, or all that are old.

        Exactly one of these four is given. A `lesson` is given by its id; it goes with
        its examples and sightings. Of a `person`, given by name, all goes that has the
        name as its source, alone or as in "user:ada", or that came through keys of this
        name. A `loop` goes with the stages of a run, and with what only it taught. With
        `before`, in seconds since 1970, all goes that nobody has changed or said since,
        pinned lessons, too.

        What derives from these texts goes, but not what others said. One transaction
        deletes it, and records who asked (`by`), `why` and how many rows went. Then the
        texts are removed from the files of the database; if that is interrupted, the
        same call, made again, completes it. The result says what went and what may
        remain. With `dry_run`, nothing is deleted, and no author is needed. Raises
        NotFound for an unknown lesson or loop, InvalidInput, StoreError.
        """
        from heedful.lessons.forgetting import Target  # few processes forget
        from heedful.store import forgetting

        target = Target(lesson=lesson, person=person, loop=loop, before=before)
        forgotten = await self.store.write(
            self.scope, forgetting.forget, target, by=by, why=why, dry_run=dry_run
        )
        if dry_run:
            return forgotten
        return replace(forgotten, remains=await self.store.clean())

    async def clear(self) -> int:
        """Delete all lessons, loops and runs of this scope; return how many lessons.

        Loops go with their tasks and answers. What people decided stays on record,
        without their reasons. Then the deleted texts are removed from the files of the
        database, as far as it allows that.
        """
        from heedful.store import forgetting  # few processes clear a memory

        lessons = await self.store.write(self.scope, forgetting.clear)
        await self.store.clean()
        return lessons

    async def count(self) -> int:
        """Return the number of lessons in this scope."""
        return await self.store.read(self.scope, lesson_store.count)

    async def export(self, file: "File") -> "Exported":
        """Write all lessons to a new file at a path, or to an open binary file.

        They are the lessons of one moment. The file has no vectors; `reembed` computes
        them. It has no sightings, exposures, outcomes, rulings and actions either:
        `heedful db copy` moves them, and with them the proof. Raises InvalidInput if
        the path exists; StoreError.
        """
        from heedful.memory.transfer import write_export

        return await write_export(self.store, self.scope, file)

    async def import_(
        self,
        file: "File",
        *,
        origin: Origin = "outside",
        by: str = "",
        why: str = "",
        dry_run: bool = False,
    ) -> "Imported":
        """Add the new lessons of an export.

        A damaged file is refused before anything is written. Imported lessons are
        quarantined, unless a person confirms them: with the `origin` "user", and
        `by` whom and `why`, they keep their own origin and state, and the import is
        recorded. With `dry_run`, nothing is written, and only the lessons are counted.
        Raises LineError, InvalidInput, StoreError.
        """
        from heedful.memory.transfer import read_export

        author = read_origin(origin)
        require(
            author != "local", "origin", author, "outside, or user if you confirm it"
        )

        # A person who confirms an import says who and why.
        needs_actor = author == "user"
        for field, value in (("by", by), ("why", why)):
            if bool(value.strip()) != needs_actor:
                allowed = "a text if the origin is user, and else empty"
                raise InvalidInput(field, value, allowed)

        return await read_export(
            self.store, self.scope, file, by=by, why=why, dry_run=dry_run
        )

    async def _search(self, text: str, place: Place, **options: Any) -> list[Match]:
        """Return what `search.search` finds with these options.

        `place` is the vector of the text, after the name of the space of its embedder.
        """
        space, vector = place
        return await self.store.read(
            self.scope, search.search, text, space=space, vector=vector, **options
        )

    async def _embed(self, text: str) -> Place:
        """Return the name of the embedder's space, and the vector of a text in it.

        Secrets are removed first. Without an embedder, or for a blank text, return
        ("", None).
        """
        if self.embedder is None or not text.strip():
            return "", None

        (vector,) = await embed(self.embedder, [redact(text)])
        return space_of(self.embedder), vector


def open_memory(memory: Memory | Store | str, scope: Scope | None = None) -> Memory:
    """Return `memory` itself, or a new Memory if it is a store or the name of one.

    The memory of a store that is given by its name uses the embedder that is installed,
    if any. Raises InvalidInput for anything else.
    """
    if isinstance(memory, Memory):
        return memory
    is_place = isinstance(memory, str | Store)
    require(is_place, "memory", memory, "a path such as heedful.db, or a Memory")
    embedder = installed_embedder() if isinstance(memory, str) else None
    return Memory(memory, scope, embedder)


def _explain_silence(
    db: Db,
    scope: Scope,
    text: str,
    place: Place,
    *,
    only: Filter,
    reviews: bool = True,
) -> str:
    """Return in a sentence what keeps back the lesson that is nearest to a question.

    Nothing answers the question. It may be a lesson that the filter `only` leaves out,
    or that nobody may be told. To a blank text, all lessons are near. Only an asker
    who `reviews` is told that a lesson waits in quarantine. `place` is the name of the
    embedder's space and the vector of the text in it.
    """
    space, vector = place
    is_blank = not text.strip()
    matches = search.search(
        db,
        scope,
        text,
        space=space,
        vector=vector,
        limit=MIN_LEG_CANDIDATES,
        every=is_blank,
    )
    matches += search.hidden(
        db, scope, text, space=space, vector=vector, reviews=reviews
    )
    if not matches:
        code = "empty" if is_blank else "no lesson"
        return Reason(code).words
    candidates = [
        replace(candidate, could_help=candidate.could_help or is_blank)
        for candidate in ranking.candidates_for_question(matches, only=only)
    ]
    return silence_of(tell_reader(Situation(moment="question"), candidates))


def _signatures(
    error_type: str, text: str
) -> tuple[Signature, list[tuple[str, Signature]]]:
    """Return the signature of a text, and its error lines, each with its signature.

    A signature is what stays of an error without its particulars. Each line is given
    twice if it has names that its session made, such as a branch: without the names
    first, then with them. A text without an error line is its only line.
    """
    text = redact_ends(text, MAX_LOOKED_UP_CHARS)
    pattern = signature(error_type, text)
    lines_of_text = error_lines(output(text).splitlines()) or [text.strip()]
    # A failed call is known by the lines that name its errors, with their reasons.
    raw_lines = list(dict.fromkeys([*lines_of_text, *named_errors(text)]))
    # A lesson of a session has a mask for a branch that git says is checked out.
    masked_lines = [
        MadeNames().named_in(line, "git").masked(line) for line in raw_lines
    ]
    unique_lines = dict.fromkeys([*masked_lines, *raw_lines])
    lines = [mask_personal(line) for line in unique_lines]
    return pattern, [(line, signature(error_type, line)) for line in lines]


async def _with_refused(
    situation: Situation, candidates: Sequence[LessonCandidate], refuses: Refuses
) -> Situation:
    """Return the situation of a loop with the answers that its checks refuse now.

    `refuses` judges an example. Each answer is judged at most once, and only if it
    would be told: to judge may be slow. Without the refused ones, others would be told,
    which are judged next.
    """
    judged = set[int]()
    while True:
        answers = [
            candidate.record
            for candidate in tell_reader(situation, candidates).chosen
            if candidate.record.example.accepted and candidate.example not in judged
        ]
        if not answers:
            return situation
        judged.update(match.id for match in answers)
        refused = [match.id for match in answers if await refuses(match.example)]
        situation = replace(situation, refused=situation.refused.union(refused))


async def _without_refused(rule: Match, refuses: Refuses) -> Match:
    """Return a rule, without its worked example if a loop `refuses` that answer now."""
    if rule.worked is not None and await refuses(rule.worked):
        return replace(rule, worked=None)
    return rule


async def write_lessons(
    memory: Memory,
    lessons: Sequence[Lesson],
    store_function: Callable[..., list[Remembered]],
    *key: Any,
    **options: Any,
) -> list[Remembered]:
    """Embed lessons, store them with `store_function`, and return what it answers.

    The function is called with the arguments `key`, then the lessons, and the limits of
    the memory and `options` by their names. A lesson is embedded by the task of its
    example, or by its own text without one. If the memory embeds `later`, the lessons
    are stored without vectors, and the host is called to embed them.
    """
    if memory.later is None:
        texts = [
            lesson.example.task if lesson.example else lesson.text for lesson in lessons
        ]
        embeddings = {text: await memory._embed(text) for text in dict.fromkeys(texts)}
        embedded = []
        for lesson, text in zip(lessons, texts, strict=True):
            space, vector = embeddings[text]
            embedded.append(replace(lesson, space=space, vector=vector))
        lessons = embedded

    answers = await memory.store.write(
        memory.scope,
        store_function,
        *key,
        lessons,
        most=memory.max_entries or 0,
        quota=memory.quota,
        **options,
    )

    if memory.later is not None:
        await memory.later()
    return answers
