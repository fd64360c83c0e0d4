"""The texts that other memories offered to loops, and how these loops ended.

A row stands for a loop and a source. What is decided first stays: a later offer to the
same loop gets the stored decision, and adds only texts that are new.
"""

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

from heedful.errors import Conflict, InvalidInput, NotFound
from heedful.lessons.lesson import Scope
from heedful.lessons.proof import Cells, Pairs, TrialProof, prove_trial
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    key_of,
    resumable,
)
from heedful.store.exposures import ABANDONED_LOOP_SECONDS

# The end of the name of the loop without texts, where a task has a loop of each kind.
WITHOUT_ENDING = " without"
MAX_LOOP_TEXTS = 1_000  # different texts that one source may offer to one loop


@resumable(result=bool)
def offer(
    db: Db,
    scope: Scope,
    source: str,
    loop: str,
    *,
    texts: Sequence[str],
    shown: bool,
    share: float,
) -> bool:
    """Record that a source offers texts to a loop; return whether to show them.

    `texts` are the texts as they are kept, or their digests. `shown` is what the draw
    says; the decision of an earlier offer takes its place. An offer to a loop that has
    ended is not recorded. Raises InvalidInput.
    """
    key = {**key_of(scope), "source": source, "loop": loop}
    values = {
        **key,
        "shown": shown,
        "share": share,
        "texts": json.dumps(list(dict.fromkeys(texts))),
        "via": db.actor.via,
        "at": time.time(),
    }
    if db.insert_now("trial", values, CONFLICT_SKIP_SQL).rowcount:
        return shown

    (row,) = db.select("shown, texts, ended", "trial", key)
    all_texts = list(dict.fromkeys([*json.loads(row["texts"]), *texts]))
    if row["ended"] is None:
        if len(all_texts) > MAX_LOOP_TEXTS:
            allowed = f"at most {MAX_LOOP_TEXTS:,} for one loop and source"
            raise InvalidInput("number of texts", len(all_texts), allowed)
        db.update("trial", key, {"texts": json.dumps(all_texts)})

    return bool(row["shown"])


@resumable(result=None)
def end(db: Db, scope: Scope, source: str, loop: str, score: int) -> None:
    """Record the result of a loop, in thousandths; the same result again is harmless.

    Raises NotFound if the source offered nothing to the loop, and Conflict if the loop
    ended with another result.
    """
    key = {**key_of(scope), "source": source, "loop": loop}
    rows = db.select("score", "trial", key)
    if not rows:
        where = f"the trial {source!r} of {scope.tenant}/{scope.project}"
        raise NotFound("loop", loop, where, remedy="; offer its texts before it ends")

    (stored_score,) = rows[0]
    if stored_score is None:
        db.update("trial", key, {"score": score, "ended": time.time()})
    elif stored_score != score:
        raise Conflict(
            f"loop {loop!r} ended with the score {stored_score / 1000:g} in the trial "
            f"{source!r}, not {score / 1000:g}; the first result stays"
        )


@resumable(result=None)
def pair(
    db: Db, scope: Scope, source: str, task: str, *, score: int, without: int
) -> None:
    """Record the results of two loops on one task, in thousandths: with and without.

    No draw decided, so neither counts as offered. The first results of a task stay.
    """
    now = time.time()
    row = {
        **key_of(scope),
        "source": source,
        "share": 0.5,
        "texts": "[]",
        "at": now,
        "ended": now,
    }
    first = {**row, "loop": task, "shown": True, "score": score}
    second = {**row, "loop": task + WITHOUT_ENDING, "shown": False, "score": without}
    db.insert("trial", first, CONFLICT_SKIP_SQL)
    db.insert("trial", second, CONFLICT_SKIP_SQL)


class TrialEvidence(NamedTuple):
    """How often each result occurred, in `pairs` of loops too, and the open loops."""

    cells: Cells
    pending: int
    pairs: Pairs


def evidence(db: Db, scope: Scope, source: str) -> TrialEvidence:
    """Return how the loops of a trial ended."""
    values = {
        "source": source,
        "day": ABANDONED_LOOP_SECONDS,
        "now": time.time(),
    }
    results = db.all("trial_results", scope, **values)
    cells = {
        (row["share"], bool(row["shown"]), row["score"] / 1000): row["n"]
        for row in results
    }
    (pending,) = db.all("trial_pending", scope, **values)
    pairs = {
        (row["score"] / 1000, row["without"] / 1000): row["n"]
        for row in db.all("trial_pairs", scope, source=source, suffix=WITHOUT_ENDING)
    }
    return TrialEvidence(cells, int(pending["n"]), pairs)


def proven(db: Db, scope: Scope) -> tuple[TrialProof, ...]:
    """Return what each trial proves, in the order of the names of their sources."""
    names = sources(db, scope)
    if not names:
        return ()

    proofs = []
    for name in names:
        results = evidence(db, scope, name)
        proofs.append(prove_trial(name, results.cells, results.pending, results.pairs))
    return tuple(proofs)


def offered(db: Db, scope: Scope, source: str, loop: str) -> tuple[str, ...]:
    """Return what is kept of the texts that a source offered to a loop."""
    key = {**key_of(scope), "source": source, "loop": loop}
    rows = db.select("texts", "trial", key)
    return tuple(json.loads(rows[0]["texts"])) if rows else ()


def sources(db: Db, scope: Scope) -> list[str]:
    """Return the names of the sources on trial, in order of the alphabet."""
    return [row["source"] for row in db.all("trial_sources", scope)]
