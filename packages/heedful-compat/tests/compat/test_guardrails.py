"""Loop guardrails under the names that callers of earlier systems rely on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heedful import Memory
from heedful.drive.report import open_loop
from heedful.errors import AttemptTaken, Conflict, InvalidInput, NotFound
from heedful.lessons.lesson import Scope
from heedful.loop.policies import orchestrator
from heedful.loop.stop import MaxAttempts
from heedful.store import loops as loop_store
from heedful.testing import ScriptedModel
from heedful.validation import Document
from heedful_compat.guardrails import (
    FATIGUE_CONFIG,
    RERUN_CONFIG,
    GuardedLoops,
    LoopGuardrails,
    calculate_fatigue_score,
    detect_bias_repetition,
    enforce_rerun_limits,
    get_guardrails_status,
    get_loop_trace,
    log_rerun_reasoning,
    make_rerun_decision,
    override_guardrails,
    process_loop_completion,
    process_loop_reflection,
    track_bias,
)
from tests.compat import shapes
from tests.compat.shapes import FIRST, GOOD, POOR, TAG
from tests.tables import cases


async def complete(
    store: Any, name: str, fields: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Report the loop `name` as done, with these fields; return the answer."""
    answer: dict[str, Any] = await process_loop_completion(
        name, "done", "SAGE", store=store, **{**(fields or {}), **more}
    )
    return answer


async def rerun_times(
    store: Any, name: str, count: int, **fields: Any
) -> list[dict[str, Any]]:
    """The answers to a first try and so many reruns, each under the name that it was
    given.
    """
    answers = [await complete(store, name, POOR | fields)]
    for _ in range(count):
        name = answers[-1]["decision_result"]["new_loop_id"]
        answers.append(await complete(store, name, POOR | fields))
    return answers


# -- the answer


WORDS = "The summary claims growth without a source; name the figure and its source."


@pytest.mark.parametrize("place", ["loop_001", "loop_001_r1"])
@cases(
    ("reason", "detail", "expected"),
    {
        "the reason is a sentence": (WORDS, None, [WORDS]),
        "the detail is": ("alignment_threshold_not_met", WORDS, [WORDS]),
        "both are those of the answer": (
            "alignment_threshold_not_met",
            "Triggered by alignment, drift",
            [],
        ),
    },
)
async def test_the_reason_of_a_rerun_that_passed_is_a_rule_in_those_words(
    store, place, reason, detail, expected
):
    memory = Memory(store)
    loops = GuardedLoops(store, memory=memory)
    await complete(loops, "loop_001", FIRST | {"bias_tags": []})
    triggers = ["alignment", "drift"]
    await log_rerun_reasoning(place, triggers, reason, detail, store=loops)
    await complete(loops, "loop_001_r1", GOOD, summary="It is 4 % (report, page 3).")
    matches = await memory.recall("Sum up", kind="strategy")
    assert [match.lesson for match in matches] == expected
    prompt = memory.render(await memory.recall("Sum up"), form="text")
    assert all(words in prompt for words in expected)


@pytest.mark.parametrize("status", ["pending", "Done", ""])
async def test_another_status_than_done_is_an_error(store, status):
    answer = await process_loop_completion("loop_001", status, store=store, **POOR)
    assert answer == {
        "status": "error",
        "message": "Invalid reflection status. Must be 'done'.",
        "loop_id": "loop_001",
    }
    with pytest.raises(NotFound):
        await get_guardrails_status("loop_001", store=store)


# -- names


async def test_reruns_end_at_their_limit_and_each_has_its_name(store):
    answers = await rerun_times(store, "loop_001", count=3)
    decisions = [decision["decision_result"] for decision in answers]
    assert [decision["decision"] for decision in decisions] == [
        "rerun",
        "rerun",
        "rerun",
        "finalize",
    ]
    names = ["loop_001_r1", "loop_001_r2", "loop_001_r3", None]
    assert [decision["new_loop_id"] for decision in decisions] == names
    assert {decision["original_loop_id"] for decision in decisions} == {"loop_001"}
    assert [decision["rerun_count"] for decision in decisions] == [1, 2, 3, 3]
    assert [decision["rerun_number"] for decision in decisions] == [1, 2, 3, 3]
    last = decisions[-1]
    assert last["force_finalize"] is True
    assert last["rerun_reason"] == "max_reruns_reached"
    assert (
        last["rerun_reason_detail"] == "Forced finalization due to max_reruns_reached"
    )


