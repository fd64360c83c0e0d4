"""The pages about memory: the list of lessons, and proof."""

import re
import time
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, NamedTuple, get_args
from weakref import WeakKeyDictionary

from heedful.errors import InvalidInput
from heedful.lessons.briefing import HARMFUL_MEMORY
from heedful.lessons.holdout import Shown
from heedful.lessons.lesson import LESSON_KINDS, Match, Matches, State
from heedful.lessons.proof import (
    NO_CONCLUSION,
    Comparison,
    Conclusion,
    Effect,
    TrialProof,
)
from heedful.lessons.ranking import as_text
from heedful.lessons.sentence import (
    headline,
    say_draws,
    say_missing,
    say_repeats,
    say_shares,
    unbounded,
    word_gain,
)
from heedful.loop.codec import from_document
from heedful.loop.share import NO_DIFFERENCE
from heedful.memory.memory import Memory
from heedful.pages.report import counted
from heedful.service import review
from heedful.service.wire import split_page
from heedful.store import editions, exposures
from heedful.store.connection import Row
from heedful.validation import MAX_INTEGER
from heedful.web import figures
from heedful.web.site import (
    READING,
    Document,
    SitePage,
    Visit,
    page_links,
)

LESSON_NUMBER = re.compile(r"(?:lesson )?([0-9]{1,15})", re.IGNORECASE)
MAX_PAGE_LESSONS = 50
# The newest lessons that fit are sorted, because no index has their counters.
MAX_SORTED_LESSONS = 2_000
NEWEST_FIRST = "-first"  # the order that reaches all lessons
# What pages say of a comparison.
NOT_KNOWN = "not known yet"
VERDICTS = ("helps", "hurts", "no difference", NO_DIFFERENCE, NOT_KNOWN)
NEVER_SHOWN = "never shown"  # of a lesson
ALL_VERDICTS = (*VERDICTS, NEVER_SHOWN)
NEEDS = "needs"  # what a comparison without a conclusion lacks, on each page
# To count what 100,000 loops were shown takes seconds, so a process keeps the proof of
# so many loops for ten minutes.
MAX_SAVED_AGE_SECONDS = 600.0
MIN_CACHED_LOOPS = 2_000
MAX_SAVED_PROOFS = 8  # of models, in a project


class ReadProof(NamedTuple):
    """What the proof said at a time, when `ruling` was the newest on a lesson."""

    read_at: float
    ruling: int
    answer: Document


class Measures(NamedTuple):
    """What is measured of lessons, by name, with a proof.

    `effects` are what the proof says; `loops` is how those ended that were shown the
    present words.
    """

    proof: ReadProof
    effects: Mapping[str, Document]
    loops: Mapping[str, Shown]


_measures = WeakKeyDictionary[Memory, Measures]()
# The proofs that were read last of all loops, and of those of models, by model.
_proofs = WeakKeyDictionary[Memory, dict[str, ReadProof]]()


async def lessons(visit: Visit) -> Document:
    """Show the lessons that fit the filters, or that a search finds."""
    fields = ("kind", "state", "error_type", "tag", "text")
    filters = {name: visit.query.get(name, "") for name in fields}
    sort = visit.query.get("sort", "")
    if sort not in ("", NEWEST_FIRST):
        raise InvalidInput("sort", sort, NEWEST_FIRST)

    number = LESSON_NUMBER.fullmatch(filters["text"].strip())
    if number is not None:
        named_lessons = await visit.caller.read(editions.some, [int(number[1])])
        if named_lessons:
            visit.following = visit.link(f"/lessons/{number[1]}")

    newest: Sequence[Row] = ()
    if not filters["text"]:
        newest = await _newest_lessons(visit, filters)

    rows: Sequence[Any]
    cursor = None
    silence = ""
    if filters["text"]:
        matches = await _search_lessons(visit, filters)
        rows = await rows_of_matches(visit, matches, filters["state"])
        silence = matches.silence
    elif not sort:
        rows, cursor = await _proven_lessons(visit, newest)
    else:
        limit = MAX_PAGE_LESSONS
        listed = await review.list_lessons(
            visit.caller,
            limit + 1,
            visit.number("cursor") or MAX_INTEGER,
            kind=filters["kind"],
            error_type=filters["error_type"],
            tag=filters["tag"],
            state=filters["state"] or "used",
        )
        rows, cursor = split_page(listed, limit, "id")

    lessons = [dict(row) for row in rows]
    measures = await measure(visit)
    _add_measures(lessons, measures)

    return {
        "recall": await recall(visit),
        "filters": filters,
        "kinds": LESSON_KINDS,
        "states": get_args(State),
        "lessons": lessons,
        "counts": None if filters["text"] else count_effects(newest, measures),
        "draws": say_draws_of(measures),
        "silence": silence,
        "sort": sort,
        "limited": len(newest) == MAX_SORTED_LESSONS,
        **page_links(visit, cursor),
    }


