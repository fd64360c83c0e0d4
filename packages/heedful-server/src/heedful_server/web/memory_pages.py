"""The pages about memory: the list of lessons, and proof."""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict
from typing import NamedTuple, get_args
from weakref import WeakKeyDictionary

from heedful.display import counted
from heedful.lessons.briefing import HARMFUL_MEMORY
from heedful.lessons.holdout import Shown
from heedful.lessons.links import with_rules
from heedful.lessons.proof import NO_CONCLUSION, Conclusion, Effect
from heedful.lessons.proof_words import (
    say_draws,
    say_missing,
    say_shares,
    word_effects,
    word_gain,
)
from heedful.lessons.render import as_text
from heedful.lessons.scope import State, lesson_name
from heedful.loop.share import NO_DIFFERENCE
from heedful.memory.memory import Memory
from heedful.pages import render
from heedful.store import editions, exposures
from heedful.store.connection import MAX_READ_ROWS
from heedful.validation import MAX_LISTED_ITEMS, MAX_SHOWN_ROWS, Document, Fields
from heedful_server import review
from heedful_server.web import counts
from heedful_server.web.lists import facet, table, unknown_filters
from heedful_server.web.site import Visit, page_links

LESSON_NUMBER = re.compile(r"(?:lesson )?([0-9]{1,15})", re.IGNORECASE)
STATES = get_args(State)
NOTHING_LEARNT = (
    "Nothing was learnt in this project yet. A loop that fails and then passes teaches "
    "a lesson."
)
NOTHING_IN_USE = "No lesson is in use: those that there are wait, or are retired."
STATE_LABELS = {"superseded": "replaced"}
NOT_KNOWN = "not known yet"
NEVER_SHOWN = "never shown"  # of a lesson
# What pages say of a comparison, and the kind of its part in a drawing.
VERDICT_KINDS = {
    "helps": "good",
    "hurts": "bad",
    "no difference": "amber",
    NO_DIFFERENCE: "hatched",
    NOT_KNOWN: "track",
    NEVER_SHOWN: "node",
}
NOT_SHOWN_SINCE = "not shown since somebody changed it"
UNSHOWN = Shown()
NEEDS = "needs"  # what a comparison without a conclusion lacks, on each page
# To count 300,000 exposures takes seconds. So the proof of `MAX_READ_ROWS` loops
# is up to so many seconds old, unless somebody has ruled on a lesson since.
MAX_SAVED_AGE_SECONDS = 600.0


class ReadProof(NamedTuple):
    """What the proof said when it was read; `ruling` is the newest ruling it knew."""

    read_at: float
    ruling: int
    answer: Document


class Measures(NamedTuple):
    """What is measured of lessons, by name, with a proof.

    `effects` are what the proof says; `shown` is how loops and sessions ended that were
    shown the present words.
    """

    proof: ReadProof
    effects: Mapping[str, Document]
    shown: Mapping[str, Shown]

    def of(self, lesson: Fields) -> Document:
        """Return what is measured of a lesson: its effect, ends, verdict and lacks."""
        name = lesson_name(str(lesson["kind"]), str(lesson["signature"]))
        effect = self.effects.get(name)
        ends = self.shown.get(name, UNSHOWN)
        lacks = ""
        if effect:
            lacks = effect["lacks"]
        elif ends.shown:
            loops = counted(ends.shown, "loop")
            lacks = f"none of {loops} compares it alone"
        names_call = bool((lesson.get("mistake") or {}).get("action"))
        words = ends.of_call if names_call else str(ends)
        if lesson["last_shown"] and not ends.shown:
            words = NOT_SHOWN_SINCE
        return {
            "effect": effect,
            "shown": asdict(ends),
            "ends": words,
            "verdict": self.verdict_of({**lesson, "name": name}),
            "lacks": lacks,
        }

    def verdict_of(self, row: Document) -> str:
        """Return what is known of the effect of a lesson, by its name."""
        effect = self.effects.get(row["name"])
        if effect:
            return str(effect["verdict"])
        return NOT_KNOWN if row["last_shown"] else NEVER_SHOWN

    def place_of(self, row: Document) -> tuple[float, ...]:
        """Return the key by which a lesson is sorted: its verdict, gain and loops.

        Lessons of which nothing is known come last.
        """
        effect = self.effects.get(row["name"])
        gain = effect["uplift"]["gain"] if effect else None
        place = list(VERDICT_KINDS).index(self.verdict_of(row))
        return (place, -(gain or 0.0), -self.shown.get(row["name"], UNSHOWN).shown)