# The scores of a loop's runs, by name; the second is the best.
RUNS = {
    "loop_001": (0.6, 0.4),
    "loop_001_r1": (0.74, 0.26),
    "loop_001_r2": (0.5, 0.5),
    "loop_001_r3": (0.4, 0.6),
}


async def complete_runs(store: Any) -> list[dict[str, Any]]:
    """The answers to the runs of a loop that ends at its limit of reruns."""
    return [
        await complete(store, name, alignment_score=alignment, drift_score=drift)
        for name, (alignment, drift) in RUNS.items()
    ]


@pytest.mark.parametrize("name", RUNS)
async def test_the_status_of_a_run_has_the_scores_of_that_run(store, name):
    await complete_runs(store)
    status = (await get_guardrails_status(name, store=store))["guardrails_status"]
    assert (status["alignment_score"], status["drift_score"]) == RUNS[name]
    assert status["rerun_count"] == 3
    assert status["force_finalize"] is True


async def test_a_run_that_is_only_requested_has_no_scores(store):
    await complete(store, "loop_001", POOR)
    answer = await get_guardrails_status("loop_001_r1", store=store)
    shapes.check_shape(answer, shapes.STATUS)
    status = answer["guardrails_status"]
    assert status["alignment_score"] is None
    assert status["summary_valid"] is False
    assert status["rerun_count"] == 1


@pytest.mark.parametrize("name", RUNS)
async def test_a_repeated_completion_has_the_reflection_of_its_run(store, name):
    answers = dict(zip(RUNS, await complete_runs(store), strict=True))
    repeated = await complete(store, name)
    assert repeated["reflection_result"] == answers[name]["reflection_result"]
    assert repeated["decision_result"] == answers["loop_001_r3"]["decision_result"]


async def test_a_forced_end_names_the_best_run(store):
    *earlier, last = await complete_runs(store)
    assert last["decision_result"]["best_loop_id"] == "loop_001_r1"
    assert all("best_loop_id" not in item["decision_result"] for item in earlier)


REASONED = (
    '{"reason": "The summary leaves out the costs.", "biases": [BIAS], '
    '"alignment": 0.6, "drift": 0.4, "summary_valid": true, "confidence": 0.8}'
)


@cases(
    ("bias", "tags"),
    {
        "its reason is no bias": ("", []),
        "a bias that it names is one": (
            '{"tag": "overconfidence", "severity": 0.6, "quote": ""}',
            ["overconfidence"],
        ),
    },
)
async def test_what_a_judge_repeats_in_other_loops(store, bias, tags):
    judge = ScriptedModel(REASONED.replace("BIAS", bias), forever=True)
    loops = GuardedLoops(store=store, judge=judge)
    answer: Document = {}
    for quarter in (1, 2, 3):
        answer = await complete(
            loops, f"q{quarter}", summary=f"Sales rose in quarter {quarter}."
        )
    reflected = answer["reflection_result"]
    assert reflected["bias_echo"] is bool(tags)
    assert reflected["repeated_tags"] == tags
    assert answer["decision_result"]["force_finalize"] is bool(tags)


async def test_a_reason_that_a_judge_repeats_in_a_loop_is_no_bias(store):
    judge = ScriptedModel(REASONED.replace("BIAS", ""), forever=True)
    loops = GuardedLoops(store=store, judge=judge)
    name = "q1"
    answer: Document = {}
    for draft in (1, 2, 3):
        answer = await complete(loops, name, summary=f"Draft {draft} on sales.")
        name = answer["decision_result"]["new_loop_id"]
    assert answer["reflection_result"]["repetition_counts"] == {}
    assert answer["decision_result"]["decision"] == "rerun"