async def recall(visit: Visit) -> Document:
    """Return what a prompt would show for the task of the address, and why.

    A key without `read` gets nothing of what waits in quarantine.
    """
    task = visit.query.get("task", "").strip()
    key = visit.query.get("key", "")
    answer = {"task": task, "key": key, "prompt": "", "lines": ()}
    if not task:
        return answer

    # The memory itself stays as it is: the service keeps one for each scope.
    memory = copy(visit.caller.memory)
    memory.holdout = 0.0
    briefing = await memory.brief(task, "", memory_key=key, every=True)
    if not review.may_review(visit.caller):
        briefing = briefing.without_waiting()
    prompt = as_text(briefing.examples, advice=briefing.advice)
    return {**answer, "prompt": prompt, "lines": briefing.lines}


async def _proven_lessons(visit: Visit, newest: Sequence[Row]) -> tuple[list[Any], int]:
    """Return a page of the newest lessons, what is proven first, and the next cursor.

    Those of which nothing is known come last.
    """
    measures = await measure(visit)

    def proof_of(row: Row) -> tuple[float, ...]:
        """Return how much is known of a lesson: its verdict, its gain, its loops."""
        lesson = f"{row['kind']}/{row['signature']}"
        effect = measures.effects.get(lesson)
        gain = effect["uplift"]["gain"] if effect else None
        verdict = ALL_VERDICTS.index(_verdict_on(dict(row), measures))
        return (-verdict, gain or 0.0, measures.loops.get(lesson, Shown()).shown)

    begin = visit.number("cursor")
    end = begin + MAX_PAGE_LESSONS
    ordered = sorted(newest, key=proof_of, reverse=True)
    ids = [row["id"] for row in ordered[begin:end]]
    rows = await visit.caller.read(editions.some, ids)
    lessons = [review.visible(visit.caller, row) for row in rows]
    cursor = end if end < len(ordered) else 0
    return lessons, cursor


async def _newest_lessons(visit: Visit, filters: Document) -> Sequence[Row]:
    """Return names and counters of the newest lessons that fit."""
    newest: Sequence[Row] = await visit.caller.read(
        figures.rows,
        "lesson_order",
        kind=filters["kind"],
        error_type=filters["error_type"],
        tag=filters["tag"],
        state=filters["state"] or "used",
        reviews=review.may_review(visit.caller),
        limit=MAX_SORTED_LESSONS,
    )
    return newest


def _add_measures(lessons: Sequence[Document], measures: Measures) -> None:
    """Give each lesson its effect, the loops that were shown it, and what lacks."""
    for lesson in lessons:
        name = f"{lesson['kind']}/{lesson['signature']}"
        lesson["effect"] = measures.effects.get(name)
        ends = measures.loops.get(name, Shown())
        lesson |= {"loops": ends.shown, "helped": ends.right, "hurt": ends.again}
        lesson["lacks"] = _say_lack(lesson)
        lesson["verdict"] = _verdict_on(lesson, measures)


def _say_lack(lesson: Document) -> str:
    """Return what a verdict on a lesson needs, or why none of its loops counts for one.

    Returns "" for one that has its verdict, and for one that is not shown.
    """
    if lesson["effect"]:
        return str(lesson["effect"]["lacks"])
    if not lesson["last_shown"]:
        return ""
    if lesson["loops"]:
        return f"none of {counted(lesson['loops'], 'loop')} compares it alone"
    if lesson["judged_from"]:
        return f"{NEEDS} loops: none since it was judged anew"
    return f"{NEEDS} {say_missing(shown=0, withheld=0, missing=None)}"