_measures = WeakKeyDictionary[Memory, Measures]()
# The proofs of all loops that were read last.
_proofs = WeakKeyDictionary[Memory, ReadProof]()


class LessonPage(NamedTuple):
    """The part of the list of lessons that one page shows, by ids.

    `silence` says why it shows none, if it does. `verdicts` counts what is known of all
    lessons that can be shown. The next page begins at `cursor`, 0 if there is none.
    """

    ids: Sequence[int]
    silence: str
    verdicts: Counter[str]
    cursor: int = 0


async def lessons(visit: Visit) -> Document:
    """Show lessons, those with a proven effect first, or those that a search finds."""
    text = visit.query_text("text").strip()
    state = visit.query_choice("state", STATES)
    number_match = LESSON_NUMBER.fullmatch(text)
    if number_match is not None:
        await visit.caller.read(editions.one, int(number_match[1]))
        visit.following = visit.link(f"/lessons/{number_match[1]}")

    measures = await measure(visit)
    state_rows = await visit.rows(
        "lesson_states",
        reviews=review.may_review(visit.caller),
        limit=MAX_READ_ROWS,
    )
    state_counts = Counter({row["state"]: row["lessons"] for row in state_rows})
    if text:
        page = await _search_lessons(visit, text)
    else:
        page = await _rank_lessons(visit, measures, state, state_counts)
    rows = await visit.caller.read(editions.some, page.ids)
    if text and state:
        rows = [row for row in rows if row["state"] == state]

    return {
        "heading": "Lessons",
        "search": "Words of a lesson or an error",
        "before": "recall_box",
        "recall": await recall(visit),
        "facets": [facet(visit, "state", "State", state_counts, labels=STATE_LABELS)],
        "answer": _say_verdicts(page.verdicts),
        "parts": [
            (kind, page.verdicts[verdict], verdict)
            for verdict, kind in VERDICT_KINDS.items()
        ],
        "tables": [
            table("lessons", ("lesson", "gain at the first try", "loops and sessions"))
        ],
        "lessons": with_rules(
            [{**review.visible(visit.caller, row), **measures.of(row)} for row in rows]
        ),
        "nothing": {"words": page.silence, "path": "/", "label": "how to begin"},
        "unknown": unknown_filters(visit.query, "text", "state", "task", "key"),
        **page_links(visit, page.cursor),
    }


async def _search_lessons(visit: Visit, text: str) -> LessonPage:
    """Return the lessons that fit some words best."""
    matches = await visit.caller.memory.query(
        text, MAX_SHOWN_ROWS, waiting=False, reviews=visit.may("read")
    )
    # Several matches may be of one lesson.
    ids = list(dict.fromkeys(match.lesson_id for match in matches))
    silence = f"No lesson fits: {matches.silence}"
    return LessonPage(ids, silence, verdicts=Counter())


async def _rank_lessons(
    visit: Visit, measures: Measures, state: str, state_counts: Counter[str]
) -> LessonPage:
    """Return the lessons in a state, "" for those in use, by what is known of them.

    `state_counts` are the numbers of lessons in each state.
    """
    silence = NOTHING_IN_USE if state_counts else NOTHING_LEARNT
    if state:
        silence = f"No lesson is {STATE_LABELS.get(state, state)}."
    newest = await visit.rows("lesson_order", state=state, limit=MAX_READ_ROWS)
    newest.sort(key=measures.place_of)
    begin = visit.number("cursor")
    end = begin + MAX_SHOWN_ROWS
    cursor = end if end < len(newest) else 0
    return LessonPage(
        ids=[row["id"] for row in newest[begin:end]],
        silence=silence,
        verdicts=Counter(map(measures.verdict_of, newest)),
        cursor=cursor,
    )