async def test_a_name_that_another_loop_has_is_not_given_to_a_rerun(store):
    await complete(store, "a_r1", GOOD)
    first = (await complete(store, "a", POOR))["decision_result"]
    assert first["new_loop_id"] == "a__r1"
    second = (await complete(store, "a__r1", POOR))["decision_result"]
    assert second["original_loop_id"] == "a"
    assert second["new_loop_id"] == "a_r2"
    assert (await complete(store, "a_r1", GOOD))["decision_result"][
        "decision"
    ] == "finalize"
    assert (await get_loop_trace("a_r2", store=store))["rerun_of"] == "a__r1"


# -- what is reported


@cases(
    "other",
    {
        "output": {"output": "more"},
        "alignment": {"alignment_score": 0.73},
        "severity of a bias": {"bias_tags": [{**TAG, "severity": 0.7}]},
    },
)
async def test_another_completion_of_the_same_loop_is_refused(store, other):
    await complete(store, "loop_001", FIRST)
    with pytest.raises(AttemptTaken):
        await complete(store, "loop_001", FIRST | other)


@cases(
    ("fields", "kept"),
    {
        "an output": ({"output": "It is."}, "It is."),
        "a summary": ({"summary": "Fine."}, "Fine."),
        "both": (
            {"output": "It is.", "summary": "Fine."},
            '{"output": "It is.", "summary": "Fine."}',
        ),
    },
)
async def test_what_a_loop_answered_is_kept(store, fields, kept):
    await complete(store, "loop_001", POOR | fields)
    stored_loop = await store.read(Scope(), loop_store.read, "loop_001")
    assert stored_loop.loop.attempts[0].candidate.text == kept


async def test_another_task_is_refused_and_a_rerun_may_leave_it_out(store):
    await complete(store, "loop_001", FIRST)
    with pytest.raises(Conflict, match="another task"):
        await complete(store, "loop_001_r1", FIRST | {"task": "Translate"})
    await complete(store, "loop_001_r1", POOR)


async def test_a_bias_without_a_tag_is_refused(store):
    with pytest.raises(InvalidInput) as caught:
        await complete(store, "loop_001", POOR, bias_tags=[{"severity": 1}])
    assert caught.value.field == "tag"


async def test_fields_of_a_bias_tag_that_are_not_stored_are_named(store, caplog):
    tags = [{**TAG, "source": "a reviewer"}]
    warnings = ["ignored: 'source' is not a field of a bias tag (tag, severity)"]
    assert (await complete(store, "loop_001", POOR, bias_tags=tags))[
        "warnings"
    ] == warnings
    tracked = await track_bias("loop_002", tags, store=store)
    assert tracked["warnings"] == warnings
    repetition = await detect_bias_repetition("loop_003", tags, store=store)
    assert repetition["warnings"] == warnings
    assert caplog.messages == [f"heedful: {warning}" for warning in warnings] * 3


# -- limits of one loop


async def test_a_loop_may_have_its_own_limit_of_reruns(store):
    limit = np.int64(1)
    first = (await complete(store, "loop_001", POOR, max_reruns=limit))[
        "decision_result"
    ]
    assert first["max_reruns"] == 1
    last = (await complete(store, first["new_loop_id"], POOR))["decision_result"]
    assert last["decision"] == "finalize"
    assert last["rerun_reason"] == "max_reruns_reached"
    other = (await complete(store, "loop_002", POOR))["decision_result"]
    assert other["max_reruns"] == 3


@pytest.mark.both_nightly
async def test_a_later_completion_may_change_the_limit_of_its_loop(store, monkeypatch):
    first = (await complete(store, "loop_001", POOR))["decision_result"]
    second = await complete(store, first["new_loop_id"], POOR, max_reruns=1)
    assert second["decision_result"]["max_reruns"] == 1
    assert second["decision_result"]["decision"] == "finalize"
    monkeypatch.setitem(RERUN_CONFIG, "max_reruns", 5)
    limits = await enforce_rerun_limits("loop_001", store=store)
    assert limits["max_reruns"] == 1


async def test_a_loop_opened_with_its_own_policy_keeps_its_limit(store):
    await open_loop("loop_001", "Sum up", policy=orchestrator, store=store)
    assert (await complete(store, "loop_001", POOR, max_reruns=3))[
        "status"
    ] == "success"
    with pytest.raises(Conflict, match="its own"):
        await complete(store, "loop_001_r1", POOR, max_reruns=7)


