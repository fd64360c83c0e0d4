"""A lesson becomes a check: proposed, executed, accepted, measured, retired."""

from collections.abc import Sequence
from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Event
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Example, Scope
from heedful.lessons.lesson_check import MAX_QUIET_SECONDS, LessonCheck
from heedful.lessons.origin import Origin
from heedful.loop.record import Finding
from heedful.memory.hardening import LessonChecks
from heedful.memory.memory import Memory
from heedful.store import exposures

pytestmark = pytest.mark.both_nightly

KEY = "bug reports"
TASKS = ("Checkout answers 500", "A typo in the footer", "Login loops")
REASON = "Answer with one of P0 to P3"


def severity(answer: str) -> list[Finding]:
    """What the caller's own check says."""
    if answer in ("P0", "P1", "P2", "P3"):
        return []
    return [Finding("severity", f"{answer!r} is no severity", fix=REASON)]


def not_empty(answer: str) -> bool:
    """A check that knows nothing of severities."""
    return bool(answer)


async def active(memory: Memory, key: str) -> Sequence[LessonCheck]:
    """What judges the loops of a memory key."""
    return await memory.store.read(memory.scope, exposures.active_checks, key)


async def run_loop(
    memory: Memory,
    task: str,
    *answers: str,
    checks: Sequence[Any] = (severity,),
    key: str = KEY,
    **options: Any,
) -> heedful.Result[str]:
    """Run a loop that makes these answers, the last one for ever."""
    left = list(answers)

    def triage(task: str, hint: str) -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    options = {"store": memory.store, **options}
    return await heedful.run(
        task,
        generate=triage,
        checks=list(checks),
        policy=heedful.Policy((heedful.MaxAttempts(4),), name="four"),
        memory=memory,
        memory_key=key,
        **options,
    )


def findings_of(attempt: heedful.Attempt) -> Sequence[Finding]:
    """Return what was found in an attempt."""
    assert attempt.evaluation is not None
    return attempt.evaluation.findings


async def teach(memory: Memory, key: str = KEY) -> int:
    """Let three loops correct the mistake; return the id of the lesson."""
    answers = (("high", "P1"), ("Very low", "P3"), ("urgent!", "P0"))
    for task, pair in zip(TASKS, answers, strict=True):
        await run_loop(memory, task, *pair, key=key)
    return await lesson_of(memory)


async def lesson_of(memory: Memory) -> int:
    """Return the id of the first lesson of a check."""
    lessons = [row["id"] for row in await memory.top() if row["kind"] == "check"]
    return int(min(lessons))


async def harden(memory: Memory) -> LessonCheck:
    """Teach and accept."""
    return await LessonChecks(memory).accept(await teach(memory), by="ana")


async def test_a_check_is_proposed_from_examples_and_judges_nothing_yet(memory):
    lesson = await teach(memory)
    check = await LessonChecks(memory).propose(lesson)
    assert check.state == "proposed"
    assert check.memory_key == KEY
    assert check.failed == 3
    assert check.passed == 3
    assert check.refuses("medium")
    assert not check.refuses("P2")
    assert await active(memory, KEY) == ()
    assert [check.lesson for check in await LessonChecks(memory).list()] == [lesson]


async def test_an_accepted_check_finds_the_repeat_with_the_lessons_fix(memory):
    check = await harden(memory)
    # Nobody else judges: the loop's own checks are another one's.
    result = await run_loop(
        memory,
        "Backups fail",
        "medium",
        "P2",
        checks=[not_empty],
    )
    first, second = map(findings_of, result.loop.attempts)
    [finding] = first
    assert finding.check == f"lesson {check.lesson}"
    assert finding.level == "error"
    assert REASON in finding.fix
    assert second == ()
    assert result.passed
    [measured] = await LessonChecks(memory).list()
    assert measured.hits == 1
    assert measured.false_alarms == 0


