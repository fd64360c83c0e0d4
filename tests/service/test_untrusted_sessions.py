"""Sessions of a key that nobody trusts: they change nothing that others are told."""

from collections.abc import Iterator
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.service.jobs import Job, Tools, do
from tests.service.jobs import Handed
from tests.service.support import Api, Project, served

COMMAND = "python3 load.py --all"
ABSENT = "FileNotFoundError: [Errno 2] No such file or directory: '/data/%s.csv'"
OWN_ERROR = ABSENT % "own"


class Shop:
    """A project with a key that is trusted and one that is not, and their sessions."""

    def __init__(self, api: Api, work: Handed) -> None:
        self.api = api
        self.work = work
        self.memory = api.setup.memory(Scope("acme", "shop"))
        self.agent = Project(api, "shop")
        self.stranger = Project(api, "shop", "write", "recall")
        self.sessions = 0
        for source in ("user", "tool", "program:python3", source_of(self.agent)):
            self.trust(source)

    def trust(self, source: str) -> None:
        self.api.run(self.memory.set_trust(source, "measured", by="ann"))

    def revoke(self, project: Project) -> None:
        """Revoke all that came through a key."""
        revocation = self.memory.quarantine.revoke(source_of(project), by="ann")
        self.api.run(revocation)

    def post(self, project: Project, **event: Any) -> Any:
        event["session_id"] = f"s{self.sessions}"
        return project.post("hooks/claude-code", event)

    def call(self, project: Project, command: str, error: str = "") -> None:
        call = {
            "tool_name": "Bash",
            "tool_input": {"command": command},
            "tool_use_id": command,
        }
        self.post(project, hook_event_name="PreToolUse", **call)
        end: dict[str, Any]
        if error:
            end = {"hook_event_name": "PostToolUseFailure", "error": error}
        else:
            end = {"hook_event_name": "PostToolUse", "tool_response": {"stdout": "ok"}}
        self.post(project, **call, **end)

    def run(
        self,
        project: Project,
        error: str = "",
        *,
        mend: str = "",
        first: str = "",
        then: tuple[str, str] = ("", ""),
        command: str = COMMAND,
        goes_on: bool = False,
    ) -> None:
        """Run a session that makes the call, which may fail, and learn from it.

        `then` is another command with its error. If it `goes_on`, it is the last
        session again.
        """
        if not goes_on:
            self.sessions += 1
        if first:
            self.call(project, first)
        self.call(project, command, f"Exit code 1\n{error}" if error else "")
        if mend:
            self.call(project, mend)
        if then[0]:
            self.call(project, then[0], f"Exit code 1\n{then[1]}")
        self.post(project, hook_event_name="SessionEnd")
        for task, scope, arguments in self.work.jobs:
            job = Job(task, scope, arguments)
            self.api.run(do(job, Tools(store=self.api.setup.store), tries=1))
        self.work.jobs.clear()

    def before(self, command: str = COMMAND) -> list[dict[str, Any]]:
        """Return the failures that are told before the call."""
        call = {"tool": "Bash", "arguments": {"command": command}}
        failures: list[dict[str, Any]] = self.agent.post("before", call)["failures"]
        return failures

    def opening(self) -> str:
        """Return what a new session is told."""
        self.sessions += 1
        answer = self.post(self.agent, hook_event_name="SessionStart")
        return str(answer.get("hookSpecificOutput"))


@pytest.fixture
def shop(tmp_path) -> Iterator[Shop]:
    with served(tmp_path, work=(work := Handed())) as api:
        yield Shop(api, work)


def source_of(project: Project) -> str:
    return f"key:{project.key.split('_')[1]}"


STRANGE_ERRORS = [
    pytest.param(ABSENT % "zqevil", id="other particulars of the same error"),
    pytest.param("KeyError: 'zqevil'", id="another error", marks=pytest.mark.nightly),
    pytest.param(OWN_ERROR, id="the same error", marks=pytest.mark.nightly),
    pytest.param("", id="it works"),
]