# -- scores that are judged


JUDGED = (
    '{"reason": "fine", "biases": [{"tag": "overconfidence", "severity": 0.6, '
    '"quote": ""}],'
    ' "alignment": 0.9, "drift": 0.1, "summary_valid": VALID, "confidence": 0.8}'
)


@cases(
    ("valid", "decision"),
    {"a valid summary": (True, "finalize"), "an invalid summary": (False, "rerun")},
)
async def test_a_model_judges_in_all_roles(store, valid, decision):
    text = JUDGED.replace("VALID", str(valid).lower())
    loops = GuardedLoops(store=store, judge=ScriptedModel(text, forever=True))
    fields = {
        "summary": "All is well.",
        "output": "It is.",
        "goal": "Be kind",
        "task": "Sum up",
    }
    answer = await complete(loops, "loop_001", fields)
    shapes.check_shape(answer, shapes.COMPLETED)
    assert await complete(loops, "loop_001", fields) == answer
    reflected = answer["reflection_result"]
    assert reflected["alignment_score"] == 0.9
    assert reflected["drift_score"] == 0.1
    assert reflected["summary_valid"] is valid
    tags = reflected["agent_results"]["pessimist"]["bias_analysis"]["bias_tags_detail"]
    assert tags == [TAG]
    assert answer["decision_result"]["decision"] == decision


async def test_where_nobody_can_judge_it_is_said_what_to_do_and_nothing_is_stored(
    store,
):
    judge = ScriptedModel()
    for loops, fields, field, cure in (
        (
            store,
            {"summary": "All is well."},
            "alignment_score",
            "alignment_score, drift_score",
        ),
        (
            store,
            {"output": "It is.", "alignment_score": 0.9},
            "drift_score",
            "HEEDFUL_JUDGE",
        ),
        (store, {"bias_tags": [TAG]}, "alignment_score", "heedful model judge"),
        (
            GuardedLoops(store=store, judge=judge),
            {"drift_score": 0},
            "alignment_score",
            "an output",
        ),
    ):
        with pytest.raises(InvalidInput, match=cure) as caught:
            await complete(loops, "loop_001", fields)
        assert caught.value.field == field
    assert judge.prompts == []
    with pytest.raises(NotFound):
        await get_guardrails_status("loop_001", store=store)


# -- the parts


@cases(
    ("max_reruns", "reached"),
    {"three reruns allowed": (3, False), "no rerun allowed": (0, True)},
)
async def test_a_loop_that_is_unknown_has_had_no_rerun(store, max_reruns, reached):
    loops = GuardedLoops(store=store, settings=LoopGuardrails(max_reruns=max_reruns))
    limits = await enforce_rerun_limits(
        "loop_001", override_max_reruns=True, override_by="ops", store=loops
    )
    shapes.check_shape(limits, shapes.LIMITS)
    assert limits == {
        "rerun_count": 0,
        "max_reruns": max_reruns,
        "limit_reached": reached,
        "force_finalize": reached,
        "overridden": False,
        "overridden_by": None,
    }


async def test_limits_are_enforced_and_lifted_once(store):
    await rerun_times(store, "loop_001", count=1)
    limits = await enforce_rerun_limits(
        "loop_001", override_max_reruns=True, override_by="ops", store=store
    )
    shapes.check_shape(limits, shapes.LIMITS)
    unreached = {
        "rerun_count": 2,
        "max_reruns": 3,
        "limit_reached": False,
        "force_finalize": False,
        "overridden": False,
        "overridden_by": None,
    }
    assert limits == unreached
    await rerun_times(store, "loop_002", count=2)
    reached = await enforce_rerun_limits("loop_002_r3", store=store)
    at_the_limit = {**unreached, "rerun_count": 3, "limit_reached": True}
    assert reached == {**at_the_limit, "force_finalize": True}
    for _ in range(2):
        lifted = await enforce_rerun_limits(
            "loop_002", override_max_reruns=True, override_by="ops", store=store
        )
        assert lifted == {**at_the_limit, "overridden": True, "overridden_by": "ops"}
    assert (
        len((await store.read(Scope(), loop_store.read, "loop_002")).loop.overrides)
        == 1
    )
    assert (await complete(store, "loop_002_r3", POOR))["decision_result"][
        "new_loop_id"
    ] == "loop_002_r4"