async def test_the_check_that_taught_it_has_the_last_word(memory):
    def severity(answer: str) -> bool:
        """Anything goes by now."""
        return True

    check = await harden(memory)
    result = await run_loop(memory, "Backups", "medium", checks=[severity])
    [attempt] = result.loop.attempts
    [finding] = findings_of(attempt)
    assert finding.level == "warning"
    assert "severity accepts it" in finding.message
    assert result.passed
    [retired] = await LessonChecks(memory).list()
    assert retired.hits == 1
    assert retired.false_alarms == 1
    assert retired.state == "retired"
    assert retired.why == "1 of 1 findings were false alarms"
    assert await active(memory, check.memory_key) == ()


async def test_a_loop_of_another_key_is_not_judged(memory):
    await harden(memory)
    result = await run_loop(
        memory,
        "A poem",
        "roses",
        checks=[not_empty],
        key="poems",
    )
    assert findings_of(result.loop.attempts[0]) == ()
    assert result.briefing is not None
    assert result.briefing.checks == ()


async def test_a_reported_attempt_is_judged_too(memory):
    check = await harden(memory)
    loop = await heedful.open_loop(
        "mine",
        "Backups",
        memory=memory,
        memory_key=KEY,
    )
    verdict = await loop.report("medium")
    assert isinstance(verdict, heedful.Again)
    assert REASON in verdict.feedback
    await loop.report("P2", evaluation=heedful.Evaluation())
    assert loop.passed
    [measured] = await LessonChecks(memory).list()
    assert measured.lesson == check.lesson
    assert measured.hits == 1


async def test_a_finding_of_a_lesson_teaches_no_new_lesson(memory):
    await harden(memory)
    before = await memory.count()
    await run_loop(memory, "Backups", "medium", "P2", checks=[not_empty])
    assert await memory.count() == before


async def test_a_person_says_that_a_finding_was_wrong(memory):
    check = await harden(memory)
    for task in ("Backups", "Restores"):
        await run_loop(memory, task, "medium", "P2", checks=[not_empty])
    retired = await LessonChecks(memory).false_alarm(
        check.lesson, by="ana", why="medium is one"
    )
    assert retired.state == "retired"
    assert retired.why == "1 of 2 findings were false alarms"


async def test_a_check_without_a_finding_for_30_days_is_retired(memory):
    check = await harden(memory)
    later = check.decided + MAX_QUIET_SECONDS
    assert check.retired(later) == ""
    assert check.retired(later + 1) == "no finding in 30 days"


async def test_a_rejected_check_is_not_proposed_again(memory):
    lesson = await teach(memory)
    await LessonChecks(memory).reject(lesson, by="ana")
    assert (await LessonChecks(memory).propose(lesson)).state == "rejected"
    assert await active(memory, KEY) == ()


async def test_an_operators_lesson_is_accepted_by_trust(memory):
    lesson = await teach(memory)
    await memory.edit(lesson, "Answer P0, P1, P2 or P3.", by="ana")
    check = await LessonChecks(memory).propose(lesson)
    assert check.state == "accepted"
    assert check.by == "trust"


async def test_a_check_is_deleted_with_a_source_that_it_may_quote(memory):
    for task in TASKS:
        await run_loop(memory, task, "high", f"P{TASKS.index(task)}", id=task)
    check = await LessonChecks(memory).accept(await lesson_of(memory), by="ana")
    assert "P1" in check.about
    await memory.quarantine.revoke(f"loop:{TASKS[1]}", by="ana")
    assert await memory.count() == 1
    assert await LessonChecks(memory).list() == []


async def test_a_lesson_that_is_not_trusted_any_more_judges_nothing(memory):
    check = await harden(memory)
    await memory.store.write(memory.scope, distrust, check.lesson)
    assert await active(memory, KEY) == ()
    with pytest.raises(InvalidInput, match="somebody trusts"):
        await LessonChecks(memory).accept(check.lesson, by="ana")


def distrust(db: Any, scope: Scope, lesson: int) -> None:
    """Make a lesson one of a tool."""
    db.update("lesson", {"id": lesson}, {"trust": "outside"})


async def test_a_quarantined_lesson_is_refused_with_the_command_that_releases(memory):
    remembered = await memory.remember(
        "bash",
        "npm is not used here",
        example=Example("run the tests", "pnpm test", rejected="npm test"),
        origin="outside",
    )
    with pytest.raises(InvalidInput, match="heedful quarantine release"):
        await LessonChecks(memory).propose(remembered.id)
    assert await LessonChecks(memory).list() == []


