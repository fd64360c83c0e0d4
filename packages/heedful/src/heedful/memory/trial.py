"""Trial: does a memory that heedful did not make help?

Another memory, a retriever, a folder of skills or a section of a prompt offers texts to
a loop. A draw decides whether the loop gets them, and this is stored before the texts
are returned; the end of the loop is the result. What is decided first stays: a later
offer to the same loop gets the stored decision, and adds only texts that are new. From
draws and results, `prove` computes what the texts add, with an interval that is valid
however often somebody looks. The texts are external: they are never learnt, and no
recall finds them.
"""

import asyncio
import json
import time
from collections.abc import Sequence

from heedful.errors import Conflict, NotFound
from heedful.lessons.holdout import is_source_withheld
from heedful.lessons.proof import Cells, Pairs, TrialProof, prove_trial
from heedful.lessons.scope import (
    DAY_SECONDS,
    DEFAULT_HOLDOUT_SHARE,
    Scope,
    check_holdout,
    short_digest,
)
from heedful.loop.record import thousandths
from heedful.store import open_store
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    key_of,
    resumable,
    storable,
)
from heedful.store.store import Store
from heedful.validation import check_name, check_sequence, check_share, require

# The end of the name of the loop without texts, where a task has a loop of each kind.
WITHOUT_ENDING = " without"
MAX_LOOP_TEXTS = 1_000  # different texts that one source may offer to one loop


class Trial:
    """A trial of the texts that `source` adds to prompts, such as "mem0".

    `store` is a Store or its name. `holdout` is the share of loops from which the texts
    are withheld; it is below 1, and 0 withholds nothing. The store keeps digests of the
    texts; with `keep_texts` it keeps the texts, without secrets. Raises InvalidInput.
    """

    def __init__(
        self,
        source: str,
        store: Store | str = "heedful.db",
        scope: Scope | None = None,
        *,
        holdout: float = DEFAULT_HOLDOUT_SHARE,
        keep_texts: bool = False,
    ) -> None:
        _check_name("source", source)
        check_holdout(holdout)
        self.source = source
        self.store: Store = open_store(store)
        self.scope: Scope = scope or Scope()
        self.holdout = holdout
        self.keep_texts = keep_texts

    async def offer(self, loop: str, texts: Sequence[str]) -> list[str]:
        """Return the texts that the loop is to be shown: all of them, or none.

        A draw decides, by the names of scope, loop and source. The decision is stored
        before this returns, and later offers to the same loop get it, too. Blank texts
        are left out. A loop that is offered no text does not count. Raises InvalidInput
        and StoreError.
        """
        _check_name("loop", loop)
        check_sequence("texts", texts, str, "a list of texts")
        count = len(texts)
        allowed = f"at most {MAX_LOOP_TEXTS:,}"
        require(count <= MAX_LOOP_TEXTS, "number of texts", count, allowed)

        offered = [text for text in texts if text.strip()]
        keep = storable if self.keep_texts else short_digest
        is_withheld = is_source_withheld(
            self.scope.seed, loop, self.source, self.holdout
        )
        is_shown = await self.store.write(
            self.scope,
            offer,
            self.source,
            loop,
            texts=[keep(text) for text in offered],
            shown=not is_withheld,
            share=self.holdout,
        )
        return offered if is_shown else []

    async def end(
        self, loop: str, passed: bool | None = None, *, score: float | None = None
    ) -> None:
        """Record how a loop ended: whether it `passed`, or else its `score`, 0..1.

        The same result again is harmless. A loop that has no result one day after its
        first offer counts as not passed. Raises InvalidInput, NotFound for a loop
        without an offer, Conflict if it ended with another result, and StoreError.
        """
        _check_name("loop", loop)
        if score is None:
            allowed = "True or False; or pass a score, 0..1"
            require(isinstance(passed, bool), "passed", passed, allowed)
            score = float(passed or 0)
        else:
            require(passed is None, "passed", passed, "left out if there is a score")
            check_share("score", score)

        await self.store.write(self.scope, end, self.source, loop, thousandths(score))

    async def offered(self, loop: str) -> tuple[str, ...]:
        """Return the digests of the texts that were offered to a loop, or the texts.

        The digest is the first 16 hex digits of the SHA-256. The result is empty for an
        unknown loop. Raises StoreError.
        """
        return await self.store.read(self.scope, offered, self.source, loop)

    async def prove(self) -> TrialProof:
        """Return whether the texts help, with intervals. Raises StoreError."""
        cells, pending, pairs = await self.store.read(self.scope, evidence, self.source)
        # With many different holdouts this takes seconds.
        return await asyncio.to_thread(prove_trial, self.source, cells, pending, pairs)


