"""Routes for the memory of a project: recall, proof, trials of other memories, lessons,
quarantine, episodes and traces.
"""

import json
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import Header, Path, Query, Request, Response

from heedful.episodes.episode import Limits
from heedful.episodes.readers.heedful import EpisodeReader
from heedful.errors import InvalidInput, NotFound
from heedful.lessons import lesson, render
from heedful.lessons.briefing import silence_of
from heedful.lessons.commands import trust_command
from heedful.lessons.forgetting import Forgotten, Target
from heedful.lessons.loop_lessons import is_proof_due
from heedful.lessons.origin import (
    ORIGINS,
    Origin,
    names_to_state,
    origin_of,
    read_origin,
)
from heedful.lessons.proof import TrialProof
from heedful.lessons.proof_words import word_proof
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.lessons.ranking import tell_prompt
from heedful.lessons.scope import State, name_scope, short_digest
from heedful.lessons.signature import signature
from heedful.memory.memory import MAX_SIGNED_CHARS
from heedful.memory.reflect import to_stored_episode
from heedful.memory.trial import Trial
from heedful.models.contract import Message
from heedful.redact import redact, redact_start
from heedful.store import (
    editions,
    episodes,
    exposures,
    loops,
    reminders,
)
from heedful.store.offload import offload
from heedful.validation import MAX_INTEGER, Document, Fields
from heedful.wire import Page
from heedful_server import review, schemas
from heedful_server.arrivals import UNKNOWN_SPANS_REASON, receive
from heedful_server.auth import (
    Approving,
    Caller,
    Limit,
    Paged,
    Reading,
    Reviewing,
    Writing,
    api_router,
)
from heedful_server.bodies import PROTOBUF_TYPE
from heedful_server.problems import ERROR_THROTTLE, Problem, log

Id = Annotated[int, Path(ge=1, le=MAX_INTEGER)]
ETag = Annotated[
    str | None, Header(description="The ETag of the lesson.", max_length=200)
]
Word = Annotated[str, Query(max_length=200)]
Source = Annotated[
    str, Query(min_length=1, max_length=200, description="The memory on trial.")
]

router = api_router("recall")
# Fields of a recall that a recall for a loop refuses: the briefing of a loop decides
# them.
SINGLE_RECALL_FIELDS = frozenset({"limit", "budget", "tags", "match"})


@router.post("/recall")
async def recall(body: schemas.RecallRequest, caller: Reading) -> schemas.RecallAnswer:
    """Recall examples and lessons for a task; with a `loop`, record exposures (needs
    `write`).
    """
    if body.loop is not None:
        return await _brief_loop(body, body.loop, caller)

    memory = caller.memory
    matches = await memory.recall(
        body.task,
        body.limit,
        tags=body.tags,
        match=body.match,
        reviews=review.may_review(caller),
    )

    messages: Sequence[Message] = ()
    text = ""
    silence = matches.silence
    if body.form == "messages":
        messages = memory.render(matches, body.budget)
    elif body.form == "text":
        text = memory.render(matches, body.budget, form="text")
    if not (silence or messages or text):
        is_text = body.form == "text"
        silence = silence_of(
            tell_prompt(matches, time.time(), body.budget, advice=is_text)
        )

    return schemas.RecallAnswer(
        items=list(matches),
        messages=list(messages),
        text=text,
        silence=silence,
        exposure=None,
        briefing=None,
    )


async def _brief_loop(
    body: schemas.RecallRequest, loop: str, caller: Caller
) -> schemas.RecallAnswer:
    """Return what memory says to a loop, and record it as the loop's exposures."""
    caller.needs("write")
    refused = sorted(SINGLE_RECALL_FIELDS & body.model_fields_set)
    if refused:
        value = getattr(body, refused[0])
        raise InvalidInput(refused[0], value, "left out if a loop is given")

    tell = "examples" if body.form == "messages" else body.tell
    briefing = await caller.memory.brief(
        body.task,
        loop,
        body.begins,
        memory_key=body.memory_key,
        checks=body.checks,
        tell=tell,
        model=body.model,
        withholds=body.withholds,
        check_ids=body.check_ids,
    )
    # The exposures are recorded before the prompt that may cause an outcome.
    await caller.write(loops.brief, loop, briefing)
    if not review.may_review(caller):
        briefing = briefing.without_waiting()

    messages: Sequence[Message] = ()
    text = ""
    if body.form == "messages":
        messages = briefing.examples
    elif body.form == "text":
        text = render.as_text(briefing.examples, secrets.randbits(64), briefing.advice)

    document = briefing.plain()
    for choice in document["choices"]:
        reason = choice["reason"]
        if reason is not None:
            reason["command"] = name_scope(reason["command"], caller.scope)
    shown_count = sum(exposure.shown for exposure in briefing.exposures)
    withheld = len(briefing.exposures) - shown_count
    return schemas.RecallAnswer(
        items=list(briefing.found),
        messages=list(messages),
        text=text,
        silence=briefing.silence,
        exposure={"loop": loop, "shown": shown_count, "withheld": withheld},
        briefing=document,
        checks=briefing.checks,
    )