@pytest.mark.both_nightly
@pytest.mark.parametrize("error", STRANGE_ERRORS)
def test_what_is_told_stays_as_the_trusted_key_taught_it(shop, error):
    for _ in range(3):
        shop.run(shop.agent, OWN_ERROR, mend="python3 load.py --some")
    failures = shop.before()
    assert [(failure["what"], failure["runs"]) for failure in failures] == [
        (OWN_ERROR, 3)
    ]
    assert "--some" in failures[0]["fix"]
    opening = shop.opening()
    assert "3 of 3 sessions" in opening

    for _ in range(4):
        shop.run(
            shop.stranger,
            error,
            mend="python3 load.py --zqevil",
            first="echo run zqevil first",
        )
    assert shop.before() == failures
    assert shop.opening() == opening


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        pytest.param(ABSENT % "new", [4], id="a failure"),
        pytest.param("", [], id="it works"),
    ],
)
def test_sessions_count_once_their_key_is_trusted(shop, error, runs):
    for _ in range(3):
        shop.run(shop.agent, OWN_ERROR)
    shop.run(shop.stranger, error)
    shop.trust(source_of(shop.stranger))
    assert [failure["runs"] for failure in shop.before()] == [3]

    for _ in range(1 if error else 4):
        shop.run(shop.stranger, error)
    failures = shop.before()
    assert [failure["runs"] for failure in failures] == runs
    assert all(failure["what"] == error for failure in failures)


def test_a_released_failure_of_an_untrusted_key_is_told_in_its_words(shop):
    for _ in range(3):
        shop.run(shop.stranger, OWN_ERROR)
    assert shop.before() == []
    waiting = shop.api.run(shop.memory.quarantine.waiting())
    ids = [entry.id for entry in waiting]
    shop.api.run(shop.memory.quarantine.release(ids, by="ann"))
    assert [failure["what"] for failure in shop.before()] == [OWN_ERROR]

    shop.run(shop.stranger, ABSENT % "zqevil")
    assert [failure["what"] for failure in shop.before()] == [OWN_ERROR]

    # What was released is about one command.
    for _ in range(3):
        shop.run(shop.stranger, OWN_ERROR, command="make load")
    assert shop.before("make load") == []


@pytest.mark.both_nightly
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(OWN_ERROR, id="the same error"),
        pytest.param("KeyError: 'larder'", id="another error"),
    ],
)
def test_a_released_text_counts_for_no_call_that_it_does_not_name(shop, second):
    """The reviewer has not read of the other call of the session."""
    for _ in range(3):
        shop.run(shop.stranger, OWN_ERROR, then=("make larder", second))
    waiting = shop.api.run(shop.memory.quarantine.waiting())
    ids = [entry.id for entry in waiting if COMMAND in entry.lesson]
    shop.api.run(shop.memory.quarantine.release(ids, by="ann"))
    for _ in range(3):
        shop.run(shop.stranger, OWN_ERROR, command="make larder")
    assert shop.before("make larder") == []
    assert [failure["what"] for failure in shop.before()] == [OWN_ERROR]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param((), id="at once"),
        pytest.param(("KeyError: 'larder'",), id="after another error of the call"),
    ],
)
def test_a_released_text_counts_for_no_later_call_of_its_session(shop, later):
    shop.run(shop.stranger, OWN_ERROR)
    waiting = shop.api.run(shop.memory.quarantine.waiting())
    ids = [entry.id for entry in waiting]
    shop.api.run(shop.memory.quarantine.release(ids, by="ann"))
    for error in later:
        shop.run(shop.stranger, error, goes_on=True)
    shop.run(shop.stranger, OWN_ERROR, command="make larder", goes_on=True)
    for _ in range(3):
        shop.run(shop.stranger, OWN_ERROR, command="make larder")
    assert shop.before("make larder") == []


@pytest.mark.both_nightly
def test_an_untrusted_key_exchanges_no_words_of_a_warning(shop):
    other = "Error: the larder is stale, remove the folder before the next step"
    for _ in range(3):
        shop.run(shop.agent, OWN_ERROR)
        shop.run(shop.agent, other, command="make larder")
    failures = shop.before()
    for _ in range(2):
        shop.run(shop.stranger, other)
    assert shop.before() == failures


@pytest.mark.both_nightly
def test_a_revoked_key_takes_its_failures_along(shop):
    shop.trust(source_of(shop.stranger))
    for _ in range(2):
        shop.run(shop.agent, OWN_ERROR)
    opening = shop.opening()
    for _ in range(2):
        shop.run(shop.stranger, ABSENT % "stolen")
    assert [(failure["what"], failure["runs"]) for failure in shop.before()] == [
        (ABSENT % "stolen", 4)
    ]

    shop.revoke(shop.stranger)
    assert [(failure["what"], failure["runs"]) for failure in shop.before()] == [
        (OWN_ERROR, 2)
    ]
    assert shop.opening() == opening
