"""Lessons from reviews and CI: what was said about two changes or more is a rule.

`learn_change` keeps what was said about one change. The same remark about another
change makes a lesson, which depends on who said it: text of reviewers waits in
quarantine unless a person states them by name, and so does what CI printed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from heedful.episodes.changes import ChangeRemarks, Remark
from heedful.lessons.lesson import Lesson, Remembered, digest_of
from heedful.lessons.origin import Origin
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory, write_lessons
from heedful.store import changes as change_store
from heedful.store.changes import ChangeKey
from heedful.store.episodes import RECURRING_LESSON_IMPORTANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class RemarkLesson:
    """The `lesson` of a remark: the `words` that it quotes, and what was suggested."""

    lesson: Lesson
    words: str
    suggestion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedChange:
    """What a change taught: how many remarks it has, and the lessons stored for them.

    `lessons` are those that at least two changes have, with their answers.
    """

    remarks: int = 0
    lessons: tuple[tuple[RemarkLesson, Remembered], ...] = ()


async def learn_change(change: ChangeRemarks, *, memory: Memory) -> LearnedChange:
    """Keep what was said about a change, in one transaction.

    Learning it again changes nothing. A remark that only this change has is told to
    nobody. Raises InvalidInput, StoreError.
    """
    lessons = await asyncio.to_thread(_lessons_of, change)
    if not lessons:
        return LearnedChange()

    key = ChangeKey(
        name=change.name,
        digests=tuple(lessons),
        stated=await memory.believed(),
    )
    answers = await write_lessons(
        memory,
        [remark.lesson for remark in lessons.values()],
        change_store.record,
        key,
    )
    pairs = [pair for pair in zip(lessons.values(), answers, strict=True) if pair[1].id]
    return LearnedChange(remarks=len(lessons), lessons=tuple(pairs))


def _lessons_of(change: ChangeRemarks) -> dict[str, RemarkLesson]:
    """Return the lessons of a change, by the digest of what counts as the same.

    Their origin is not that of their source yet, which is who said it.
    """
    trust: Origin = "user" if change.kind == "review" else "local"
    lessons: dict[str, RemarkLesson] = {}
    for remark in change.remarks:
        sign = signature("", _signed_text(change, remark))
        digest = digest_of(f"{change.kind} {remark.place}", sign.pattern)
        words = _quote(change, remark)
        text = words
        if remark.suggestion and change.kind != "ci":
            text = f"{words}\nSuggested instead:\n{remark.suggestion}"
        lesson = Lesson(
            "reflection",
            sign,
            error_type="",
            text=text,
            sighting=text,
            trust=trust,
            importance=RECURRING_LESSON_IMPORTANCE,
            source=remark.source,
            meta={"change": change.kind},
        )
        entry = RemarkLesson(lesson=lesson, words=words, suggestion=remark.suggestion)
        lessons.setdefault(digest, entry)
    return lessons


def _signed_text(change: ChangeRemarks, remark: Remark) -> str:
    """Return the text whose signature says what is the same.

    An error is signed as everywhere; of a sentence, letter case, quotation marks and
    its end do not matter.
    """
    if change.kind == "ci":
        return remark.text
    return remark.text.replace("`", "").casefold().strip(" .!?…:;")


def _quote(change: ChangeRemarks, remark: Remark) -> str:
    """Return what a remark said, and about what."""
    if change.kind == "ci":
        where = f"`{remark.about}` " if remark.about else ""
        return f"CI: {where}failed with “{remark.text}”."
    where = f" of {remark.about}" if remark.about else ""
    return f"A review{where} said: “{remark.text}”"