@router.post("/outcomes")
async def outcomes(body: schemas.NewOutcome, caller: Writing) -> Document:
    """Report how a loop with recalled lessons ended; only the first report of a loop
    counts.

    `number` in the answer is the position of the loop among the ended loops of the
    project with recalled lessons. It is 0 if the loop does not count: no lessons were
    recalled for it, the key has reported none of its attempts, or the key has reached
    its limit of outcomes a day.
    """
    outcome = lesson.Outcome(
        body.loop,
        body.right_at_once,
        calls=body.calls,
        signatures=frozenset(body.signatures),
        memory_key=body.memory_key,
        model=body.model,
        climbed=body.climbed,
        cost=body.cost,
    )
    await caller.write(exposures.remember, (), outcome=outcome)

    past = await caller.read(exposures.past, body.loop)
    if is_proof_due(past.number):
        await caller.setup.work.defer("prove", caller.scope)
    return {"loop": body.loop, "number": past.number}


@router.get("/proof")
async def proof(
    caller: Reading, limit: Limit = 50, model: Word = ""
) -> schemas.ProofAnswer:
    """Return whether memory helps, in total, for each model and for each lesson.

    With a `model`, only loops of this model count.
    """
    memory = caller.memory
    proven = await memory.prove(model)
    most_exposed_first = sorted(
        proven.lessons, key=lambda lesson: -(lesson.shown + lesson.withheld)
    )
    past = await caller.read(exposures.past, "")
    words = word_proof(proven, holdout=memory.holdout, ended=past.ended)
    return schemas.ProofAnswer(
        model=model,
        sentence=words.sentence,
        words=words,
        pooled=proven.pooled,
        balance=proven.balance,
        forecast=proven.forecast,
        models=dict(proven.models),
        mean_cost=proven.mean_cost,
        ladders=proven.ladders,
        reminders=await caller.read(reminders.figures),
        trials=list(proven.trials),
        lessons=most_exposed_first[:limit],
        pending=proven.pending,
        ended=past.ended,
        verdict=past.verdict,
        holdout=memory.holdout,
    )


trials_router = api_router("trials", "/v1/trials")


@trials_router.post("/offers")
async def offer(body: schemas.TrialOffer, caller: Writing) -> schemas.OfferAnswer:
    """Offer a loop the texts of a memory that heedful did not make; return what to
    show it.

    One random draw for each loop and source decides whether all texts are shown, or
    none. heedful stores the draw before it answers. A loop without an offered text does
    not count.
    """
    trial = Trial(
        body.source,
        caller.setup.store,
        caller.scope,
        holdout=body.holdout,
        keep_texts=body.keep_texts,
    )
    return schemas.OfferAnswer(texts=await trial.offer(body.loop, body.texts))


@trials_router.post("/results")
async def end_trial(body: schemas.TrialResult, caller: Writing) -> Document:
    """Report how a loop of a trial ended; 409 if another result was reported.

    The body has `passed` or a `score`, not both. 404 if the source offered the loop no
    text.
    """
    await Trial(body.source, caller.setup.store, caller.scope).end(
        body.loop, body.passed, score=body.score
    )
    return {"source": body.source, "loop": body.loop}


@trials_router.get("/proof")
async def prove_trial(caller: Reading, source: Source) -> TrialProof:
    """Return whether the texts of a memory on trial help; 404 if it offered none."""
    proven = await Trial(source, caller.setup.store, caller.scope).prove()
    if not proven.shown + proven.withheld + proven.pending:
        where = f"project {caller.scope.project}"
        raise NotFound(
            "memory on trial", source, where, remedy="; offer its texts first"
        )
    return proven


lessons = api_router("reflections")