async def test_repetition_is_counted_over_the_scope_with_the_tags_that_are_asked_about(
    store,
):
    other = {"tag": "anchoring"}
    repetition = await detect_bias_repetition(
        "loop_001", [TAG, TAG, other], store=store
    )
    shapes.check_shape(repetition, shapes.REPETITION)
    assert repetition["repetition_counts"] == {"overconfidence": 1, "anchoring": 1}
    await rerun_times(store, "loop_001", count=1, bias_tags=[TAG])
    repetition = await detect_bias_repetition("loop_002", [TAG, other], store=store)
    assert repetition == {
        "bias_repetition": True,
        "repeated_tags": ["overconfidence"],
        "repetition_counts": {"overconfidence": 3, "anchoring": 1},
        "threshold": 3,
        "bias_echo": True,
        "trigger": "pessimist",
        "action": "halt_loop",
    }
    fewer = await detect_bias_repetition("loop_001_r1", [TAG], threshold=4, store=store)
    assert fewer == {
        "bias_repetition": False,
        "repeated_tags": [],
        "repetition_counts": {"overconfidence": 2},
        "threshold": 4,
        "bias_echo": False,
        "trigger": None,
        "action": None,
    }


async def test_a_fatigue_score_is_that_of_the_next_attempt(store):
    async def score(*scores: Any) -> dict[str, Any]:
        answer = await calculate_fatigue_score(*scores, store=store)
        shapes.check_shape(answer, shapes.FATIGUE)
        return dict(answer)

    first = {
        "reflection_fatigue": 0.0,
        "previous_fatigue": 0.0,
        "fatigue_increment": 0.0,
        "fatigue_increased": False,
        "improvement_detected": False,
        "threshold_exceeded": False,
        "critical_threshold": 0.5,
        "force_finalize": False,
    }
    assert await score("loop_001", 0.72, 0.28) == first
    await complete(store, "loop_001", POOR)
    worse = {
        **first,
        "reflection_fatigue": 0.15,
        "fatigue_increment": 0.15,
        "fatigue_increased": True,
    }
    assert await score("loop_001", 0.72, 0.28) == worse
    tired = {
        **worse,
        "reflection_fatigue": 0.5,
        "previous_fatigue": 0.35,
        "threshold_exceeded": True,
        "force_finalize": True,
    }
    assert await score("loop_001_r1", 0.72, 0.28, 0.35) == tired
    better = {
        **first,
        "reflection_fatigue": 0.3,
        "previous_fatigue": 0.35,
        "fatigue_increment": -0.05,
        "improvement_detected": True,
    }
    assert await score("loop_001", 0.77, 0.9, 0.35) == better
    largest = await score("loop_001", 0.1, 0.9, 0.95)
    assert largest["reflection_fatigue"] == 1.0
    assert largest["previous_fatigue"] == 0.95
    assert largest["fatigue_increment"] == 0.05