async def test_tenants_and_projects_have_their_own_checks(memory):
    check = await harden(memory)
    for scope in (Scope("other"), Scope(project="other")):
        stranger = Memory(memory.store, scope)
        assert await LessonChecks(stranger).list() == []
        assert await active(stranger, KEY) == ()
        with pytest.raises(NotFound):
            await LessonChecks(stranger).accept(check.lesson, by="eve")
        with pytest.raises(NotFound):
            await LessonChecks(stranger).false_alarm(check.lesson, by="eve")


OWN: dict[str, Origin] = {"user": "user", "tool": "local"}
OWN |= {f"program:{name}": "local" for name in ("npm", "npx", "pnpm")}


@pytest.fixture
def agents(store: Any) -> Memory:
    """A memory that trusts the user and the programs of runs."""
    return Memory(store, holdout=0)


async def replace_command(
    memory: Memory, failed: str, worked: str, error: str = "npm: command not found"
) -> int:
    """Reflect on a run in which another command worked; return the id of its rule."""
    events = (
        Event("tool_call", tool="Bash", arguments={"command": failed}),
        Event("tool_response", error=error),
        Event("tool_call", tool="Bash", arguments={"command": worked}),
        Event("tool_response", "ok"),
    )
    run = heedful.Episode(events, "success", task=f"do {worked}")
    reflected = await heedful.reflect(run, memory=memory)
    assert reflected is not None
    assert reflected.strategy is not None
    return reflected.stored[-1].id


async def test_the_rule_of_runs_forbids_the_command_that_they_replaced(agents):
    rule = await replace_command(agents, "npm test", "pnpm test")
    with pytest.raises(InvalidInput, match="it has 1 and 1: harden it when more runs"):
        await LessonChecks(agents).propose(rule)

    assert await replace_command(agents, "npm run lint", "pnpm run lint") == rule
    proposed = await LessonChecks(agents).propose(rule)
    assert proposed.state == "proposed"
    assert proposed.kind == "call"
    assert proposed.about == "this call has 'npm'"
    assert proposed.failed == 2
    assert proposed.passed == 2
    assert not (await agents.before("Bash", {"command": "npm ci"})).checks

    await LessonChecks(agents).accept(rule, by="ana")
    warned = await agents.before("Bash", {"command": "cd web && npm ci"})
    [check] = warned.checks
    assert check.lesson == rule
    assert "pnpm run lint" in check.text
    assert not await agents.before("Bash", {"command": "pnpm ci"})


async def test_the_account_of_a_run_names_its_rule(agents):
    rule = await replace_command(agents, "npm test", "pnpm test")
    lessons = (await agents.seen("npm: command not found")).lessons
    [account] = [one["id"] for one in lessons if one["kind"] == "reflection"]
    with pytest.raises(InvalidInput, match=f"drawn from it, lesson {rule}"):
        await LessonChecks(agents).propose(account)


async def test_a_command_that_worked_in_another_run_prevents_a_false_alarm(agents):
    rule = await replace_command(agents, "npm test", "pnpm test")
    await replace_command(agents, "npm run lint", "pnpm run lint")
    await replace_command(
        agents,
        "npx ci",
        "npm ci",
        error="npx: command not found",
    )
    with pytest.raises(InvalidInput, match="words that no call has which worked"):
        await LessonChecks(agents).propose(rule)


@pytest.mark.parametrize("verb", ["propose", "accept", "reject", "false_alarm"])
async def test_an_unknown_lesson_is_not_found(memory, verb):
    by = {} if verb == "propose" else {"by": "ana"}
    with pytest.raises(NotFound):
        await getattr(LessonChecks(memory), verb)(99, **by)


async def test_every_decision_is_recorded(memory):
    check = await harden(memory)
    await LessonChecks(memory).reject(check.lesson, by="bo", why="too strict")
    rejected, accepted = await memory.store.read(memory.scope, exposures.rulings, 5)
    assert accepted["action"] == "harden accepted"
    assert accepted["by"] == "ana"
    assert rejected["action"] == "harden rejected"
    assert rejected["why"] == "too strict"