@lessons.post("/seen")
async def seen(body: schemas.Question, caller: Reading) -> Document:
    """Return how often an error was seen, its lessons, and whether other errors are
    `grouped` with it.

    Agents are told the lessons with the ids in `told`. The `entry` of a lesson is the
    id of its text in quarantine, or 0. If agents are told none, `silence` says why. If
    the text has several lines, `lines` are the known errors among them. `release` is
    the command that releases the lessons that wait in quarantine.
    """
    answer = await caller.memory.seen(body.error_type, body.text)
    return {
        "signature": signature(
            body.error_type, redact_start(body.text, MAX_SIGNED_CHARS)
        ).digest,
        "count": answer.count,
        "lessons": [review.visible(caller, lesson) for lesson in answer.lessons],
        "told": [lesson["id"] for lesson in answer.told],
        "grouped": answer.group is not None,
        "lines": answer.lines,
        "silence": answer.silence,
        "release": name_scope(answer.release, caller.scope),
    }


@lessons.post("/before")
async def before(body: schemas.ActionQuestion, caller: Reading) -> schemas.ActionAnswer:
    """Return how an action failed before and what fixed it; nothing if it has worked
    since.
    """
    return await caller.memory.before(body.tool, body.arguments)


@lessons.post(
    "/reflections",
    status_code=201,
    responses={200: {"model": schemas.RememberedAnswer}},
)
async def create(
    body: schemas.NewLesson, caller: Writing, response: Response
) -> schemas.RememberedAnswer:
    """Record that an error occurred: 201 if its pattern is new and becomes a lesson,
    otherwise 200.

    If the key is from outside and nobody stated it, the lesson waits in quarantine;
    `entry` is its id there, and `release` releases it. If the
    memory is full of more valuable lessons, the lesson is not stored and `id` and
    `seen` in the answer are 0.
    """
    sender = caller.actor.via or f"key:{caller.key.name}"
    origin: Origin = "user"
    if "approve" not in caller.key.may:
        stated = await caller.memory.quarantine.believed()
        sources = [caller.actor.via, body.source]
        origin = origin_of(filter(None, sources), stated)

    example = None
    if body.example is not None:
        example = lesson.Example(
            body.example.task,
            body.example.accepted,
            rejected=body.example.rejected,
            wrong=body.example.wrong,
            context=body.context,
            model=body.example.model,
        )

    answer = await caller.memory.remember(
        body.error_type,
        body.text,
        lesson=body.lesson,
        example=example,
        tags=body.tags,
        importance=body.importance,
        context=body.context,
        origin=origin,
        source=body.source or sender,
    )

    response.status_code = 201 if answer.created else 200
    if answer.id:
        response.headers["Location"] = f"/v1/reflections/{answer.id}"
    return answer


@lessons.post("/reflections/query")
async def query(body: schemas.LessonQuery, caller: Reading) -> schemas.QueryAnswer:
    """Find lessons to read; the permission `read` includes lessons in quarantine.

    Never put an item with the state `quarantined` into a prompt. If there are no items,
    `silence` says why the nearest lesson is missing, and which command changes that.
    """
    matches = await caller.memory.query(
        body.text,
        body.limit,
        tags=body.tags,
        match=body.match,
        kind=body.kind,
        importance=body.importance,
        reviews=review.may_review(caller),
    )
    return schemas.QueryAnswer(items=matches, next=None, silence=matches.silence)


@lessons.get("/reflections")
async def listed(
    caller: Reading,
    page: Paged,
    kind: lesson.LessonKind | None = None,
    error_type: Word = "",
    tag: Word = "",
    state: State | None = None,
) -> Page[Document]:
    """List the lessons that match all filters, newest first; times are in seconds since
    1970.

    If a lesson waits in quarantine or was rejected, a key with `recall` instead of
    `read` does not get its words, type, source and tags.
    """
    rows = await caller.read(
        editions.list_lessons,
        page.limit + 1,
        page.id or MAX_INTEGER,
        reviews=review.may_review(caller),
        kind=kind or "",
        error_type=error_type,
        tag=tag,
        state=state or "",
    )
    return Page[Document].of(
        [review.visible(caller, row) for row in rows], page.limit, "id"
    )


@lessons.get("/reflections/{id}")
async def one(id: Id, caller: Reading, response: Response) -> Document:
    """Return a lesson; its `edition` is also the entity tag in the header `ETag`."""
    return _with_etag(
        review.visible(caller, await caller.read(editions.one, id)), response
    )