def _say_verdicts(verdict_counts: Counter[str]) -> Document | None:
    """Return how many lessons are proven to help; None without lessons."""
    if not verdict_counts:
        return None
    number = verdict_counts.total()
    newest = "the newest " if number == MAX_READ_ROWS else ""
    of = f"{verdict_counts['helps']:,} of {newest}{counted(number, 'lesson')}"
    words = f"{of} proven to help"
    return {"words": words, "kind": "helps" if verdict_counts["helps"] else ""}


async def recall(visit: Visit) -> Document:
    """Return what memory shows for the task of the address, as `heedful recall` prints.

    A key without `read` gets nothing of what waits in quarantine.
    """
    task = visit.query_text("task").strip()
    key = visit.query_text("key")
    # The service shares the memory of a scope, so `holdout` is changed in a copy.
    memory = copy(visit.caller.memory)
    memory.holdout = 0.0
    answer = ""
    if task and key:
        briefing = await memory.brief(task, "", memory_key=key, every=True)
        if not review.may_review(visit.caller):
            briefing = briefing.without_waiting()
        answer = as_text(briefing.examples, advice=briefing.advice)
        answer = answer or f"nothing is shown under the key {key!r}: {briefing.silence}"
    elif task:
        matches = await memory.recall(task, MAX_LISTED_ITEMS, reviews=visit.may("read"))
        answer = f"nothing to show: {matches.silence}"
        if matches:
            answer = render("recall.txt.j2", found=matches)
    return {"task": task, "key": key, "answer": answer.rstrip()}


async def measure(visit: Visit) -> Measures:
    """Return what is measured of lessons; it is kept until the proof is read again."""
    memory = visit.caller.memory
    proof = await read_proof(visit)
    measures = _measures.get(memory)
    if measures is not None and measures.proof is proof:
        return measures

    measures = Measures(
        proof=proof,
        effects={
            effect["lesson"]: in_words(effect) for effect in proof.answer["lessons"]
        },
        shown=await visit.caller.read(exposures.tally),
    )
    _measures[memory] = measures
    return measures


async def read_proof(visit: Visit, model: str = "") -> ReadProof:
    """Return what the API says memory has proven, of all loops or those of a model."""
    memory = visit.caller.memory
    (latest,) = await visit.rows("latest")
    proof = _proofs.get(memory)
    if not model and proof is not None and proof.ruling == latest["rulings"]:
        is_fresh = time.time() - proof.read_at < MAX_SAVED_AGE_SECONDS
        if is_fresh and proof.answer["ended"] >= MAX_READ_ROWS:
            return proof

    answer = await visit.get("/v1/proof", limit=200, model=model)
    proof = ReadProof(read_at=time.time(), ruling=latest["rulings"], answer=answer)
    if not model:
        _proofs[memory] = proof
    return proof


async def proof(visit: Visit) -> Document:
    """Show whether memory helps: as a whole, in trials, by lesson and by model."""
    model = visit.query_text("model")
    current = await read_proof(visit, model)
    answer = current.answer
    pooled = in_words(answer["pooled"])
    lessons = await _compared_lessons(visit, answer["lessons"])
    trials = [
        in_words({**trial, "name": trial["source"]}) for trial in answer["trials"]
    ]
    trial_of = {trial["source"]: trial for trial in trials}
    is_harmful = answer["verdict"] == "hurts" and answer["holdout"]
    return {
        **answer,
        "pooled": pooled,
        "lessons": [*lessons, *answer["lessons"][MAX_SHOWN_ROWS:]],
        "whole": trial_of.get(answer["words"]["trial"], pooled),
        "known": [lesson for lesson in lessons if lesson["gain"]],
        "not_known": 0 if model else await _count_unknown(visit),
        "by_model": _compared_models(answer["models"]),
        "trials": trials,
        "harm": HARMFUL_MEMORY.words.capitalize() if is_harmful else "",
        "draws": say_draws(answer["holdout"], answer["verdict"]),
        "read_at": current.read_at if answer["ended"] >= MAX_READ_ROWS else 0.0,
    }


