"""Several critics as one: what they settle on, that they run at once, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.checks import critique as checks
from heedful.checks.critique import Opinion, combine
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput, ModelError
from heedful.loop.record import Evaluation, Finding
from heedful.models.function import Function
from heedful.testing import FixedEmbedder, ScriptedModel

AT = Context("Explain tides.")
SHARE = st.floats(0, 1)
ALIGNMENT, DRIFT = checks.ROLES["alignment"], checks.ROLES["drift"]


def said(**keys: Any) -> str:
    return json.dumps({"reason": "Because.", "confidence": 0.5} | keys)


def judged(check: Any) -> Evaluation:
    evaluation: Evaluation = asyncio.run(check("Water rises.", AT))
    return evaluation


def panel(*answers: str, role: str = "alignment") -> Evaluation:
    return judged(checks.critics([checks.critic(role, ScriptedModel(one)) for one in answers]))


def aligned(*pairs: tuple[float, float]) -> Evaluation:
    return panel(*(said(alignment=score, confidence=sure) for score, sure in pairs))


@pytest.mark.parametrize(
    ("pairs", "median", "apart", "preference"),
    [
        ([(0.5, 1.0), (0.7, 1.0)], 0.6, 0.2, 0.6),
        ([(0.1, 1.0), (0.8, 1.0), (0.9, 1.0)], 0.8, 0.8, 0.6),
        ([(0.0, 0.1), (1.0, 0.9)], 0.5, 1.0, 0.7),
        ([(0.2, 0.0), (0.6, 0.0)], 0.4, 0.4, 0.5),
        ([(0.2, 0.0), (0.6, 0.1)], 0.4, 0.4, 0.505),
    ],
)
def test_the_median_counts_disagreement_is_a_score_and_confidence_weighs(
    pairs, median, apart, preference
):
    evaluation = aligned(*pairs)
    assert evaluation.scores["alignment"] == pytest.approx(median)
    assert evaluation.scores["alignment_disagreement"] == pytest.approx(apart)
    assert evaluation.preference == pytest.approx(preference)


def test_roles_may_be_mixed():
    evaluation = judged(
        checks.critics(
            [
                checks.critic("alignment", ScriptedModel(said(alignment=0.9))),
                {"role": "drift", "model": ScriptedModel(said(drift=0.3))},
                checks.critic("drift", FixedEmbedder()),
                checks.critics([checks.critic("summary", ScriptedModel(said(summary_valid=True)))]),
            ]
        )
    )
    scores = dict(evaluation.scores)
    apart = scores.pop("drift_disagreement")
    assert apart == pytest.approx(2 * abs(scores.pop("drift") - 0.3))
    assert scores == {"alignment": 0.9, "summary_valid": 1.0}
    assert evaluation.usage.calls == 3
    assert [one.check for one in evaluation.findings][:2] == ["alignment", "drift"]


def test_a_bias_that_several_see_is_one_finding_with_the_highest_severity():
    def seen(severity: float) -> str:
        return said(biases=[{"tag": "optimism", "severity": severity, "quote": ""}])

    evaluation = panel(seen(0.3), seen(0.8), seen(0.5), role="pessimist")
    (bias,) = [one for one in evaluation.findings if one.persistent]
    assert (bias.key, bias.severity) == ("bias: optimism", 0.8)
    assert evaluation.scores["bias"] == 0.5


@pytest.mark.parametrize(
    ("verdicts", "level"),
    [
        ([True, True, False], "warning"),
        ([True, False, False], "error"),
        ([True, False], "error"),
        ([False], "error"),
    ],
)
def test_a_verdict_is_an_error_unless_most_say_otherwise(verdicts, level):
    evaluation = panel(*(said(summary_valid=one) for one in verdicts), role="summary")
    (invalid,) = [one for one in evaluation.findings if "not summary_valid" in one.key]
    assert invalid.level == level


OPINIONS = st.builds(
    lambda role, score, sure: Opinion(role, {role.name: score}, sure, (Finding("a", f"{score}"),)),
    st.sampled_from([ALIGNMENT, DRIFT]),
    SHARE,
    SHARE,
)


@given(st.lists(OPINIONS, min_size=1, max_size=7))
def test_what_is_settled_lies_within_what_was_said(opinions):
    evaluation = combine(opinions)
    goods = [one.good for one in opinions]
    assert min(*goods, 0.5) - 1e-9 <= evaluation.preference <= max(*goods, 0.5) + 1e-9
    for role in (ALIGNMENT, DRIFT):
        values = [one.scores[role.name] for one in opinions if one.role is role]
        if not values:
            assert role.name not in evaluation.scores
            continue
        assert min(values) <= evaluation.scores[role.name] <= max(values)
        apart = evaluation.scores.get(f"{role.name}_disagreement")
        assert apart == (max(values) - min(values) if len(values) > 1 else None)


@pytest.mark.parametrize("members", [[], None, 5])
def test_nobody_is_no_panel(members):
    with pytest.raises(InvalidInput, match="members"):
        checks.critics(members)


# Together


def asking(call: Callable[[Sequence[Any]], Any], role: str = "alignment") -> Any:
    return checks.critic(role, Function(call))


def test_they_are_asked_at_once_and_answer_in_their_order():
    async def together() -> Evaluation:
        both = asyncio.Barrier(2)

        def meeting(score: float) -> Callable[[Sequence[Any]], Any]:
            async def call(messages: Sequence[Any]) -> str:
                await both.wait()  # one alone would wait for ever
                for _ in range(round(10 * score)):
                    await asyncio.sleep(0)
                return said(alignment=score, reason=f"{score}")

            return call

        check = checks.critics([asking(meeting(0.9)), asking(meeting(0.1))])
        async with asyncio.timeout(30):
            evaluation: Evaluation = await check("Water rises.", AT)
        return evaluation

    evaluation = asyncio.run(together())
    assert [one.message for one in evaluation.findings] == ["0.9", "0.1"]


class Waiting:
    """A model that never answers, and knows whether it was cancelled."""

    def __init__(self) -> None:
        self.asked, self.cancelled = asyncio.Event(), False

    async def __call__(self, messages: Sequence[Any]) -> str:
        self.asked.set()
        try:
            return str(await asyncio.Future[str]())
        except asyncio.CancelledError:
            self.cancelled = True
            raise


@pytest.mark.parametrize(
    ("error", "kind"), [(ModelError("away"), ModelError), (KeyError("odd"), KeyError)]
)
def test_the_error_of_one_is_raised_and_the_others_are_cancelled(error, kind):
    async def failing() -> bool:
        waiting = Waiting()
        model = ScriptedModel(error)
        check = checks.critics([asking(waiting.__call__), checks.critic("drift", model)])
        with pytest.raises(kind) as raised:
            await check("Water rises.", AT)
        assert raised.value is error
        return waiting.cancelled

    assert asyncio.run(failing())


def test_of_several_errors_the_first_judge_s_is_raised():
    models = [ScriptedModel(ModelError(name)) for name in ("first", "second")]
    with pytest.raises(ModelError, match="first"):
        judged(checks.critics([checks.critic("drift", model) for model in models]))


def test_cancelling_cancels_all_and_leaves_nothing_running():
    async def cancelled() -> list[bool]:
        models = [Waiting(), Waiting()]
        check = checks.critics([asking(one.__call__) for one in models])
        task = asyncio.ensure_future(check("Water rises.", AT))
        for one in models:
            await one.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1
        return [one.cancelled for one in models]

    assert asyncio.run(cancelled()) == [True, True]
