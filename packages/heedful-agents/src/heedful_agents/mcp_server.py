"""heedful as an MCP server: six tools for any agent.

The tools ask the routes of the service, so keys, permissions, limits and quarantine are
those of HTTP, also over standard input and output. What comes in has the trust of a
tool, and waits in quarantine unless an operator trusts its source. No tool overrides a
rule or releases a lesson.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache, wraps
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, cast

from pydantic import Field, ValidationError, WrapValidator

import heedful
from heedful.errors import HeedfulError, PackageMissing, UsageError
from heedful.faults import fault_line
from heedful.lessons.lesson import Remembered
from heedful.lessons.render import facts
from heedful.loop.codec import verdict_from
from heedful.loop.decide import Again, Done
from heedful.loop.explain import Line
from heedful.loop.record import Evaluation
from heedful.pages import render
from heedful.store import shown
from heedful.validation import Document, check_options

# The service, and the caller for whom its routes are asked.
_app_and_caller: ContextVar[tuple[Any, Any]] = ContextVar("heedful_mcp_asking")
# How an operator writes a command, so that it finds the database from any folder.
_command_form: ContextVar[str] = ContextVar("heedful_mcp_line", default="{}")
# The path in the service.
MCP_PATH = "/mcp"
# Without this refusal, the loop would end as unscored.
UNJUDGED_ATTEMPT_MESSAGE = (
    "nobody has judged this attempt, so nothing is decided. "
    "Report it again with `evaluation`, such as\n"
    '{"findings": [{"check": "dates", "message": "1999 is wrong", '
    '"fix": "write 2001"}], "scores": {}},\n'
    "where findings are empty if nothing is wrong and each goal has a score; "
    "or with `checks`, such as\n"
    '[{"name": "not_empty"}].'
)

Task = Annotated[str, Field(description="The task, in the words in which you got it.")]
LoopId = Annotated[
    str, Field(description="The id of a loop: one name for all attempts at a task.")
]
Error = Annotated[
    str, Field(description="The text of the error, or all that a command wrote.")
]
Specs = Annotated[
    list[Document], Field(description='Checks, such as {"name": "not_empty"}.')
]
Goals = Annotated[
    list[str], Field(description='Goals of a new loop, such as "quality >= 0.8".')
]
# As it was sent, with the fields that the package would drop: they are refused.
Judged = Annotated[Evaluation, WrapValidator(lambda sent, valid: valid(sent) and sent)]
Signatures = Annotated[
    list[str], Field(description="Errors of the task, as seen_error names them")
]
ErrorType = Annotated[
    str, Field(description="The tool that failed or the type of the error.")
]


# The answers have no slots, which the package would take for default values.
@dataclass(frozen=True)
class LessonsAnswer:
    """What earlier runs teach about a task.

    `text` has the facts between delimiters; it is empty if nothing fits. With a loop,
    `shown` and `withheld` count the lessons: a random part is withheld to measure
    whether lessons help. If nothing is shown, `silence` says what keeps the nearest
    lesson back.
    """

    text: str
    shown: int
    withheld: int
    silence: str


# The package takes the title of an output schema from here; callers know this one.
LessonsAnswer.__name__ = "RecallAnswer"


@dataclass(frozen=True, kw_only=True)
class SeenAnswer:
    """What is known about an error: how often it was seen, and in `text` what put it
    right.

    `signature` names the error for `report_outcome`. `quarantine` says what waits
    there.
    """

    count: int
    signature: str
    text: str
    quarantine: str


@dataclass(frozen=True)
class RulesAnswer:
    """The rules that the user gave agents, last said first, each with its ledger."""

    rules: tuple[Document, ...]


@dataclass(frozen=True, kw_only=True)
class ExplainAnswer:
    """Why a loop continued and why it stopped, as a text and by attempt."""

    text: str
    lines: tuple[Line, ...]
    would_change: tuple[str, ...]
    otherwise: str
    closed: tuple[str, ...]


@dataclass(frozen=True)
class RememberAnswer:
    """The stored lesson. `quarantine` says if it waits for a release, and which command
    does it.
    """

    lesson: Remembered
    quarantine: str


@dataclass(frozen=True, kw_only=True)
class AttemptAnswer:
    """The verdict on an attempt: try "again" with the feedback, or stop because it is
    "done".
    """

    attempt: int
    decision: Literal["again", "done"]
    verdict: Again | Done
    quarantine: str


@dataclass(frozen=True)
class OutcomeAnswer:
    """How a loop ended, and if it counts in the proof: `number` is 0 if it does not."""

    state: Literal["open", "passed", "stopped"]
    number: int
    quarantine: str


async def recall_lessons(task: Task, loop: LoopId = "") -> LessonsAnswer:
    """Call this before you begin a task: it returns what earlier runs teach about such
    tasks.

    Give a loop if you will report attempts or an outcome; then it counts what you were
    shown.
    """
    body = {"task": task, "form": "text"}
    if loop:
        body["loop"] = loop
    answer = await _ask_route("POST", "/v1/recall", body)
    exposure = answer["exposure"] or {"shown": 0, "withheld": 0}
    return LessonsAnswer(
        text=answer["text"],
        shown=exposure["shown"],
        withheld=exposure["withheld"],
        silence=answer["silence"],
    )


async def seen_error(error: Error, error_type: ErrorType = "") -> SeenAnswer:
    """Call this after an error, before you try something else: it returns what put it
    right before.

    It finds the error even if names, paths and numbers in it differ.
    """
    answer = await _ask_route(
        "POST", "/v1/seen", {"error_type": error_type, "text": error}
    )
    texts = {
        lesson["id"]: lesson["text"]
        for lesson in answer["lessons"]
        if lesson["text"] and lesson["id"] in answer["told"]
    }
    return SeenAnswer(
        count=answer["count"],
        signature=answer["signature"],
        text=facts(texts) if texts else "",
        quarantine=_take_release("what is known about it", answer),
    )


async def list_rules() -> RulesAnswer:
    """Call this to know which rules the user gave agents, and whether they were kept.

    Each has its figures: told, kept, broken, with the calls.
    """
    answer = await _ask_route("GET", "/v1/rules")
    return RulesAnswer(rules=tuple(answer["rules"]))


async def explain(loop: LoopId) -> ExplainAnswer:
    """Call this to know why a loop continued or stopped, and what would have changed
    that.
    """
    answer = await _ask_route("GET", f"/v1/loops/{loop}/explain")
    del answer["sentence"]  # the text begins with it
    return ExplainAnswer(**answer)


async def remember(
    error: Error,
    lesson: Annotated[
        str, Field(description="What to do next time, in one or two sentences.")
    ],
    error_type: ErrorType = "error",
    task: Annotated[str, Field(description="The task in which it happened.")] = "",
    rejected: Annotated[str, Field(description="The output that was wrong.")] = "",
    accepted: Annotated[str, Field(description="The output that was right.")] = "",
    tags: Annotated[
        list[str], Field(description="Words by which lessons are selected.")
    ] = [],  # noqa: B006 - a schema's default
) -> RememberAnswer:
    """Call this when you know how to fix an error, so that later runs learn it.

    The lesson waits in quarantine until an operator releases it or trusts its source.
    """
    body: dict[str, object] = {
        "error_type": error_type,
        "text": error,
        "lesson": lesson,
        "tags": tags,
    }
    if task:
        body["example"] = {
            "task": task,
            "rejected": rejected,
            "accepted": accepted,
            "wrong": error,
        }

    answer = await _ask_route("POST", "/v1/reflections", body)
    quarantine = _take_release("the lesson", answer)
    return RememberAnswer(Remembered(**answer), quarantine)


async def report_attempt(
    loop: LoopId,
    task: Task,
    output: Annotated[str, Field(description="The whole output of this attempt.")],
    attempt: Annotated[
        int, Field(description="Its number, from 1; 0 is the next one.")
    ] = 0,
    evaluation: Annotated[
        Judged | None, Field(description="Needed if no checks judge.")
    ] = None,
    checks: Specs = [],  # noqa: B006 - a schema's default
    goals: Goals = [],  # noqa: B006 - a schema's default
) -> AttemptAnswer:
    """Call this after each attempt at a task: it decides whether you try again or stop.

    Begins the loop if it is new. Only checks that the operator has pinned to the loop
    measure; what the loop teaches otherwise waits in quarantine.
    """
    judgement = cast("Document | None", evaluation)
    options = [option.name for option in fields(Evaluation)]
    check_options("evaluation", judgement or (), options)

    head = await _ask_route("PUT", f"/v1/loops/{loop}", {"task": task, "goals": goals})

    # An attempt is judged by checks, or by an evaluation with a score for each goal.
    _, caller = _app_and_caller.get()
    has_checks = bool(checks or caller.setup.pinned(caller.scope, loop).checks)
    scores = (judgement or {}).get("scores", {})
    unscored = [goal["score"] for goal in head["goals"] if goal["score"] not in scores]

    is_unjudged = not has_checks and (judgement is None or bool(unscored))
    is_empty = judgement is not None and not scores and "findings" not in judgement
    if is_unjudged or is_empty:
        needs = [f" A goal needs the score {name}." for name in unscored]
        raise UsageError(UNJUDGED_ATTEMPT_MESSAGE + "".join(needs))

    report = {"output": output, "checks": checks, "evaluation": judgement}
    number = attempt or len(head["made"]) + 1
    answer = await _ask_route("PUT", f"/v1/loops/{loop}/attempts/{number}", report)

    return AttemptAnswer(
        attempt=answer["attempt"],
        decision=answer["decision"],
        verdict=verdict_from({**answer, "verdict": answer["decision"]}),
        quarantine=_take_release("what the loop teaches", answer),
    )


async def report_outcome(
    loop: LoopId,
    right_at_once: Annotated[
        bool, Field(description="True if the first attempt was accepted.")
    ],
    calls: Annotated[
        int, Field(description="How often a model was called for the task.")
    ],
    signatures: Signatures = [],  # noqa: B006 - a schema's default
    why: Annotated[
        str, Field(description="Why the loop ends now, if it is still open.")
    ] = "",
) -> OutcomeAnswer:
    """Call this when a task has ended: it ends the loop if it is open, and the outcome
    counts.

    Only the first outcome of a loop counts, and only with a reported attempt and
    recalled lessons.
    """
    loop_answer = await _ask_route("POST", f"/v1/loops/{loop}/cancel", {"why": why})
    body = {
        "loop": loop,
        "right_at_once": right_at_once,
        "calls": calls,
        "signatures": signatures,
    }
    outcome_answer = await _ask_route("POST", "/v1/outcomes", body)
    quarantine = _take_release("what the loop teaches", loop_answer)
    return OutcomeAnswer(loop_answer["state"], outcome_answer["number"], quarantine)


# Tool -> its title, whether it only reads, and whether a second call changes nothing.
MCP_TOOLS: Mapping[Callable[..., Any], tuple[str, bool, bool]] = {
    recall_lessons: ("Recall lessons for a task", False, True),
    seen_error: ("Look up an error", True, True),
    explain: ("Explain a loop", True, True),
    remember: ("Remember a lesson", False, False),
    report_attempt: ("Report an attempt", False, False),
    report_outcome: ("Report how a task ended", False, True),
    list_rules: ("List the rules of the user", True, True),
}


def server_of(app: Any, caller: Any, db: str = "") -> Any:
    """Return an `MCPServer` whose tools ask the routes of `app`, the service.

    They ask as `caller`. With the database `db`, the commands in its answers find it
    from any folder. The server works in the current task and in those that this task
    starts. Raises PackageMissing.
    """
    _app_and_caller.set((app, caller.as_tool()))
    if db:
        place = shown(db) if "://" in db else str(Path(db).absolute())
        _command_form.set(f"{{}} --db {quote(place)}")

    return server()


@dataclass(frozen=True)
class Endpoint:
    """The route of the service that speaks MCP over streamable HTTP, without sessions.

    Its tools ask the other routes of the service as the caller of the request, which
    was admitted before. A request of a page of another origin is refused.
    """

    path: str = MCP_PATH  # for the log of the service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request. Raises PackageMissing."""
        scope["route"] = self
        low = _low_level()
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        guard = TransportSecuritySettings(
            allowed_hosts=[host], allowed_origins=[f"http://{host}", f"https://{host}"]
        )
        manager = StreamableHTTPSessionManager(
            low,
            json_response=True,
            stateless=True,
            security_settings=guard,
            # The service has already compared it with its own limit.
            max_request_body_size=sys.maxsize,
        )
        _app_and_caller.set((scope["app"], scope["state"]["caller"].as_tool()))

        # The tasks of the manager belong to this request: they end with it, and ask as
        # its caller.
        async with manager.run():
            await manager.handle_request(scope, receive, send)


