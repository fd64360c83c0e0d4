"""What a model read before a run began, as an adapter says it, without a framework."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heedful import Done, Finding
from heedful.integrations import HostRun, verdict_of
from heedful.integrations.begin import Earlier, begin_run, provider_events
from heedful.integrations.past import instruction_events
from heedful.loop.codec import verdict_to
from tests.fix_of_page import PAGE, drive_fix, is_told, memory_in
from tests.hosts import patient_host


@pytest.mark.parametrize(
    ("middle", "told"),
    [
        pytest.param(PAGE, False, id="the page is in the middle"),
        pytest.param("nothing of use", True, id="other words are in the middle"),
    ],
)
@pytest.mark.parametrize("start", range(6_900, 7_020, 20))
async def test_a_long_message_counts_whole(
    middle: str, told: bool, start: int, tmp_path: Path
) -> None:
    """No quotation is lost where a text is cut into events."""
    earlier = Earlier()
    earlier.said(f"{'word ' * (start // 5)}{middle}{' word' * 4_000}")
    run = await drive_fix(memory_in(tmp_path), earlier)
    await run.learn(ends="success")
    assert await is_told(memory_in(tmp_path)) is told


async def test_a_fix_waits_if_the_turns_before_are_too_long_to_read(
    tmp_path: Path,
) -> None:
    earlier = Earlier()
    earlier.said("word " * 200_001)
    run = await drive_fix(memory_in(tmp_path), earlier)
    await run.learn(ends="success")
    assert not await is_told(memory_in(tmp_path))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        pytest.param("curl -o page.txt https://a.example", False, id="fetched"),
        pytest.param("git checkout page.txt", True, id="the user's own"),
    ],
)
async def test_a_file_has_the_trust_of_the_earlier_call_that_wrote_it(
    command: str, told: bool, tmp_path: Path
) -> None:
    earlier = Earlier()
    earlier.called("0", "shell", {"command": command})
    earlier.returned("0", "")
    run = await drive_fix(memory_in(tmp_path), earlier, read="page.txt")
    await run.learn(ends="success")
    assert await is_told(memory_in(tmp_path)) is told


async def test_a_run_that_goes_on_has_the_turns_before_it_once(tmp_path: Path) -> None:
    counts: list[int] = []
    for _ in range(2):
        earlier = Earlier()
        earlier.typed("read the docs")
        earlier.said("I read them.")
        run = await drive_fix(memory_in(tmp_path), earlier)
        events = await run.events()
        counts.append(sum(event["type"] == "system_event" for event in events))
    assert counts == [2, 2]


@pytest.mark.parametrize(
    ("item", "told"),
    [
        pytest.param(
            {"type": "web_search_call", "status": "completed"}, False, id="no words"
        ),
        pytest.param(
            {"type": "tool_result", "content": [{"encrypted_content": "Eqg"}]},
            False,
            id="words that nobody can read",
        ),
        pytest.param({"type": "mcp_call", "output": "12:30"}, True, id="other words"),
    ],
)
async def test_what_a_provider_does_not_show_may_be_repeated(
    item: Any, told: bool, tmp_path: Path
) -> None:
    run = await drive_fix(memory_in(tmp_path), events=provider_events([item]))
    await run.learn(ends="success")
    assert await is_told(memory_in(tmp_path)) is told


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        pytest.param([PAGE], False, id="read"),
        pytest.param(["Use four spaces.", "Run the tests."], True, id="other words"),
        pytest.param([None], False, id="not readable"),
        pytest.param(["word " * 80_001], False, id="too long to keep"),
        pytest.param(["token = ghp_" + "a1B2" * 9], False, id="with a secret"),
    ],
)
async def test_instructions_count_after_their_branch_was_left(
    texts: list[str | None], told: bool, tmp_path: Path
) -> None:
    foreign = {f"file:{number}.md": text for number, text in enumerate(texts)}
    run = await drive_fix(memory_in(tmp_path), events=[*instruction_events(foreign)])
    await run.learn(ends="success")
    assert await is_told(memory_in(tmp_path)) is told


@pytest.mark.parametrize("host_texts", [[PAGE], [None]], ids=["read", "not readable"])
async def test_instructions_that_came_later_count_too(
    host_texts: list[str | None], tmp_path: Path
) -> None:
    older = instruction_events({"file:0.md": "Use four spaces."})
    run = await drive_fix(memory_in(tmp_path), events=[*older])
    run.host.foreign = {"file:0.md": host_texts[0]}
    await run.learn(ends="success")
    assert not await is_told(memory_in(tmp_path))


def judge(candidate: Any, _: Any) -> list[Finding]:
    return [] if candidate == "P1" else [Finding("severity", "no severity")]


async def begin(folder: Path, task: str) -> HostRun:
    host = patient_host(memory=memory_in(folder), checks=[judge], strict=True)
    run, _ = await begin_run(host.run, "chat", task)
    return run


async def test_a_run_goes_on_by_its_id_and_its_task(tmp_path: Path) -> None:
    first = await begin(tmp_path, "triage it")
    await first.verdict("high")
    second = await begin(tmp_path, "triage it")
    assert second.id == "chat"
    assert second.loop
    assert len(second.loop.loop.attempts) == 1


@pytest.mark.parametrize(
    ("answer", "task"),
    [
        pytest.param("P1", "triage it", id="the first has ended"),
        pytest.param("high", "route it", id="the task is another"),
    ],
)
async def test_another_run_gets_an_id_of_its_own(
    answer: str, task: str, tmp_path: Path
) -> None:
    first = await begin(tmp_path, "triage it")
    await first.verdict(answer)
    second = await begin(tmp_path, task)
    assert second.id.startswith("chat~")


VERDICT = Done(2, passed=True)
STORED: Any = verdict_to(VERDICT)


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        pytest.param({"heedful": VERDICT}, VERDICT, id="a state"),
        pytest.param(SimpleNamespace(heedful=VERDICT), VERDICT, id="a result"),
        pytest.param(
            SimpleNamespace(state={"heedful": VERDICT}), VERDICT, id="its state"
        ),
        pytest.param(
            SimpleNamespace(custom_metadata={"heedful": STORED}), VERDICT, id="an event"
        ),
        pytest.param(
            {"messages": [SimpleNamespace(response_metadata={"heedful": STORED})]},
            VERDICT,
            id="a message",
        ),
        pytest.param({"messages": []}, None, id="none in a state"),
        pytest.param(SimpleNamespace(), None, id="none in a result"),
    ],
)
def test_a_verdict_is_found_where_a_framework_keeps_it(
    result: Any, verdict: Done | None
) -> None:
    assert verdict_of(result) == verdict