async def test_reasoning_is_logged_and_written_to_the_trace(store, caplog):
    caplog.set_level("INFO", "heedful")
    trigger = ["alignment", "drift"]
    reason = "alignment_threshold_not_met"
    reasoning = await log_rerun_reasoning("loop_001", trigger, reason, store=store)
    assert reasoning.pop("timestamp")
    assert reasoning == {
        "rerun_trigger": trigger,
        "rerun_reason": reason,
        "rerun_reason_detail": "Triggered by alignment, drift",
        "overridden_by": None,
        "reflection_persona": None,
    }
    log_line = (
        "loop loop_001 runs again: alignment_threshold_not_met (Triggered by "
        "alignment, drift)"
    )
    assert caplog.messages == [log_line]
    await complete(store, "loop_001", POOR)
    override = await log_rerun_reasoning(
        "loop_001",
        ["drift"],
        "r",
        "since I say so",
        overridden_by="ops",
        reflection_persona="NOVA",
        store=store,
    )
    assert override.pop("timestamp")
    assert override == {
        "rerun_trigger": ["drift"],
        "rerun_reason": "r",
        "rerun_reason_detail": "since I say so",
        "overridden_by": "ops",
        "reflection_persona": "NOVA",
    }
    trace = await get_loop_trace("loop_001", store=store)
    shapes.check_shape(trace, shapes.TRACE)
    assert {name: trace[name] for name in override} == override
    assert trace["rerun_count"] == 1
    assert trace["orchestrator_persona"] == "SAGE"
    await log_rerun_reasoning("elsewhere", trigger, reason, store=store)
    assert (await get_loop_trace("elsewhere", store=store))["status"] == "pending"
    with pytest.raises(InvalidInput, match="rerun_trigger is 'drift'"):
        await log_rerun_reasoning("loop_001", "drift", reason, store=store)


@pytest.mark.both_nightly
async def test_an_override_needs_no_name(store):
    name = (await rerun_times(store, "loop_001", count=3))[-1]["loop_id"]
    status = await enforce_rerun_limits(name, True, store=store)
    assert status["overridden"]
    assert status["overridden_by"] is None
    await complete(store, "loop_001_r4", POOR)
    completed = await complete(store, "loop_001_r4", POOR, override_max_reruns=True)
    decided = completed["decision_result"]
    assert decided["overridden"]
    assert decided["overridden_by"] is None
    answer = await override_guardrails("loop_001", override_fatigue=True, store=store)
    assert answer["overridden_by"] is None
    stored_loop = await store.read(Scope(), loop_store.read, "loop_001")
    actors = {override.by for override in stored_loop.loop.overrides}
    assert actors == {"unnamed"}


async def test_a_tracked_bias_counts_once_a_loop_and_with_its_completion(store):
    async def track(name: str, *tags: str) -> dict[str, Any]:
        answer = await track_bias(name, [{"tag": tag} for tag in tags], store=store)
        assert list(answer) == ["bias_echo", "repeated_tags", "repetition_counts"]
        return dict(answer)

    for _ in range(3):
        tracked = await track("a", "overconfidence", "overconfidence")
        assert tracked["repetition_counts"] == {"overconfidence": 1}
    first = await complete(store, "a", POOR, bias_tags=[TAG])
    # It is the same completion.
    assert await complete(store, "a", POOR, bias_tags=[TAG]) == first
    assert first["reflection_result"]["repetition_counts"] == {}
    tracked = await track("a", "overconfidence", "anchoring")
    assert tracked["repetition_counts"] == {"overconfidence": 1, "anchoring": 1}
    assert await complete(store, "a", POOR, bias_tags=[TAG]) == first
    assert await complete(store, "a") == first
    assert await track("b", "overconfidence") == {
        "bias_echo": False,
        "repeated_tags": [],
        "repetition_counts": {"overconfidence": 2},
    }
    repetition = await detect_bias_repetition(
        "c", [TAG, {"tag": "anchoring"}], store=store
    )
    assert repetition["repetition_counts"] == {"overconfidence": 3, "anchoring": 2}
    third = await complete(store, "c", POOR, bias_tags=[TAG])
    assert third["reflection_result"]["repeated_tags"] == ["overconfidence"]
    assert (await complete(store, "b", POOR))["decision_result"][
        "rerun_reason"
    ] == "bias_echo_detected"
    assert await track("d", "overconfidence") == {
        "bias_echo": True,
        "repeated_tags": ["overconfidence"],
        "repetition_counts": {"overconfidence": 4},
    }
    await complete(store, "d", POOR, bias_tags=[{"tag": "anchoring"}])
    assert (await complete(store, "d"))["loop_id"] == "d"  # both tags are its own now
    elsewhere = GuardedLoops(store=store, scope=Scope("default", "other"))
    assert (await track_bias("d", [TAG], store=elsewhere))["repetition_counts"] == {
        "overconfidence": 1
    }


