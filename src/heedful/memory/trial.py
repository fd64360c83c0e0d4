"""Trial: does a memory that heedful did not make help?

Another memory, a retriever, a folder of skills or a section of a prompt offers texts to
a loop. A draw decides whether the loop gets them, and this is stored before the texts
are returned; the end of the loop is the result. From both, `prove` computes what the
texts add, with an interval that is valid however often somebody looks. The texts are
external: they are never learnt, and no recall finds them.
"""

import asyncio
from collections.abc import Sequence

from heedful.lessons.holdout import is_source_withheld
from heedful.lessons.lesson import (
    DEFAULT_HOLDOUT_SHARE,
    Scope,
    check_holdout,
    short_digest,
)
from heedful.lessons.proof import TrialProof, prove_trial
from heedful.loop.record import thousandths
from heedful.redact import redact
from heedful.store import open_store, trials
from heedful.store.connection import storable
from heedful.store.store import Store
from heedful.validation import MAX_NAME_CHARS, check_sequence, check_share, require


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
        self.store: Store = store if isinstance(store, Store) else open_store(store)
        self.scope: Scope = scope or Scope()
        self.holdout = holdout
        self.keep_texts = keep_texts

    async def offer(self, loop: str, texts: Sequence[str]) -> list[str]:
        """Return the texts that the loop is to be shown: all of them, or none.

        What a loop gets depends only on scope, loop and source, and is stored before
        this returns; later offers to the same loop get the same decision. Blank texts
        are left out. A loop that is offered no text does not count. Raises InvalidInput
        and StoreError.
        """
        _check_name("loop", loop)
        check_sequence("texts", texts, str, "a list of texts")
        allowed = f"at most {trials.MAX_LOOP_TEXTS:,}"
        is_short = len(texts) <= trials.MAX_LOOP_TEXTS
        require(is_short, "number of texts", len(texts), allowed)

        offered = [text for text in texts if text.strip()]
        keep = storable if self.keep_texts else short_digest
        seed = f"{self.scope.tenant}\0{self.scope.project}"
        is_withheld = is_source_withheld(seed, loop, self.source, self.holdout)
        is_shown = await self.store.write(
            self.scope,
            trials.offer,
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
        """Record how a loop ended: whether it passed, or its score, 0..1.

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

        await self.store.write(
            self.scope, trials.end, self.source, loop, thousandths(score)
        )

    async def offered(self, loop: str) -> tuple[str, ...]:
        """Return the digests of the texts that were offered to a loop, or the texts.

        The digest is the first 16 hex digits of the SHA-256. The result is empty for an
        unknown loop. Raises StoreError.
        """
        return await self.store.read(self.scope, trials.offered, self.source, loop)

    async def prove(self) -> TrialProof:
        """Return whether the texts help, with intervals. Raises StoreError."""
        results = await self.store.read(self.scope, trials.evidence, self.source)
        # With many different holdouts this takes seconds.
        return await asyncio.to_thread(
            prove_trial,
            self.source,
            results.cells,
            results.pending,
            results.pairs,
        )


def _check_name(field: str, name: object) -> None:
    """Raise InvalidInput unless `name` is short printable text without a secret."""
    allowed = f"1 to {MAX_NAME_CHARS} printable characters without a secret"
    is_text = isinstance(name, str) and name.isprintable() and bool(name.strip())
    is_name = is_text and len(str(name)) <= MAX_NAME_CHARS
    require(is_name and redact(str(name)) == name, field, name, allowed)