async def _compared_lessons(
    visit: Visit, comparisons: Sequence[Document]
) -> list[Document]:
    """Return the comparisons of lessons in words, each with the path of its lesson.

    A lesson is named by its text, or by its signature if it is gone.
    """
    in_order = sorted(comparisons[:MAX_SHOWN_ROWS], key=_by_conclusion)
    names = [comparison["lesson"] for comparison in in_order]
    lessons_by_name = await visit.caller.read(counts.named, names)
    compared = []
    for name, comparison in zip(names, in_order, strict=True):
        lesson = lessons_by_name.get(name)
        text = lesson["text"] if lesson else ""
        path = f"/lessons/{lesson['id']}" if lesson else ""
        compared.append(in_words({**comparison, "name": text or name, "path": path}))
    return compared


def _compared_models(comparisons: Mapping[str, Document]) -> list[Document]:
    """Return the comparisons of models in words; one may be of loops without a name."""
    return [
        in_words(
            {
                **comparison,
                "model": model,
                "name": model or "not reported",
                "path": "/proof" if model else "",
            }
        )
        for model, comparison in comparisons.items()
    ]


async def _count_unknown(visit: Visit) -> int:
    """Return of how many lessons in use nothing is known yet."""
    measures = await measure(visit)
    newest = await visit.rows("lesson_order", state="", limit=MAX_READ_ROWS)
    return sum(measures.verdict_of(row) == NOT_KNOWN for row in newest)


def in_words(comparison: Document) -> Document:
    """Return a comparison with its words: gain, shares, verdict, and what it lacks.

    The gain is at the first try, or in repeats of the same error, or in both.
    """
    uplift = Effect(**comparison["uplift"])
    gain = ""
    if uplift.gain is not None:
        words = word_gain(uplift)
        if "recurrence" in comparison:
            recurrence = Effect(**comparison["recurrence"])
            words = word_effects(uplift, recurrence, comparison["conclusion"])
        gain = words.sentence

    lacks = ""
    if comparison["conclusion"] == NO_CONCLUSION and not comparison.get("pairs"):
        missing = say_missing(
            comparison["shown"],
            comparison["withheld"],
            comparison.get("missing"),
            bare=True,
        )
        lacks = f"{NEEDS} {missing}"
        # A loop from which all lessons were withheld says nothing about one of them.
        is_shown_only = comparison["shown"] and not comparison["withheld"]
        if comparison.get("lesson") and is_shown_only:
            lacks = f"{NEEDS} loops from which it alone is withheld"
    return {
        **comparison,
        "gain": gain,
        "shares": say_shares(uplift),
        "lacks": lacks,
        "verdict": _verdict_of(comparison),
    }


def _verdict_of(comparison: Document) -> str:
    """Return the conclusion of a comparison as all pages say it: see `VERDICT_KINDS`.

    "no difference" is a conclusion: the interval around 0 is narrow. A wider interval
    with 0 in it only shows no difference yet.
    """
    if comparison["conclusion"] in ("helps", "hurts"):
        return str(comparison["conclusion"])
    if comparison["conclusion"] != NO_CONCLUSION:
        return "no difference"
    if comparison["uplift"]["gain"] is None:
        return NOT_KNOWN
    return NO_DIFFERENCE


def _by_conclusion(comparison: Document) -> tuple[int, float]:
    """Return the key by which a comparison is sorted: by its conclusion and its effect.

    Of one conclusion, the largest gain or loss comes first.
    """
    place = get_args(Conclusion).index(comparison["conclusion"])
    return place, -abs(comparison["uplift"]["gain"] or 0.0)