async def test_the_two_halves_of_a_completion_agree_with_it(store):
    reflected = await process_loop_reflection(
        "loop_001",
        override_fatigue=False,
        override_max_reruns=True,
        override_by="ops",
        store=store,
        **FIRST,
    )
    decided = await make_rerun_decision(
        "loop_001",
        override_fatigue=False,
        override_max_reruns=True,
        override_by="ops",
        store=store,
    )
    completion = await complete(store, "loop_001", FIRST)
    assert reflected == completion["reflection_result"]
    assert decided == completion["decision_result"]


@pytest.mark.both_nightly
async def test_a_changed_configuration_counts_at_the_next_call(store, monkeypatch):
    await complete(store, "loop_001", POOR)
    policy = replace(orchestrator, rules=(MaxAttempts(9),))
    await open_loop("own", "Sum up", store=store, policy=policy)
    monkeypatch.setitem(RERUN_CONFIG, "max_reruns", 1)
    monkeypatch.setitem(RERUN_CONFIG, "bias_repetition_threshold", 1)
    monkeypatch.setitem(FATIGUE_CONFIG, "base_increment", 0.2)
    assert (await enforce_rerun_limits("loop_001", store=store))["limit_reached"]
    assert (
        await calculate_fatigue_score("loop_001", 0.7, drift_score=0.3, store=store)
    )["reflection_fatigue"] == 0.2
    assert (await detect_bias_repetition("new", [TAG], store=store))["bias_echo"]
    assert (await complete(store, "loop_001_r1", POOR))["decision_result"][
        "rerun_reason"
    ] == "max_reruns_reached"
    assert (await complete(store, "own", POOR))["decision_result"]["max_reruns"] == 8
    monkeypatch.setitem(RERUN_CONFIG, "alignment_threshold", 0.6)
    monkeypatch.setitem(RERUN_CONFIG, "drift_threshold", 0.4)
    assert (await complete(store, "new", POOR))["decision_result"][
        "decision"
    ] == "finalize"
    monkeypatch.setitem(RERUN_CONFIG, "max_rerun", 7)
    with pytest.raises(InvalidInput, match="max_rerun"):
        await complete(store, "newer", POOR)


async def test_the_trace_of_each_attempt(store):
    await rerun_times(store, "loop_001", count=3)
    names = ["loop_001", "loop_001_r1", "loop_001_r2", "loop_001_r3"]
    traces = [await get_loop_trace(name, store=store) for name in names]
    for trace in traces:
        shapes.check_shape(trace, shapes.TRACE)
    for field, values in {
        "status": ["completed"] * 3 + ["finalized"],
        "rerun_of": [None, *names[:3]],
        "rerun_depth": [0, 1, 2, 3],
        "rerun_count": [1, 2, 3, 3],
        "reflection_fatigue": [0.0, 0.15, 0.3, 0.45],
        "previous_fatigue": [0.0, 0.0, 0.15, 0.3],
        "fatigue_increased": [False, True, True, True],
        "force_finalize": [False] * 3 + [True],
        "orchestrator_persona": ["SAGE"] * 4,
    }.items():
        assert [trace[field] for trace in traces] == values, field
    with pytest.raises(NotFound):
        await get_loop_trace("loop_001_r9", store=store)


# -- settings


def test_the_settings_and_their_defaults():
    assert LoopGuardrails().policy == orchestrator
    assert LoopGuardrails.of({}) == LoopGuardrails()
    settings = {
        "HEEDFUL_MAX_RERUNS": " 5 ",
        "fatigue_threshold": "0.4",
        "DECAY_RATE": 0,
        "other": 1,
    }
    wanted = LoopGuardrails(max_reruns=5, fatigue_threshold=0.4, decay_rate=0)
    assert LoopGuardrails.of(settings) == wanted
    newer = {"MAX_RERUNS": "1", "HEEDFUL_MAX_RERUNS": "2"}
    assert LoopGuardrails.of(newer).max_reruns == 2


@pytest.mark.parametrize("threshold", ["3", 0, -1, 1.5, True])
async def test_a_threshold_is_a_count(store, threshold):
    with pytest.raises(InvalidInput, match="threshold is"):
        await detect_bias_repetition("l", ["a"], threshold, store=store)
