"""heedful for CrewAI: a task is answered until its output is right.

    task = watch(Task(…), Host(checks=[…], memory_key="triage"))

The task gets a guardrail, and the interception points of CrewAI get hooks, which leave
other tasks alone. The id of a run is the input `heedful_id` of the crew: a run with the
id of an earlier one, which may have been killed, goes on with it.
"""

import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from crewai import Task
from crewai.agents.parser import (
    AgentAction,
    AgentFinish,
    OutputParserError,
    parse,
)
from crewai.hooks.dispatch import (
    HookAborted,
    InterceptionPoint,
    get_global_hook_list,
    on,
)
from pydantic import ValidationError

from heedful.errors import UsageUnknown
from heedful.integrations.attempts import (
    ID_KEY,
    Attempts,
    checked_host,
    run_now,
)
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Usage

T = TypeVar("T", bound=Task)
# What CrewAI writes before the error of a tool.
TOOL_ERROR = "Error executing tool: "
# What a model without calls of its provider writes before its answer.
FINAL_ANSWER = "Final Answer: "
# The attribute of the guardrail of a watched task that makes the run of an execution.
NEW_RUN_ATTRIBUTE = "heedful_new_run"


def watch(task: T, host: Host, *, hold_back: bool = False) -> T:
    """Check each output of a task, feed back what is wrong, and return the best.

    Returns the task. A guardrail of the task itself comes first. With `hold_back`, a
    call of a tool that failed before does not run: the model reads what happened. When
    the model makes the same call again, it runs.
    """
    checked_host(host, "CrewAI")
    own_guardrail = task._guardrail

    def new_run(id: str, executed_task: Any) -> _TaskRun:
        """Return the run of an execution of the task, or of a copy of it."""
        return _TaskRun(
            run=host.run(id, executed_task.description),
            hold_back=hold_back,
            task=executed_task,
            own_guardrail=own_guardrail,
            failed_calls=executed_task.tools_errors,
            counted=_tokens_of(executed_task),
        )

    _mark_as_watched(task, new_run)
    # The policy of the host ends a run; CrewAI raises when its retries end.
    task.guardrail_max_retries = sys.maxsize
    # CrewAI has one list of hooks for all tasks.
    for point, hook in HOOKS.items():
        if hook not in get_global_hook_list(point):
            on(point)(hook)
    return task


def _mark_as_watched(task: Task, new_run: Callable[[str, Any], Any]) -> None:
    """Give a task a guardrail that leads the hooks from the task to `new_run`.

    CrewAI copies tasks, and a copy keeps its guardrail. The guardrail accepts each
    output; when an execution begins, `_TaskRun.check` takes its place.
    """

    def accept(output: Any) -> tuple[bool, Any]:
        return True, output

    vars(accept)[NEW_RUN_ATTRIBUTE] = new_run
    task.guardrail = accept


@dataclass(eq=False, kw_only=True)
class _TaskRun(Attempts):
    """The attempts of one execution of a task.

    `own_guardrail` is the guardrail of the task itself. `failed_calls` is how many
    calls of tools have failed so far. `hold_reasons` says of each call that does not
    run why, by the id of the call: the place of its arguments in memory.
    """

    task: Any
    own_guardrail: Any
    failed_calls: int = 0
    hold_reasons: dict[str, str] = field(default_factory=dict)

    def answer_in(self, text: str) -> Any:
        """Return an answer: the object that the task asks for, or else its text."""
        model = self.task.output_pydantic or self.task.output_json
        try:
            return model.model_validate_json(text).model_dump(mode="json")
        except (AttributeError, ValidationError):
            # No object is asked for, or the text is none; CrewAI may convert it later.
            return text

    def advise(self, context: Any) -> None:
        """Show the model what memory has; count the call of the model.

        CrewAI itself shows the answer that was rejected in this process.
        """
        self.count(_tokens_of(self.task))
        self.closing()
        self.run.spent += Usage(1)
        texts = [self.recalled]
        if self.feedback and not self.run.outputs:
            texts += [self.rejected, self.feedback]
        text = "\n\n".join(filter(None, texts))
        contents = [str(message.get("content")) for message in context.messages]
        if text and not any(text in content for content in contents):
            context.messages.append({"role": "user", "content": text})

    def hear_answer(self, context: Any) -> str | None:
        """Keep the last text of the model.

        Return the last answer in its place if the run ends: before a call of a tool
        that the model writes as text, its budget may be spent.
        """
        self.count(_tokens_of(self.task))
        if _calls_tool(context.response):
            self.must_stop()
        closing = self.closing() if self.stopped else ""
        self.hear(context.response)
        return f"{FINAL_ANSWER}{closing}" if closing else None

    def hold(self, context: Any) -> bool | None:
        """Ask memory about a call; return False if it does not run."""
        call = str(id(context.tool_input))
        reason = run_now(self.ask(context.tool_name, context.tool_input, call))
        if not reason:
            return None
        self.hold_reasons[call] = reason
        return False

    def note_result(self, context: Any) -> str:
        """Keep the result of a call, or ask about its error; add what is known."""
        call = str(id(context.tool_input))
        self.count(_tokens_of(self.task))
        if self.must_stop():
            _finish(context.agent, self.closing())
        if call in self.hold_reasons:
            return self.hold_reasons.pop(call)

        text = str(context.tool_result)
        failed = self.task.tools_errors > self.failed_calls
        self.failed_calls = self.task.tools_errors
        result = text.removeprefix(TOOL_ERROR) if failed else text
        run_now(self.keep(context.tool_name, result, call, failed=failed))
        return "\n".join([text, *self.run.call_advice.pop(call, ())])

    def check(self, output: Any) -> tuple[bool, Any]:
        """Return True and the best output, or False and what is wrong with this one."""
        if self.own_guardrail is not None:
            is_accepted, answer = self.own_guardrail(output)
            if not is_accepted:
                return False, answer

        self.count(_tokens_of(self.task))
        if run_now(self.judge(self.answer_in(output.raw))):
            return False, self.feedback
        return True, self.best_text if self.has_better else output