def count_effects(lessons: Sequence[Document], measures: Measures) -> Document:
    """Return how many lessons have each verdict, and how many were never shown.

    What loops were shown earlier words of a lesson tells nothing of the present ones.
    """
    counts = dict.fromkeys(ALL_VERDICTS, 0)
    for lesson in lessons:
        counts[_verdict_on(lesson, measures)] += 1
    return {"lessons": len(lessons), **counts}


def _verdict_on(lesson: Document, measures: Measures) -> str:
    """Return the verdict on a lesson, one of `ALL_VERDICTS`."""
    name = f"{lesson['kind']}/{lesson['signature']}"
    if name in measures.effects:
        return str(measures.effects[name]["verdict"])
    is_shown = measures.loops.get(name) or lesson["last_shown"]
    return NOT_KNOWN if is_shown else NEVER_SHOWN


async def measure(visit: Visit) -> Measures:
    """Return what is measured of the lessons; it is as old as the proof of its page."""
    memory = visit.caller.memory
    proof = await read_proof(visit)
    measures = _measures.get(memory)
    if measures is not None and measures.proof is proof:
        return measures

    measures = Measures(
        proof=proof,
        effects={
            effect["lesson"]: {**effect, **words_of(effect)}
            for effect in proof.answer["lessons"]
        },
        loops=await visit.caller.read(exposures.tally),
    )
    _measures[memory] = measures
    return measures


async def _search_lessons(visit: Visit, filters: Document) -> Matches:
    """Return what a search for the text of the filters finds."""
    tags = [filters["tag"]] if filters["tag"] else ()
    return await visit.caller.memory.query(
        filters["text"],
        MAX_PAGE_LESSONS,
        waiting=False,
        reviews=visit.may("read"),
        kind=filters["kind"],
        error_type=filters["error_type"],
        tags=tags,
    )


async def rows_of_matches(
    visit: Visit, matches: Sequence[Match], state: str
) -> list[Any]:
    """Return the lessons of matches that are in a state; "" is any."""
    # Several matches may be of one lesson.
    ids = list(dict.fromkeys(match.lesson_id for match in matches))
    rows = await visit.caller.read(editions.some, ids)
    return [
        review.visible(visit.caller, row) for row in rows if state in ("", row["state"])
    ]


async def read_proof(visit: Visit, model: str = "") -> ReadProof:
    """Return what the API says memory has proven, of all loops or those of a model.

    To count 300,000 exposures takes seconds. So in a project with many loops it is up
    to `MAX_SAVED_AGE_SECONDS` old, unless somebody has ruled on a lesson since.
    """
    (latest,) = await visit.caller.read(figures.rows, "latest")
    ruling = latest["rulings"]
    proofs = _proofs.setdefault(visit.caller.memory, {})
    proof = proofs.get(model)
    if proof is not None and proof.ruling == ruling:
        is_fresh = time.time() - proof.read_at < MAX_SAVED_AGE_SECONDS
        if is_fresh and proof.answer["ended"] >= MIN_CACHED_LOOPS:
            return proof

    answer = await visit.get("/v1/proof", limit=200, model=model)
    proofs[model] = ReadProof(read_at=time.time(), ruling=ruling, answer=answer)
    # Names of models are words of an address: only a few are kept.
    for name in list(proofs)[:-MAX_SAVED_PROOFS]:
        del proofs[name]
    return proofs[model]