def _check_name(field: str, name: str) -> None:
    """Raise InvalidInput unless `name` is a name that is not blank."""
    check_name(field, name)
    require(name.strip(), field, name, "a text that is not blank")


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

    `texts` are what is stored of the texts: their digests, or they themselves. `shown`
    is what the draw says now, with the probability `share` to withhold them; but if the
    loop had an offer before, its decision stays. Texts for a loop that has ended are
    not added. Raises InvalidInput if one loop is offered too many.
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
    # No row is inserted if the loop has one, from an earlier offer.
    if db.insert_now("trial", values, CONFLICT_SKIP_SQL).rowcount:
        return shown

    (row,) = db.select("shown, texts, ended", "trial", key)
    all_texts = list(dict.fromkeys([*json.loads(row["texts"]), *texts]))
    if row["ended"] is None:
        require(
            len(all_texts) <= MAX_LOOP_TEXTS,
            "number of texts",
            len(all_texts),
            f"at most {MAX_LOOP_TEXTS:,} for one loop and source",
        )
        db.update("trial", key, {"texts": json.dumps(all_texts)})

    return bool(row["shown"])


@resumable(result=None)
def end(db: Db, scope: Scope, source: str, loop: str, score: int) -> None:
    """Record how a loop ended: its `score`, in thousandths from 0 to 1,000.

    The same score again is harmless. Raises NotFound if the source offered nothing to
    the loop, and Conflict if the loop ended with another result.
    """
    key = {**key_of(scope), "source": source, "loop": loop}
    rows = db.select("score", "trial", key)
    if not rows:
        raise NotFound(
            "loop",
            loop,
            f"the trial {source!r} of {scope}",
            remedy="; offer its texts before it ends",
        )

    stored_score = rows[0]["score"]
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
    """Record two results on one task: of a loop with the texts, and of one without.

    `score` is that with the texts of the source, `without` the other, in thousandths.
    Both rows are stored without any text, which tells them from loops for which a draw
    decided. If the task has results already, these stay.
    """
    now = time.time()
    common = {
        **key_of(scope),
        "source": source,
        "share": 0.5,
        "texts": "[]",
        "at": now,
        "ended": now,
    }
    for loop, is_shown, loop_score in (
        (task, True, score),
        (task + WITHOUT_ENDING, False, without),
    ):
        row = {**common, "loop": loop, "shown": is_shown, "score": loop_score}
        db.insert("trial", row, CONFLICT_SKIP_SQL)


def evidence(db: Db, scope: Scope, source: str) -> tuple[Cells, int, Pairs]:
    """Return the results of a trial: its cells, its open loops, and its pairs.

    A cell counts the loops with the same share, the same draw (with the texts or
    without) and the same score. The number of open loops follows: they have no result
    yet. The pairs count the tasks by their two scores, with the texts and without.
    """
    rows = db.all(
        "trial_results", scope, source=source, day=DAY_SECONDS, now=time.time()
    )
    cells = {
        (row["share"], bool(row["shown"]), row["score"] / 1000): row["n"]
        for row in rows
        if row["score"] is not None
    }
    pending = sum(row["n"] for row in rows if row["score"] is None)
    pairs = {
        (row["score"] / 1000, row["without"] / 1000): row["n"]
        for row in db.all("trial_pairs", scope, source=source, suffix=WITHOUT_ENDING)
    }
    return cells, pending, pairs


def proven(db: Db, scope: Scope) -> tuple[TrialProof, ...]:
    """Return whether the texts of each source help, in the order of their names.

    Each source that offered texts in this scope has one trial.
    """
    proofs = []
    sources = db.select("distinct source", "trial", key_of(scope), "order by source")
    for row in sources:
        cells, pending, pairs = evidence(db, scope, row["source"])
        proofs.append(prove_trial(row["source"], cells, pending, pairs))
    return tuple(proofs)


def offered(db: Db, scope: Scope, source: str, loop: str) -> tuple[str, ...]:
    """Return what is kept of the texts that a source offered to a loop."""
    key = {**key_of(scope), "source": source, "loop": loop}
    rows = db.select("texts", "trial", key)
    return tuple(json.loads(rows[0]["texts"])) if rows else ()