def _tokens_of(task: Any) -> Usage:
    """Return the tokens of the model of a task so far, in all its runs."""
    summary = task.agent.llm.get_token_usage_summary()
    return Usage(0, summary.prompt_tokens, completion_tokens=summary.completion_tokens)


def _run_of(task: Any) -> _TaskRun | None:
    """Return the run of a watched task that is executed, None for others."""
    run = getattr(getattr(task, "_guardrail", None), "__self__", None)
    return run if isinstance(run, _TaskRun) else None


def _watched(work: Callable[[_TaskRun, Any], Any]) -> Callable[[Any], Any]:
    """Return a hook that works for the run of a watched task."""

    def hook(context: Any) -> Any:
        run = _run_of(context.task)
        try:
            return work(run, context) if run else None
        except UsageUnknown as error:
            # CrewAI ignores any other exception of a hook.
            raise HookAborted(str(error)) from error

    return hook


def _begin(context: Any) -> None:
    """Begin the run of a watched task, or go on with that of an earlier process."""
    task = context.task
    new_run = getattr(getattr(task, "guardrail", None), NEW_RUN_ATTRIBUTE, None)
    if new_run is None:
        return

    run = new_run(_run_id(task), task)
    task._guardrail = run.check
    run_now(run.begin())


def _run_id(task: Any) -> str:
    """Return the id of the crew's run, with the number of the task from the second."""
    crew = getattr(task.agent, "crew", None)
    inputs = getattr(crew, "_inputs", None) or {}
    id = str(inputs.get(ID_KEY) or secrets.token_hex(8))
    for number, crew_task in enumerate(getattr(crew, "tasks", ()), 1):
        if crew_task is task and number > 1:
            return f"{id}:{number}"
    return id


def _calls_tool(text: str) -> bool:
    """Return True if a text of the model is a call of a tool."""
    try:
        return isinstance(parse(text), AgentAction)
    except OutputParserError:
        return False


def _finish(agent: Any, text: str) -> None:
    """Let an agent whose model makes calls of its provider end with a text."""
    state = getattr(agent.agent_executor, "state", None)
    if state is not None:
        state.current_answer = AgentFinish(thought="", output=text, text=text)
        state.is_finished = True


def _take_run(task: Any) -> _TaskRun | None:
    """Take the run off a task and return it, None if it is not watched."""
    run = _run_of(task)
    if run is not None:
        task._guardrail = run.own_guardrail
    return run


def _end(context: Any) -> None:
    """Learn from the run of a task, and add the verdict to its output."""
    run = _take_run(context.task)
    if run is not None:
        vars(context.payload)[RESULT_KEY] = run_now(run.end())


def _show_verdict(context: Any) -> None:
    """Let the output of a crew have the verdict on its last task."""
    for output in getattr(context.payload, "tasks_output", ())[-1:]:
        vars(context.payload)[RESULT_KEY] = vars(output).get(RESULT_KEY)


def _fail(context: Any) -> None:
    """Learn from the runs that an exception has ended."""
    for task in getattr(context.crew, "tasks", ()):
        run = _take_run(task)
        if run is not None:
            run_now(run.end("error"))


HOOKS: Mapping[InterceptionPoint, Callable[[Any], Any]] = {
    InterceptionPoint.PRE_STEP: _begin,
    InterceptionPoint.PRE_MODEL_CALL: _watched(_TaskRun.advise),
    InterceptionPoint.POST_MODEL_CALL: _watched(_TaskRun.hear_answer),
    InterceptionPoint.PRE_TOOL_CALL: _watched(_TaskRun.hold),
    InterceptionPoint.POST_TOOL_CALL: _watched(_TaskRun.note_result),
    InterceptionPoint.POST_STEP: _end,
    InterceptionPoint.OUTPUT: _show_verdict,
    InterceptionPoint.EXECUTION_END: _fail,
}
