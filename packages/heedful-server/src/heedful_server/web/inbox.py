"""The inbox: what waits for a review, every text that a release frees, and decisions.

A case is what a person decides about at once: the texts that one run taught, or texts
that a prompt would show alike.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, groupby, islice
from operator import itemgetter
from urllib.parse import unquote

from heedful.display import counted
from heedful.errors import InvalidInput
from heedful.lessons.commands import quote_words, trust_words
from heedful.lessons.forgetting import Forgotten
from heedful.lessons.origin import (
    NETWORK_SOURCE,
    is_outside,
    marked_parts,
    names_to_state,
)
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.lessons.render import error_type_words
from heedful.lessons.scope import Scope, name_scope
from heedful.memory import quarantine as quarantine_store
from heedful.store import exposures, lessons as lesson_store
from heedful.store.connection import MAX_READ_ROWS
from heedful.validation import MAX_SHOWN_ITEMS, MAX_SHOWN_ROWS, Document, Fields
from heedful_server import review
from heedful_server.auth import Caller
from heedful_server.web import counts
from heedful_server.web.site import Visit, is_number

Case = list[QuarantinedLesson]
MAX_QUEUE_TEXTS = 200  # the newest ones
RUN_PREFIX = "episode:"
DECISION_WORDS = {
    **quarantine_store.RULING_WORDS,
    "trust": "stated",
    "revoke": "revoked",
}


def cases_of(texts: Sequence[QuarantinedLesson]) -> list[Case]:
    """Return the cases of some texts, in the order of their first texts."""
    cases: dict[object, Case] = {}
    for text in texts:
        case = cases.setdefault(_run_of(text) or _shown_parts(text), [])
        if len(case) < MAX_SHOWN_ROWS:
            case.append(text)
    return list(cases.values())


def _run_of(text: QuarantinedLesson) -> str:
    """Return the run that taught a text; "" if none did."""
    runs = [source for source in text.sources if source.startswith(RUN_PREFIX)]
    return runs[0] if runs else ""


def _shown_parts(text: QuarantinedLesson) -> tuple[str, ...]:
    """Return what a prompt shows of a text."""
    return (
        text.kind,
        text.lesson or text.pattern,
        error_type_words(text.error_type),
        repr(text.example),
    )


def row_of(case: Case) -> Document:
    """Return what a list shows of a case: the words of its last text, and the names
    for which nobody vouches.
    """
    text = case[-1]
    sources = list(chain.from_iterable(text.sources for text in case))
    return {
        "id": text.id,
        "words": text.lesson or text.pattern,
        "ids": [text.id for text in case],
        "names": names_to_state(sources) or sorted(set(sources)),
    }


async def inbox(visit: Visit, n: int = 0) -> Document:
    """Show the text with the id `n`, which waits or waited; for 0, open the next."""
    caller = visit.caller
    queue = list(
        map(row_of, cases_of(await caller.memory.quarantine.waiting(MAX_QUEUE_TEXTS)))
    )
    case_facts = None
    others = queue
    following = "/inbox"
    if n:
        text = await caller.memory.quarantine.show(n)
        ids = next((row["ids"] for row in queue if n in row["ids"]), [n])
        case_facts = await _case_facts(visit, text, ids)
        others = [row for row in queue if row["ids"] != ids]
        # The next one in the order of the queue; after the last one, the first.
        later = [row for row in others if row["id"] < n]
        if others:
            following = f"/inbox/{(later or others)[0]['id']}"
    elif queue:
        visit.following = visit.link(f"/inbox/{queue[0]['id']}")

    names = chain.from_iterable(row["names"] for row in others)
    return {
        "texts": await caller.read(quarantine_store.count_waiting),
        "case": case_facts,
        "following": following,
        "queue": queue[:MAX_SHOWN_ROWS],
        "others": others[:MAX_SHOWN_ROWS],
        "sources": len(set(names)),
        "decided": await _read_decided(visit),
    }


async def _case_facts(
    visit: Visit, text: QuarantinedLesson, ids: Sequence[int]
) -> Document:
    """Return what the page shows of a text and of its case, the texts with `ids`.

    `names` are those that a person may state for the text, and `unstated` all of its
    sources for which nobody vouches.
    """
    caller = visit.caller
    case = await caller.read(quarantine_store.read_entries, ids)
    lesson_ids = await caller.read(counts.lessons_of_texts, ids)
    sources = text.provenance.sources
    stated = await caller.memory.quarantine.believed()
    names = text.provenance.names_to_state(stated)
    return {
        "text": asdict(text),
        "ids": ids,
        "freed": _freed_rows(case),
        "run": _run_of(text),
        "names": names,
        "unstated": names_to_state(sources, stated),
        "unknown": NETWORK_SOURCE in sources,
        "trust": _trust_command(names, caller.scope),
        "frees": await _count_freed(caller, sources, stated=stated, names=names),
        "lesson": lesson_ids[text.id],
        "revocation": await _preview_revocation(visit),
    }


def _freed_rows(case: Case) -> list[Document]:
    """Return every text that the release of a case frees, each once.

    Its `parts` say which of its words are marked.
    """
    texts = chain.from_iterable(entry.texts for entry in case)
    return [
        {"part": freed.part, "text": freed.text, "parts": marked_parts(freed.text)}
        for freed in dict.fromkeys(texts)
    ]


def _trust_command(names: Sequence[str], scope: Scope) -> str:
    """Return the command that states these names; "" if the page must not offer it.

    A name that a page may show as another one is stated in a terminal.
    """
    words = trust_words(names)
    if words[:1] != ["trust"]:
        return ""
    return name_scope(quote_words(["heedful", *words]), scope)


async def _count_freed(
    caller: Caller,
    sources: Sequence[str],
    *,
    stated: frozenset[str],
    names: Sequence[str],
) -> int:
    """Return how many texts of some sources a person would release by stating `names`.

    `stated` are the names that count as stated already.
    """
    if not names:
        return 0
    waiting: list[int] = []
    for source in filter(is_outside, sources):
        waiting += await caller.read(lesson_store.held_of, source)
    freed = await caller.read(
        quarantine_store.only_of_stated, waiting, stated.union(names)
    )
    return len(freed)


async def _preview_revocation(visit: Visit) -> Document | None:
    """Return what the revocation of a source would remove, if the address has one."""
    source = visit.query_text("revoke")
    if not source or not visit.may("approve"):
        return None
    return {
        "source": source,
        "removes": _removed_words(
            await visit.caller.memory.quarantine.revoke(source, dry_run=True)
        ),
    }


def _removed_words(removed: Forgotten) -> str:
    """Return how many rows of each kind a revocation removes, without zeros."""
    counts = [
        counted(value, name.removesuffix("s"))
        for name, value in removed.counts
        if value
    ]
    return ", ".join(counts) or "nothing"


async def _read_decided(visit: Visit) -> list[Document]:
    """Return the newest decisions, each with the texts that may be undone together.

    What one person decided at once is one decision about several texts.
    """
    rulings = await visit.caller.read(exposures.rulings, MAX_READ_ROWS)
    rulings = [ruling for ruling in rulings if ruling["action"] in DECISION_WORDS]
    example_ids = [ruling["record"].get("example", 0) for ruling in rulings]
    texts = {
        text.id: text
        for text in await visit.caller.read(quarantine_store.read_entries, example_ids)
    }

    rows: list[Document] = []
    later_ids: set[int] = set()  # of the texts of later decisions
    groups = groupby(rulings, key=itemgetter("action", "at", "by", "why"))
    for _, group in islice(groups, MAX_SHOWN_ITEMS):
        row = _decision_row(list(group), texts)
        # Only the last decision about a text can be undone.
        row["undo"] = [id for id in row["undo"] if id not in later_ids]
        later_ids.update(text["id"] for text in row["texts"])
        rows.append(row)
    return rows


def _decision_row(
    rulings: Sequence[Fields], texts: Mapping[int, QuarantinedLesson]
) -> Document:
    """Return what a list shows of a decision, which consists of these rulings.

    `texts` has the texts that are still stored, by id. Those that nothing has changed
    since may be undone.
    """
    ruling = rulings[0]
    action = ruling["action"]
    decision = DECISION_WORDS[action]
    if action == "trust" and not ruling["record"]["stated"]:
        decision = "no longer stated"
    # A statement is about names, a revocation about a source.
    subjects = []
    if action in ("trust", "revoke"):
        subjects = [ruling["subject"] for ruling in rulings]
    example_ids = [ruling["record"].get("example", 0) for ruling in rulings]
    ruled_texts = [texts[id] for id in example_ids if id in texts]
    ruled_states = quarantine_store.RULED_STATES.get(action, ())
    return {
        "decision": decision,
        "at": ruling["at"],
        "by": ruling["by"],
        "why": ruling["why"],
        "subjects": subjects,
        "texts": [
            {"id": text.id, "words": text.lesson or text.pattern}
            for text in ruled_texts
        ],
        "undo": [text.id for text in ruled_texts if text.state in ruled_states],
    }


def _names_in(visit: Visit) -> list[str]:
    """Return the names of sources of a form.

    They are a JSON list, percent-encoded, because a page shows hidden characters in
    another way. Raises InvalidInput.
    """
    sent_names = unquote(visit.form_text("names"))
    names: object = None
    with suppress(ValueError, RecursionError):
        names = json.loads(sent_names or "[]")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInput("names", sent_names, "the names of sources, as a JSON list")
    return names


async def _review(visit: Visit, ruling: review.Ruling) -> str:
    """Decide about the texts of a form, but not about those decided before.

    "undo" takes back decisions, and leaves out texts that wait. Returns what was done.
    Raises InvalidInput, NotQuarantined, NotFound.
    """
    caller = visit.caller
    sent_ids = visit.form_text("id")
    parts = sent_ids.split(",")
    if not all(map(is_number, parts)):
        raise InvalidInput("id", sent_ids, "the ids of texts")
    ids = [int(part) for part in parts]
    texts = await caller.read(quarantine_store.read_entries, ids)
    # Only a text that waits can be decided about, and only another one undone.
    must_wait = ruling != "undo"
    fitting = [text.id for text in texts if (text.state == "quarantined") is must_wait]
    open_ids = fitting or ids
    why = visit.form_text("why")
    await review.decide(caller, ruling, open_ids, why)

    number = counted(len(open_ids), "text")
    earlier = len(ids) - len(open_ids)
    note = f" {counted(earlier, 'text')} had been decided before." if earlier else ""
    if ruling == "undo":
        return f"{number} {'waits' if len(open_ids) == 1 else 'wait'} again.{note}"
    visit.session.undo = {"ids": open_ids, "names": ()}
    return f"{number} {quarantine_store.RULING_WORDS[ruling]}.{note}"


async def release(visit: Visit) -> str:
    """Release texts: prompts may have them."""
    return await _review(visit, "release")


async def reject(visit: Visit) -> str:
    """Reject texts: no prompt has them, and they are not stored again."""
    return await _review(visit, "reject")


async def undo(visit: Visit) -> str:
    """Take back what was decided: texts wait again, and names are stated no more."""
    names = _names_in(visit)
    for name in names:
        visit.caller.record("trust.remove", name)
        await visit.caller.memory.quarantine.state(
            name, by=visit.caller.by, remove=True
        )
    notes = [f"No longer stated: {name}." for name in names]
    if visit.form.get("id") or not names:
        notes.append(await _review(visit, "undo"))
    return " ".join(notes)


async def trust(visit: Visit) -> str:
    """State sources by their names, as `heedful trust` does."""
    caller = visit.caller
    why = visit.form_text("why")
    names = _names_in(visit)
    caller.record("trust", ", ".join(names), why=why)
    freed = await caller.memory.quarantine.state(*names, by=caller.by, why=why)
    await caller.setup.embed_soon(caller.scope, since="")
    visit.session.undo = {"ids": freed, "names": names}
    # The next text may be of the same source.
    visit.following = visit.link("/inbox")
    return f"Stated: {', '.join(names)}; {counted(len(freed), 'text')} released."


async def revoke(visit: Visit) -> str:
    """Remove a source and all that derives from it."""
    # The form has the source percent-encoded; see `_names_in`.
    source = unquote(visit.form_text("source"))
    why = visit.form_text("why")
    visit.caller.record("quarantine.revoke", source, why=why)
    removed = await visit.caller.memory.quarantine.revoke(
        source, by=visit.caller.by, why=why
    )
    return f"Removed all of {source}: {_removed_words(removed)}."