@lessons.patch("/reflections/{id}")
async def edit(
    id: Id,
    body: schemas.LessonEdit,
    caller: Approving,
    response: Response,
    if_match: ETag = None,
) -> Document:
    """Change a lesson and record the change; 412 if `If-Match` is not its current
    entity tag.
    """
    if if_match is None:
        raise Problem(
            428,
            "precondition_required",
            detail="send If-Match with the ETag of the lesson",
        )

    changes = body.model_dump(exclude={"tenant"}, exclude_none=True)
    edition = if_match.strip().strip('"')
    # The audit log keeps a digest of the new words, not the words.
    recorded = changes
    if body.text:
        recorded = {**changes, "text": short_digest(redact(body.text))}
    caller.record("reflection.edit", str(id), **recorded)
    edited = await caller.write(editions.amend, id, edition, caller.by, **changes)
    if body.text:
        await caller.setup.embed_soon(caller.scope)
    return _with_etag(review.visible(caller, edited), response)


@lessons.post("/forget")
async def forget(body: schemas.Forgetting, caller: Approving) -> Forgotten:
    """Delete the texts of a lesson, a person or a loop, or all texts before a time,
    with what derives from them; what others said stays.

    `shared` are lessons that stay with the words of others. `remains` says what the
    files of the database may still have.
    """
    fields = body.model_dump(include={"lesson", "person", "loop", "before"})
    target = Target(**fields)
    if not body.dry_run:
        caller.record("memory.forget", target.subject, why=body.why)
    return await caller.memory.forget(
        **fields, by=caller.by, why=body.why, dry_run=body.dry_run
    )


def _with_etag(lesson: Fields, response: Response) -> Document:
    """Return a lesson as the API sends it, and add its entity tag to the response."""
    response.headers["ETag"] = f'"{lesson["edition"]}"'
    return dict(lesson)


quarantine = api_router("quarantine", "/v1/quarantine")


@quarantine.get("")
async def waiting(caller: Reviewing, page: Paged) -> Page[schemas.QuarantineRow]:
    """List the lessons in quarantine that wait for a review, newest first."""
    return Page[schemas.QuarantineRow].of(
        await caller.memory.quarantine.waiting(page.limit + 1, after=page.id),
        page.limit,
        "id",
    )


@quarantine.post("/revoke")
async def revoke(body: schemas.Revocation, caller: Approving) -> Document:
    """Remove a source and everything that derives from it, including lessons of loops
    whose prompts contained its text.

    `key:ID` removes everything that a key wrote to the project.
    """
    if not body.dry_run:
        caller.record("quarantine.revoke", body.source, why=body.why)

    removed = await caller.memory.quarantine.revoke(
        body.source, by=caller.by, why=body.why, dry_run=body.dry_run
    )
    return {"source": body.source, "revoked": not body.dry_run, **asdict(removed)}


@quarantine.get("/{id}")
async def show(id: Id, caller: Reviewing) -> QuarantinedLesson:
    """Return a lesson from quarantine: its origin, its reviews, and as `texts` every
    text that a release frees.
    """
    return await caller.memory.quarantine.show(id)


STATES_AFTER_RULING = {
    "release": "unverified",
    "reject": "retired",
    "undo": "quarantined",
}


@quarantine.post("/{id}/{ruling}")
async def rule(
    id: Id,
    ruling: review.Ruling,
    body: schemas.ReasonBody,
    caller: Approving,
) -> Document:
    """Release a lesson from quarantine, or reject and retire it; or undo the last
    decision, so that the lesson waits again.

    A released lesson stays from `outside`, with `released_by` and `released_at`. The
    text of a rejected lesson is never recalled. The ruling is recorded.
    """
    await review.decide(caller, ruling, [id], body.why)
    state = STATES_AFTER_RULING[ruling]
    return {"id": id, "state": state, "by": caller.by, "why": body.why}


episodes_router = api_router("episodes")
_JSON_MEDIA_TYPE = "application/json"
SentOrigin = Annotated[
    str,
    Query(
        description="`user` needs a key that may approve.",
        json_schema_extra={"enum": [*ORIGINS]},
    ),
]


def _sent_origin(caller: Caller, word: str) -> Origin:
    """Return the origin that a request states. Raises InvalidInput, Forbidden."""
    origin = read_origin(word)
    if origin == "user":
        caller.needs("approve")
    return origin


