"""heedful for CrewAI: a task is answered until its output is right.

    task = watch(Task(…), Host(checks=[…], memory_key="triage"))

The task gets a guardrail, and the interception points of CrewAI get hooks, which leave
other tasks alone. The id of a run is the input `heedful_id` of the crew: a run with the
id of an earlier one, which may have been killed, goes on with it.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from crewai import Task
from crewai.agents.parser import AgentFinish
from crewai.hooks.dispatch import InterceptionPoint, get_global_hook_list, on
from pydantic import ValidationError

from heedful.integrations.attempts import ID_KEY, Attempts, checked_host, run_now
from heedful.integrations.host import Host
from heedful.integrations.results import RESULT_KEY
from heedful.loop.record import Usage

T = TypeVar("T", bound=Task)
# What CrewAI writes before the error of a tool.
TOOL_ERROR = "Error executing tool: "
# What a model without calls of its provider writes before its answer.
FINAL_ANSWER = "Final Answer: "


def watch(task: T, host: Host, *, hold_back: bool = False) -> T:
    """Check each output of a task, feed back what is wrong, and return the best.

    Returns the task. A guardrail of the task itself comes first. With `hold_back`, a
    call of a tool that failed before does not run: the model reads what happened. When
    the model makes the same call again, it runs.
    """
    first_guardrail = task._guardrail
    runs = _Runs(host=checked_host(host), hold_back=hold_back)

    def guardrail(output: Any) -> tuple[bool, Any]:
        """Return True and the best output, or False and what is wrong with the last."""
        if first_guardrail is not None:
            accepted, answer = first_guardrail(output)
            if not accepted:
                return False, answer
        return runs.judge(output)

    # CrewAI looks at the annotation itself, which must be no text.
    guardrail.__annotations__["return"] = tuple[bool, Any]
    vars(guardrail)[RESULT_KEY] = runs
    task.guardrail = guardrail
    task._guardrail = guardrail
    # The policy of the host ends a run; CrewAI raises when its retries end.
    task.guardrail_max_retries = sys.maxsize
    for point, hook in HOOKS.items():
        if hook not in get_global_hook_list(point):
            on(point)(hook)
    return task


@dataclass(eq=False, kw_only=True)
class _TaskRun(Attempts):
    """The attempts of one execution of a task.

    `errors` is how many calls of tools have failed. `held_texts` has the reasons of
    calls that do not run. Calls are known by the place of their arguments in memory.
    """

    task: Any
    errors: int = 0
    held_texts: dict[str, str] = field(default_factory=dict)

    def tokens(self) -> Usage:
        """Return the tokens of the model so far, in all its runs."""
        summary = self.task.agent.llm.get_token_usage_summary()
        prompt_tokens = summary.prompt_tokens
        return Usage(0, prompt_tokens, completion_tokens=summary.completion_tokens)

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
        self.spent += Usage(1)
        self.closing()
        texts = [self.recalled]
        if self.feedback and not self.run.outputs:
            texts += [self.rejected, self.feedback]
        text = "\n\n".join(filter(None, texts))
        contents = [str(message.get("content")) for message in context.messages]
        if text and not any(text in content for content in contents):
            context.messages.append({"role": "user", "content": text})

    def hear_answer(self, context: Any) -> str | None:
        """Keep the last text of the model.

        Return the last answer in its place if the run ends because a call repeats.
        """
        closing = self.closing()
        self.hear(context.response)
        return f"{FINAL_ANSWER}{closing}" if closing else None

    def hold(self, context: Any) -> bool | None:
        """Ask memory about a call; return False if it does not run."""
        arguments = context.tool_input
        call = str(id(arguments))
        text = run_now(self.ask(context.tool_name, arguments, call))
        if not text:
            return None
        self.held_texts[call] = text
        return False

    def note_result(self, context: Any) -> str | None:
        """Keep the result of a call, or ask about its error; add what is known."""
        call = str(id(context.tool_input))
        if call in self.held_texts:
            if self.repeats.stopped:
                _finish(context.agent, self.closing())
            return self.held_texts.pop(call)

        text = str(context.tool_result)
        failed = self.task.tools_errors > self.errors
        self.errors = self.task.tools_errors
        result = text.removeprefix(TOOL_ERROR) if failed else text
        run_now(self.keep(context.tool_name, result, call, failed=failed))
        advice = self.run.call_advice.pop(call, None)
        return "\n".join([text, *advice]) if advice else None


@dataclass(eq=False, kw_only=True)
class _Runs:
    """The runs of one watched task and of its copies, by the ids of task objects."""

    host: Host
    hold_back: bool
    current: dict[int, _TaskRun] = field(default_factory=dict)

    def begin(self, task: Any) -> None:
        """Begin the run of a task, or go on with that of an earlier process."""
        crew = getattr(task.agent, "crew", None)
        inputs = getattr(crew, "_inputs", None) or {}
        name = str(inputs.get(ID_KEY) or secrets.token_hex(8))
        tasks = getattr(crew, "tasks", [task])
        number = next((n for n, other in enumerate(tasks) if other is task), 0)
        if number:
            name = f"{name}:{number + 1}"

        host_run = self.host.run(name, task.description)
        run = _TaskRun(run=host_run, hold_back=self.hold_back, task=task)
        self.current[id(task)] = run
        RUNNING.set(run)
        run.counted = run.tokens()
        run.errors = task.tools_errors
        run_now(run.begin())

    def judge(self, output: Any) -> tuple[bool, Any]:
        """Judge an output of the task that runs in this context."""
        run = RUNNING.get()
        if run is None:
            return True, output

        run.count(run.tokens())
        if run_now(run.judge(run.answer_in(output.raw))):
            return False, run.feedback
        return True, run.best_text if run.has_better else output


# The run of the task that is executed in this context.
RUNNING: ContextVar[_TaskRun | None] = ContextVar("heedful_crewai", default=None)


def _runs_of(task: Any) -> _Runs | None:
    """Return the runs of a task, None if it is not watched."""
    runs = getattr(getattr(task, "_guardrail", None), RESULT_KEY, None)
    return runs if isinstance(runs, _Runs) else None


def _watched(work: Callable[[_TaskRun, Any], Any]) -> Callable[[Any], Any]:
    """Return a hook that works for the current run of a watched task."""

    def hook(context: Any) -> Any:
        runs = _runs_of(context.task)
        run = runs.current.get(id(context.task)) if runs else None
        return work(run, context) if run else None

    return hook


def _begin(context: Any) -> None:
    """Begin the run of a watched task."""
    runs = _runs_of(context.task)
    if runs is not None:
        runs.begin(context.task)


def _finish(agent: Any, text: str) -> None:
    """Let an agent whose model makes calls of its provider end with a text."""
    state = getattr(agent.agent_executor, "state", None)
    if state is not None:
        state.current_answer = AgentFinish(thought="", output=text, text=text)
        state.is_finished = True


def _take_run(task: Any) -> _TaskRun | None:
    """Forget the current run of a task and return it, None if it is not watched."""
    runs = _runs_of(task)
    run = runs.current.pop(id(task), None) if runs else None
    if run is not None:
        RUNNING.set(None)
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