async def proof(visit: Visit) -> Document:
    """Show whether memory helps: in all, on trial, for each lesson and each model."""
    model = visit.query.get("model", "")
    proof = await read_proof(visit, model)
    answer = deepcopy(proof.answer)
    lessons = sorted(answer["lessons"][:MAX_PAGE_LESSONS], key=_by_conclusion)
    names = [comparison["lesson"] for comparison in lessons]
    lesson_of = await visit.caller.read(figures.named, names)
    for comparison in lessons:
        lesson = lesson_of.get(comparison["lesson"], {"id": 0, "text": ""})
        comparison["name"] = lesson["text"] or comparison["lesson"]
        comparison["path"] = f"/lessons/{lesson['id']}" if lesson["id"] else ""
    models = [
        {**one, "name": name or "not reported", "path": "/proof" if name else ""}
        | {"query": {"model": name}}
        for name, one in answer["models"].items()
    ]
    trials = [{**trial, "name": trial["source"]} for trial in answer["trials"]]

    pooled = answer["pooled"]
    for comparison in (pooled, *lessons, *models, *trials):
        comparison |= words_of(comparison)
    trial = headline(
        from_document(Comparison, pooled),
        [from_document(TrialProof, trial) for trial in trials],
    )
    sources = [one for one in trials if trial and one["source"] == trial.source]
    is_harmful = answer["verdict"] == "hurts" and answer["holdout"]
    return {
        **answer,
        "whole": sources[0] if sources else pooled,
        "known": [one for one in lessons if one["uplift"]["gain"] is not None],
        "others": [one for one in lessons if one["uplift"]["gain"] is None],
        "by_model": models,
        "trials": trials,
        "unbounded_calls": unbounded(Effect(**pooled["calls"])),
        "harm": HARMFUL_MEMORY.reason.capitalize() if is_harmful else "",
        "draws": say_draws(answer["holdout"], answer["ended"], answer["verdict"]),
        "read_at": proof.read_at if answer["ended"] >= MIN_CACHED_LOOPS else 0.0,
    }


def say_draws_of(measures: Measures) -> str:
    """Return when draws withhold one lesson by itself, or why nothing was withheld."""
    answer = measures.proof.answer
    if not answer["pooled"]["withheld"]:
        return str(answer["words"]["about"])
    return say_draws(answer["holdout"], answer["ended"], answer["verdict"])


def words_of(comparison: Document) -> Document:
    """Return what a comparison says in words: gain, shares, verdict and lacks.

    The verdict is about the first try; `repeats` is about the same error again.
    """
    uplift = Effect(**comparison["uplift"])
    gain = ""
    if uplift.gain is not None:
        gain = word_gain(uplift).sentence

    lacks = ""
    if comparison["conclusion"] == NO_CONCLUSION and not comparison.get("pairs"):
        missing = say_missing(
            comparison["shown"],
            comparison["withheld"],
            comparison.get("missing"),
            bare=True,
        )
        lacks = f"{NEEDS} {missing}"
        # A loop may go without all lessons, which tells nothing of one of them.
        is_shown_only = comparison["shown"] and not comparison["withheld"]
        if comparison.get("lesson") and is_shown_only:
            lacks = f"{NEEDS} loops from which it alone is withheld"
    repeats = ""
    if "recurrence" in comparison:
        repeats = say_repeats(Effect(**comparison["recurrence"]))
    return {
        "gain": gain,
        "shares": say_shares(uplift),
        "lacks": lacks,
        "repeats": repeats,
        "verdict": _verdict_of(comparison),
    }


def _verdict_of(comparison: Document) -> str:
    """Return the conclusion of a comparison as all pages say it, one of `VERDICTS`.

    An interval with 0 in it shows no difference yet; a narrow one, that there is none.
    """
    if comparison["conclusion"] in ("helps", "hurts"):
        return str(comparison["conclusion"])
    if comparison["conclusion"] != NO_CONCLUSION:
        return "no difference"
    if comparison["uplift"]["gain"] is None:
        return NOT_KNOWN
    return NO_DIFFERENCE


def _by_conclusion(comparison: Document) -> tuple[int, float]:
    """Return the place of a lesson: what helps, hurts, is no difference, is unknown.

    In each of them the largest gain or loss comes first.
    """
    place = get_args(Conclusion).index(comparison["conclusion"])
    return place, -abs(comparison["uplift"]["gain"] or 0.0)


PAGES = (
    SitePage(
        address="/lessons",
        template="lessons",
        title="Lessons",
        make=lessons,
        may=READING,
    ),
    SitePage(
        address="/proof",
        template="proof",
        title="Proof",
        make=proof,
        may=READING,
    ),
)