@episodes_router.post(
    "/episodes", name="create", status_code=202, responses={200: {"model": Document}}
)
async def receive_episode(
    new: schemas.NewEpisode,
    caller: Writing,
    response: Response,
    origin: SentOrigin = "local",
) -> Document:
    """Store a finished run, so that a worker reflects on it; a repeated call stores
    nothing more.

    200 if heedful has already reflected on the run, else 202. Texts from outside wait:
    `hint` is the command that states their sources, "" if no text waits.
    """
    if not new.events and new.fault is None:
        raise InvalidInput("events", [], "at least one event, or a fault")
    author = _sent_origin(caller, origin)

    run = {
        "events": [],
        **new.model_dump(mode="json", exclude={"tenant"}, exclude_unset=True),
    }
    [episode] = await offload(EpisodeReader(Limits()).add, run)
    stored_episode = await offload(to_stored_episode, episode, author)

    state = await caller.write(episodes.admit, stored_episode, claim=False) or "waiting"
    if state != "reflected":
        await caller.setup.work.defer("reflect", caller.scope, digest=episode.digest)

    stated = await caller.memory.quarantine.believed()
    sources = caller.actor.via.split()
    response.status_code = 200 if state == "reflected" else 202
    return {
        "digest": episode.digest,
        "state": state,
        "hint": name_scope(
            trust_command(names_to_state(sources, stated)), caller.scope
        ),
    }


@episodes_router.get("/episodes", name="listed")
async def list_episodes(
    caller: Reading, page: Paged, state: episodes.EpisodeState | None = None
) -> Page[schemas.EpisodeRow]:
    """List the episodes and their states, newest first.

    `error` may quote the episode: a key with `recall` in place of `read` gets only the
    name of the error.
    """
    rows = await caller.read(
        episodes.page, page.limit + 1, state or "", page.cursor or ""
    )
    if not review.may_review(caller):
        rows = [replace(row, error=row.error.partition(":")[0]) for row in rows]
    return Page[schemas.EpisodeRow].of(rows, page.limit, "digest")


traces_router = api_router("traces")


@traces_router.post("/traces", name="traces", response_class=Response)
async def receive_traces(
    request: Request,
    caller: Writing,
    origin: SentOrigin = "local",
) -> Response:
    """Receive spans of agents over OTLP/HTTP, in any order and from any number of
    services.

    Soon after the root span of a trace has ended, the trace becomes one episode. The
    answer reports spans that cannot be stored as `partial_success`. It warns there,
    with no rejected span, if no span is one of an agent by a known convention.
    """
    author = _sent_origin(caller, origin)

    content_type = request.headers.get("content-type", _JSON_MEDIA_TYPE)
    media_type = content_type.partition(";")[0].strip().lower()
    body = await request.body()
    try:
        spans: Any = body
        if media_type != PROTOBUF_TYPE:
            spans = await offload(json.loads, body)
        refused = await receive(caller.setup.store, caller.scope, spans, author)
    except (InvalidInput, ValueError, RecursionError) as error:
        raise Problem(400, "invalid_traces", detail=f"not OTLP: {error}") from error

    unknown = refused.pop(UNKNOWN_SPANS_REASON, 0)
    caller.setup.metrics.refused.inc(refused.total())
    for reason, count in refused.items():
        if ERROR_THROTTLE.allows(reason):
            log.warning("%d spans refused: %s key=%s", count, reason, caller.key.id)
    return _export_response(refused, unknown, media_type)


def _export_response(refused: Counter[str], unknown: int, media_type: str) -> Response:
    """Return the answer to an export of spans, in the media type of the request.

    `refused` has the reasons why spans were not stored, each with its number of spans.
    `unknown` spans were stored, but are of no known convention.
    """
    answer = {}
    counts = refused + Counter({UNKNOWN_SPANS_REASON: unknown})
    if counts:
        reasons = [f"{count} spans: {reason}" for reason, count in counts.items()]
        answer["partialSuccess"] = {
            # Protobuf writes 64-bit integers as text in JSON.
            "rejectedSpans": str(refused.total()),
            "errorMessage": "; ".join(reasons),
        }

    if media_type != PROTOBUF_TYPE:
        return Response(json.dumps(answer), media_type=_JSON_MEDIA_TYPE)

    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    message = ParseDict(answer, trace_service_pb2.ExportTraceServiceResponse())
    return Response(message.SerializeToString(), media_type=PROTOBUF_TYPE)
