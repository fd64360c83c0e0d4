"""The answer that a person accepts for a loop that did not pass: the best lesson.

It teaches what the loop would have taught had its next attempt given this answer, in
the words of a user. The loop itself stays as it ended.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heedful.checks.evaluate import Check, Context, evaluated
from heedful.errors import InvalidInput
from heedful.lessons.check_findings import add_findings
from heedful.lessons.lesson import Lesson, Remembered
from heedful.lessons.loop_lessons import learn
from heedful.lessons.scope import Scope, digest_of
from heedful.loop.decide import Done
from heedful.loop.record import Attempt, Candidate, Evaluation, Finding, text_of
from heedful.redact import redact, redact_data
from heedful.store import exposures, lessons as lesson_store, loop_notes, loops
from heedful.store.connection import Db, resumable
from heedful.store.records import StoredLoop
from heedful.store.store import Store
from heedful.validation import MAX_STORED_TEXT_CHARS, require


async def accept(
    store: Store,
    scope: Scope,
    loop: str,
    accepted: Any,
    *,
    by: str,
    checks: Sequence[Check],
) -> tuple[str, list[Lesson]]:
    """Judge the answer that a person accepts for a loop, and make its lessons.

    The loop must have ended without passing. No check may refuse the answer: none of
    `checks`, none that refused it in an attempt of the loop, and none that a lesson
    became. `by` names the person. Nothing is stored. Returns the answer as text, and
    the lessons. Raises NotFound, InvalidInput.
    """
    stored_loop = await store.read(scope, loops.read, loop)
    verdict = stored_loop.verdict
    goes_on_or_passed = not isinstance(verdict, Done) or verdict.passed
    if goes_on_or_passed or stored_loop.is_run or not stored_loop.loop.attempts:
        raise InvalidInput("loop", loop, "a loop that ended without passing")

    candidate = Candidate.of(redact_data(accepted))
    answer = candidate.text or ""
    fits = 0 < len(answer) <= MAX_STORED_TEXT_CHARS
    allowed = f"an answer of 1 to {MAX_STORED_TEXT_CHARS:,} characters"
    require(fits, "accepted", answer, allowed)
    refusal = await _refusal_of(store, scope, stored_loop, accepted, checks=checks)
    if refusal is not None:
        raise InvalidInput(
            "accepted",
            answer,
            f"an answer that {refusal.check} does not refuse: {refusal.message}",
        )

    number = len(stored_loop.loop.attempts) + 1
    attempt = Attempt(number, candidate, evaluation=Evaluation())
    # The loop as if its next attempt had given the answer and passed. It has no goals,
    # because nobody has measured the answer.
    passed = replace(stored_loop.loop.then(attempt), goals=())
    task = redact(text_of(stored_loop.head.task))
    memory_key = stored_loop.head.memory_key
    learnt = learn(passed, task, memory_key=memory_key)
    if not learnt:
        # Its earlier attempts teach nothing; the answer alone is still an example.
        passed = replace(passed, attempts=(replace(attempt, number=1),), ladder=None)
        learnt = learn(passed, task, memory_key=memory_key)
    lessons = [
        replace(lesson, trust="user", source=f"operator:{by}", memory_key=memory_key)
        for lesson in learnt
    ]
    return answer, lessons


async def _refusal_of(
    store: Store,
    scope: Scope,
    stored_loop: StoredLoop,
    accepted: Any,
    checks: Sequence[Check],
) -> Finding | None:
    """Return the first error that speaks against an answer, None if there is none.

    An error comes from an earlier attempt of the loop that gave the same answer, from
    one of `checks`, or from a check that a lesson became.
    """
    digest = Candidate.of(accepted).digest
    for attempt in stored_loop.loop.attempts:
        is_same_answer = attempt.candidate.digest == digest
        if (
            is_same_answer
            and attempt.evaluation is not None
            and attempt.evaluation.errors
        ):
            return attempt.evaluation.errors[0]

    head = stored_loop.head
    context = Context(
        head.task,
        len(stored_loop.loop.attempts) + 1,
        loop_id=stored_loop.id,
        data=head.context,
    )
    evaluation = await evaluated(accepted, context, checks, None)
    judges = await store.read(scope, exposures.active_checks, head.memory_key)
    judged = add_findings(None, accepted, judges, None) or Evaluation()
    errors = (*evaluation.errors, *judged.errors)
    return errors[0] if errors else None


@resumable(result=list[Remembered])
def store_answer(
    db: Db,
    scope: Scope,
    id: str,
    lessons: Sequence[Lesson],
    *,
    answer: str,
    by: str,
    why: str,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Store the lessons of an accepted `answer`, and a note with it on its loop.

    The loop has this `id`; `by` is who accepted the answer, and `why` his reason. Above
    `most` lessons, if it is not 0, the least useful ones are removed, and at most
    `quota` texts of one source may wait for a review. Returns what became of each
    lesson: nothing if the same answer was stored for the loop before. Raises NotFound,
    InvalidInput.
    """
    now = time.time()
    # It stands for the name of a loop: each teaches once, and so does each correction.
    correction = f"{id} corrected {digest_of('answer', answer)}"
    if not exposures.is_first_lesson(db, scope, correction, now):
        return []

    note = f"Accepted answer: {answer}"
    if why:
        note = f"Accepted answer ({why}): {answer}"
    loop_notes.add(db, scope, id, text=note[:MAX_STORED_TEXT_CHARS], by=by)
    answers = lesson_store.upsert(
        db, scope, lessons=lessons, now=now, quota=quota, most=most
    )
    for remembered in answers:
        # A lesson that the loop taught when it ended has counted this loop already.
        sightings = {"lesson_id": remembered.id, "loop": id}
        if len(db.select("1", "occurrence", sightings)) > 1:
            counted_once = {"seen": remembered.seen - 1}
            db.update("lesson", {"id": remembered.id}, counted_once)
    return answers
