"""Errors that were corrected, under the names that callers of earlier systems know."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import replace
from typing import Any

import pytest

from heedful.compat.mistakes import (
    Reflection,
    compute_error_signature,
    create_reflection_from_evaluation,
    has_seen_error_before,
    persist_reflection,
    retrieve_similar_reflections,
)
from heedful.errors import InvalidInput, StoreError
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.testing import FixedEmbedder
from tests.engines import IN_SOAK, opened

CONFLICT = {"status": "conflict", "conflict_reason": "The report says 7, the answer 9."}
UNVERIFIED = {"status": "unverified", "claim_text": "Sales doubled " + "x" * 100}
FINE = {"status": "verified", "claim_text": "Sales rose."}
ONE = Reflection(
    error_type="conflict",
    error_signature="abc123",
    content="Detected conflict with what was stored about the database",
    context="choosing a database " + "y" * 200,
    query="Which database do we use? " + "x" * 200,
    iteration=2,
    quality_delta=0.15,
)


pytestmark = IN_SOAK


@pytest.fixture
def memory(tmp_path):
    with opened(tmp_path / "a.db") as store:
        yield Memory(store, Scope("t", "p"))


def do(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def made(**given: Any) -> Reflection | None:
    arguments: dict[str, Any] = {
        "critique": "Fine.",
        "verification_results": [],
        "query": "How much was sold?",
        "context": "the quarterly report",
        "iteration": 2,
        "quality_before": 0.5,
        "quality_after": 0.5,
    }
    return create_reflection_from_evaluation(**{**arguments, **given})


@pytest.mark.parametrize(
    ("given", "error_type", "content", "delta"),
    [
        (
            {"verification_results": [UNVERIFIED, FINE, CONFLICT], "critique": "It CONFLICTS."},
            "conflict",
            "Detected conflict: The report says 7, the answer 9.",
            0.0,
        ),
        (
            {"verification_results": [FINE, UNVERIFIED], "critique": "It CONFLICTS."},
            "unverified_claim",
            f"Made unverified claim about: {UNVERIFIED['claim_text'][:100]}",
            0.0,
        ),
        (
            {"critique": "It CONFLICTS. " + "x" * 200, "quality_after": 0.9},
            "factual_error",
            ("It CONFLICTS. " + "x" * 200)[:200],
            0.4,
        ),
        (
            {"critique": "Cite. " + "x" * 200, "quality_after": 0.75},
            "quality_improvement",
            "Quality improved by 0.25: " + ("Cite. " + "x" * 200)[:150],
            0.25,
        ),
        (
            {"verification_results": [{"status": "conflict"}]},
            "conflict",
            "Detected conflict: Unknown",
            0.0,
        ),
    ],
)
def test_what_an_evaluation_teaches_in_the_order_of_its_types(given, error_type, content, delta):
    assert made(**given) == Reflection(
        error_type,
        hashlib.sha256(f"{error_type}:{content.lower().strip()}".encode()).hexdigest()[:16],
        content,
        "the quarterly report",
        "How much was sold?",
        2,
        delta,
    )


def test_a_signature_is_of_type_and_text_without_case_and_ends():
    digest = hashlib.sha256(b"conflict:the same").hexdigest()[:16]
    assert compute_error_signature("conflict", "  The SAME\n") == digest
    assert compute_error_signature("factual_error", "the same") != digest


def test_one_that_changed_nothing_is_skipped_and_the_log_says_so(memory, caplog):
    caplog.set_level(logging.INFO, "heedful")
    assert do(persist_reflection(ONE, memory, changed_behavior=False)) is None
    assert do(memory.count()) == 0
    assert caplog.messages == ["skipped (did not change behaviour)"]


def test_the_same_again_is_counted_and_has_the_same_id(memory, caplog):
    async def thrice() -> list[int | None]:
        return [await persist_reflection(ONE, memory, changed_behavior=True) for _ in range(3)]

    caplog.set_level(logging.INFO, "heedful")
    first, *again = do(thrice())
    assert isinstance(first, int)
    assert again == [first, first]
    assert caplog.messages == [
        f"stored: lesson {first}",
        f"duplicate: lesson {first}, seen 2 times",
        f"duplicate: lesson {first}, seen 3 times",
    ]
    seen = do(has_seen_error_before("abc123", memory))
    assert (bool(seen), seen.count) == (True, 3)


def test_an_entry_has_its_shape_and_cuts_query_and_context(memory):
    id = do(persist_reflection(ONE, memory, True))
    assert do(retrieve_similar_reflections("abc123", memory)) == [
        {
            "id": id,
            "content": ONE.content,
            "rationale": f"Self-correction during: {ONE.context[:100]}",
            "category": "reflection",
            "tags": ["reflection", "self-correction", "conflict", "sig:abc123"],
            "context": {
                "error_signature": "abc123",
                "original_query": ONE.query[:200],
                "iteration_count": 2,
                "quality_improvement": 0.15,
                "reflection_context": ONE.context[:200],
            },
            "seen": 1,
        }
    ]
    (whole,) = do(memory.recall("Which database do we use?"))
    assert (whole.example.task, whole.example.context) == (ONE.query, ONE.context)


def test_what_is_similar_is_of_the_signature_and_of_the_type_five_at_most(memory):
    async def stored() -> tuple[list[str], list[str], int, int]:
        for n in range(7):
            content = f"{'abcdefg'[n]} is another conflict"
            await persist_reflection(replace(ONE, content=content), memory, True)
        other = replace(ONE, error_type="factual_error", content="It CONFLICTS.")
        await persist_reflection(other, memory, True)
        found = await retrieve_similar_reflections("abc123", memory)
        typed = await retrieve_similar_reflections("abc123", memory, 9, "factual_error")
        none = await retrieve_similar_reflections("abc", memory)
        all_ = await retrieve_similar_reflections("abc123", memory, limit=9)
        return [o["content"] for o in found], [o["content"] for o in typed], len(none), len(all_)

    found, typed, none, all_ = do(stored())
    letters = ["It CONFLICTS.", *(f"{letter} is another conflict" for letter in "gfed")]
    assert (found, typed, none, all_) == (letters, ["It CONFLICTS."], 0, 8)


def test_texts_of_one_pattern_are_one_lesson_that_each_of_their_signatures_finds(memory):
    texts = [f"The report says {n}, the answer {n + 1}." for n in range(3)]
    signatures = [compute_error_signature("conflict", text) for text in texts]

    async def stored() -> set[int | None]:
        made = [
            replace(ONE, content=text, error_signature=exact)
            for text, exact in zip(texts, signatures, strict=True)
        ]
        return {await persist_reflection(one, memory, True) for one in [*made, *made]}

    (id,) = do(stored())
    for exact in signatures:
        assert do(has_seen_error_before(exact, memory)).count == 6
        (entry,) = do(retrieve_similar_reflections(exact, memory))
        assert (entry["id"], entry["tags"][-3:]) == (id, [f"sig:{one}" for one in signatures])


def test_a_secret_is_neither_stored_nor_cut_in_half(memory):
    key = "AKIA" + "IOSFODNN7EXAMPLE"
    told = replace(ONE, content=f"x {key}", query="x" * 190 + f" {key}", context=f"y {key}")
    do(persist_reflection(told, memory, True))
    assert "AKIA" not in str(do(retrieve_similar_reflections("abc123", memory)))


LIKE = "Detected conflict with what was written about the database"


@pytest.mark.parametrize(("threshold", "said"), [(0.85, True), (0.95, False)])
def test_a_merge_is_suggested_from_a_similarity_on(memory, caplog, threshold, said):
    memory.embedder = FixedEmbedder()
    caplog.set_level(logging.INFO, "heedful")

    async def stored() -> list[int | None]:
        return [
            await persist_reflection(one, memory, True, threshold)
            for one in (ONE, replace(ONE, content=LIKE), ONE)
        ]

    first, second, again = do(stored())
    assert (first, again) == (first, first)
    told = f"lesson {second} is like lesson {first} (0.89): they may be merged"
    assert [one for one in caplog.messages if "like" in one] == ([told] if said else [])


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((replace(ONE, iteration=-1), True, 0.5), "iteration"),
        ((replace(ONE, quality_delta=float("nan")), True, 0.5), "quality_delta"),
        ((replace(ONE, content=7), True, 0.5), "content"),  # type: ignore[arg-type]
        ((ONE, True, 1.5), "similarity_threshold"),
    ],
)
def test_bad_input_is_named(memory, arguments, field):
    one, changed, threshold = arguments
    with pytest.raises(InvalidInput) as caught:
        do(persist_reflection(one, memory, changed, threshold))
    assert caught.value.field == field
    assert do(memory.count()) == 0


@pytest.mark.sqlite
def test_a_store_that_fails_raises_and_never_says_not_seen(tmp_path):
    (tmp_path / "a.db").write_bytes(b"no database" * 500)
    with opened(tmp_path / "a.db") as store:
        memory = Memory(store)
        for asked in (
            has_seen_error_before("abc123", memory),
            retrieve_similar_reflections("abc123", memory),
            persist_reflection(ONE, memory, True),
        ):
            with pytest.raises(StoreError):
                do(asked)