@cache
def _low_level() -> Any:
    """Return the server below the package's `MCPServer`, which a manager needs."""
    mcp_server = server()
    # The application makes the manager that has the server.
    mcp_server.streamable_http_app()
    return mcp_server.session_manager.app


def server() -> Any:
    """Return a new `MCPServer` with the tools. Raises PackageMissing."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ImportError as error:
        raise PackageMissing("the MCP server", "mcp", "mcp") from error

    # Without a handler the package would configure logging for the whole process.
    quiet = logging.NullHandler()
    logging.root.addHandler(quiet)
    mcp_server = MCPServer(
        "heedful",
        title="heedful",
        version=heedful.__version__,
        instructions=render("mcp.txt.j2").strip(),
        subscriptions=False,
    )
    logging.root.removeHandler(quiet)

    mcp_server.call_tool = _refuse_with(  # type: ignore[method-assign]
        _refuse_wrong_arguments(mcp_server.call_tool, ToolError), ToolError
    )
    for function, (title, only_reads, is_idempotent) in MCP_TOOLS.items():
        annotations = ToolAnnotations(
            title=title,
            read_only_hint=only_reads,
            destructive_hint=False,
            idempotent_hint=is_idempotent,
            open_world_hint=False,
        )
        add_tool = mcp_server.tool(
            title=title, annotations=annotations, structured_output=True
        )
        add_tool(_refuse_with(function, ToolError))

    return mcp_server


def _refuse_wrong_arguments(
    call_tool: Callable[..., Any], refusal: type[Exception]
) -> Callable[..., Any]:
    """Return `call_tool`, which refuses unknown arguments: the package drops them.

    `refusal` is the error of the package for a wrong value, whose words are for those
    who write Python; this says in a line what is wrong with each argument.
    """
    options = {tool.__name__: signature(tool).parameters for tool in MCP_TOOLS}

    async def exact(name: str, arguments: Document, context: Any = None) -> Any:
        """Call a tool. Raises UsageError for an argument that it cannot take."""
        check_options(name, arguments, list(options.get(name, arguments)))
        try:
            return await call_tool(name, arguments, context)
        except refusal as error:
            faults = error.__cause__
            if not isinstance(faults, ValidationError):
                raise
            lines = [fault_line(fault) for fault in faults.errors(include_url=False)]
            raise UsageError(f"{name}: {'; '.join(lines)}") from error

    return exact


def _refuse_with(
    function: Callable[..., Any], refusal: type[Exception]
) -> Callable[..., Any]:
    """Return the function with errors of heedful as errors that the model may read."""

    @wraps(function)
    async def refusing(*args: Any, **kwargs: Any) -> Any:
        """Call the function, and raise the error that the model may read."""
        try:
            return await function(*args, **kwargs)
        except HeedfulError as error:
            raise refusal(str(error)) from error

    return refusing


class _RouteRefusal(HeedfulError):
    """A route refused a call of a tool.

    It is not `Refused`, which speaks of a service: who calls a tool may run none.
    """


async def _ask_route(method: str, path: str, body: Any = None) -> Any:
    """Return the JSON answer of a route of the service. Raises _RouteRefusal."""
    app, caller = _app_and_caller.get()
    status, answer = await caller.ask(app, method, path, body=body)
    if status >= 400:
        raise _RouteRefusal(f"{answer['code']}: {answer['detail']}")
    return answer


def _take_release(subject: str, answer: Document) -> str:
    """Take the command for a release out of an answer, and say what waits for it."""
    release = answer.pop("release")
    if not release:
        return ""
    # The service named the scope in the command; this names the database.
    command = _command_form.get().replace("{}", release)
    return f"{subject} waits in quarantine until an operator runs: {command}"
