"""Files of coding agents: their calls and results, what failed, and how they ended.

A step is written as the call, an arrow and its result: `shell npm test -> 12 passed`.
A result that is a failure has `!` before it, one of a call that nobody allowed `x`.
"""

import json
from collections.abc import Sequence
from typing import Any

from heedful.episodes import read
from heedful.episodes.course import course
from heedful.episodes.episode import Episode, Event
from tests.tables import cases

Data = dict[str, Any]


def lines(values: Sequence[Any]) -> bytes:
    """Return values as a file with a line for each."""
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def call_text(call: Event) -> str:
    """Return the tool of a call and the values of its arguments."""
    arguments = call.arguments
    if isinstance(arguments, dict):
        arguments = " ".join(str(value) for value in arguments.values())
    return f"{call.tool} {arguments or ''}".strip()


def steps_of(episode: Episode) -> list[str]:
    """Return the calls of an episode with their results, as the module says."""
    run = course(episode)
    steps = []
    for position, call in enumerate(run.events):
        if call.type != "tool_call":
            continue
        result = run.result[position]
        if result is None:
            steps.append(call_text(call))
            continue
        mark = "!" if run.failure[result] else ""
        if position in run.refused:
            mark = "x"
        words = run.events[result].error or run.events[result].content
        steps.append(f"{call_text(call)} -> {mark}{words.strip()}")
    return steps


# Codex


def codex_item(kind: str, **fields: Any) -> Data:
    return {"type": "response_item", "payload": {"type": kind, **fields}}


def codex_call(id: str, tool: str, arguments: Data, output: str) -> list[Data]:
    """Return the entries of a call and its output in a rollout."""
    text = json.dumps(arguments)
    return [
        codex_item("function_call", name=tool, arguments=text, call_id=id),
        codex_item("function_call_output", call_id=id, output=output),
    ]


def codex_meta(id: str, **more: Any) -> Data:
    return {"type": "session_meta", "payload": {"id": id, "cwd": "/srv/shop", **more}}


def codex_output(state: str, text: str) -> str:
    """Return an output of `exec_command`, of a process that exited or is running."""
    head = f"Chunk ID: 0a1b2c\nWall time: 0.5 seconds\nProcess {state}\n"
    return f"{head}Original token count: 4\nOutput:\n{text}"


MISSING = "make: *** No rule to make target 'lint'."


@cases(
    "entries, steps",
    {
        "the exit code of exec_command stands in a header": (
            codex_call(
                "1",
                "exec_command",
                {"cmd": "make lint"},
                codex_output("exited with code 2", MISSING),
            ),
            [f"exec_command make lint -> !{MISSING}"],
        ),
        "an output and its exit code as an object": (
            codex_call(
                "1",
                "shell",
                {"command": ["make", "lint"]},
                json.dumps({"output": MISSING, "metadata": {"exit_code": 2}}),
            ),
            [f"shell ['make', 'lint'] -> !{MISSING}"],
        ),
        "a poll returns the result of the command": (
            codex_call(
                "1",
                "exec_command",
                {"cmd": "make lint"},
                codex_output("running with session ID 7", "checking\n"),
            )
            + codex_call(
                "2",
                "write_stdin",
                {"session_id": 7, "chars": ""},
                codex_output("exited with code 2", MISSING),
            ),
            [f"exec_command make lint -> !{MISSING}"],
        ),
        "an error event ends an open call": (
            [
                codex_item("custom_tool_call", name="apply_patch", input="*** Begin"),
                {
                    "type": "event_msg",
                    "payload": {"type": "error", "message": "stream closed"},
                },
            ],
            ["apply_patch *** Begin -> !stream closed"],
        ),
    },
)
def test_steps_of_codex(entries, steps):
    [episode] = read(lines([codex_meta("s1"), *entries]))
    assert steps_of(episode) == steps


def test_a_fork_of_codex_is_one_episode():
    ls = codex_call("1", "shell", {"command": ["ls"]}, "a.py")
    fork = codex_meta("s2", forked_from_id="s1")
    [episode] = read(lines([fork, codex_meta("s1"), *ls]))
    assert episode.session == "s2"


def test_agents_md_is_not_the_task_of_codex():
    prompts = ["# AGENTS.md instructions for /srv/shop\nUse pnpm.", "Run the tests."]
    entries = [
        codex_item("message", role="user", content=[{"type": "input_text", "text": t}])
        for t in prompts
    ]
    [episode] = read(lines([codex_meta("s1"), *entries]))
    assert episode.task == "Run the tests."
    assert episode.events[0].origin == "outside"


# codex exec --json


def exec_item(kind: str, event: str = "completed", **fields: Any) -> Data:
    item = {"id": "item_1", "type": kind, "status": "completed", **fields}
    return {"type": f"item.{event}", "item": item}


def exec_message(kind: str, **fields: Any) -> Data:
    return {"id": "0", "msg": {"type": kind, "call_id": "c", **fields}}


@cases(
    "events, steps",
    {
        "a command that failed": (
            [
                exec_item(
                    "command_execution",
                    command="make 'lint all'",
                    aggregated_output=MISSING,
                    exit_code=2,
                    status="failed",
                )
            ],
            [f"shell make 'lint all' -> !{MISSING}"],
        ),
        "a command that was declined": (
            [exec_item("command_execution", command="rm a", status="declined")],
            ["shell rm a -> xThe call was not allowed by the user."],
        ),
        "a change that failed": (
            [
                exec_item(
                    "file_change",
                    changes=[{"path": "a.py", "kind": "update"}],
                    status="failed",
                )
            ],
            ["apply_patch a.py -> !error"],
        ),
        "a tool of a server that failed": (
            [
                exec_item(
                    "mcp_tool_call",
                    server="db",
                    tool="query",
                    arguments={"sql": "select 1"},
                    error={"message": "no table"},
                    status="failed",
                )
            ],
            ["mcp__db__query select 1 -> !no table"],
        ),
        "a command in the older form": (
            [
                exec_message("exec_command_begin", command=["make", "lint"]),
                exec_message("exec_command_output_delta", chunk=[1]),
                exec_message("exec_command_end", stderr=MISSING, exit_code=2),
            ],
            [f"shell ['make', 'lint'] -> !{MISSING}"],
        ),
    },
)
def test_steps_of_codex_exec(events, steps):
    [episode] = read(lines(events))
    assert steps_of(episode) == steps


def test_a_thread_of_codex_exec_has_its_outcome():
    failed = {"type": "turn.failed", "error": {"message": "rate limit reached"}}
    thread = {"type": "thread.started", "thread_id": "t1"}
    other = {"type": "thread.started", "thread_id": "t2"}
    answer = exec_item("agent_message", text="Done.")
    first, second = read(
        lines([thread, failed, other, answer, {"type": "turn.completed"}])
    )

    assert first.session == "t1"
    assert first.outcome == "error"
    assert first.fault is not None
    assert first.fault.message == "rate limit reached"
    assert second.session == "t2"
    assert second.outcome == "partial"


def test_an_error_after_which_a_turn_of_codex_exec_goes_on_is_none():
    error = {"type": "error", "message": "Reconnecting... 1/5"}
    [episode] = read(lines([error, exec_item("agent_message", text="Done.")]))
    assert episode.outcome == "error"
    events = [error, exec_item("agent_message", text="Done.")]
    [episode] = read(lines([*events, {"type": "turn.completed"}]))
    assert episode.outcome == "partial"


# Claude Code


def claude_call(id: str, command: str, output: str, *, bad: bool) -> list[Data]:
    """Return the entries of a command and its result."""
    use = {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": id, "content": output}
    return [
        {"type": "assistant", "message": {"role": "assistant", "content": [use]}},
        {
            "type": "user",
            "message": {"role": "user", "content": [result | {"is_error": bad}]},
        },
    ]


def claude_end(subtype: str = "success", **fields: Any) -> Data:
    return {"type": "result", "subtype": subtype, "is_error": False, **fields}


@cases(
    "result, outcome",
    {
        "it succeeded": (claude_end(), "success"),
        "an error of the API": (claude_end(is_error=True), "error"),
        "no result": ({"type": "summary", "summary": "x"}, "partial"),
    },
)
def test_the_result_of_claude_code_is_the_outcome(result, outcome):
    entries = [*claude_call("1", "ls", "a.py", bad=False), result]
    [episode] = read(lines([entry | {"session_id": "s1"} for entry in entries]))
    assert episode.outcome == outcome


def test_a_denied_call_of_claude_code_was_refused():
    denials = [
        {"tool_use_id": "1", "tool_name": "Bash", "tool_input": {"command": "rm a"}},
        {"tool_name": "Write", "tool_input": {"file_path": "b"}},
    ]
    entries = [
        *claude_call("1", "rm a", "You haven't granted it yet.", bad=True),
        claude_end(permission_denials=denials),
    ]
    [episode] = read(lines(entries))
    refusal = "xThe call was not allowed by the user."
    assert steps_of(episode) == [
        f"Bash rm a -> {refusal}\nYou haven't granted it yet.",
        f"Write b -> {refusal}",
    ]


def test_a_result_of_claude_code_alone_is_an_episode():
    result = claude_end("error_max_turns", session_id="s1", errors=["5 turns"])
    [episode] = read(lines([result]))
    assert episode.session == "s1"
    assert episode.outcome == "error"


def test_what_a_subagent_of_claude_code_is_told_is_no_task():
    prompt = {"type": "user", "message": {"role": "user", "content": "Look at a.py"}}
    [episode] = read(lines([prompt | {"parent_tool_use_id": "t"}]))
    assert episode.task == ""


# Actions as text


@cases(
    "said, answer, step",
    {
        "a block of code and a return code": (
            "I look.\n```bash\nmake lint\n```",
            f"<returncode>2</returncode>\n<output>\n{MISSING}\n</output>",
            f"bash make lint -> !{MISSING}",
        ),
        "a function in tags": (
            "<function=sh>\n<parameter=command>\nls\n</parameter>\n</function>",
            "EXECUTION RESULT of [sh]:\na.py",
            "sh ls -> a.py",
        ),
        "code that AutoGen ran": (
            "```python\nrun()\n```",
            "exitcode: 1 (execution failed)\nCode output: no run",
            "python run() -> !exitcode: 1 (execution failed)\nCode output: no run",
        ),
        "an action with an input": (
            "Action: search\nAction Input: heedful (docs)",
            "Observation: Error: no index",
            "search heedful (docs) -> !Error: no index",
        ),
        "an action as an object": (
            'Action:\n```json\n{"action": "add", "action_input": {"a": 1}}\n```',
            "Observation: 1",
            "add 1 -> 1",
        ),
        "an action in a sentence": (
            "**Action 1:** go to desk 1",
            "**Observation 1:** You are there.",
            "action go to desk 1 -> You are there.",
        ),
    },
)
def test_an_action_in_a_text_is_a_call(said, answer, step):
    chat = [
        {"role": "user", "content": "Do it."},
        {"role": "assistant", "content": said},
        {"role": "user", "content": answer},
    ]
    [episode] = read(json.dumps(chat).encode())
    assert steps_of(episode) == [step]
    assert episode.task == "Do it."


@cases(
    "said, answer",
    {
        "a command to a person": ("Run ```sh\nls\n``` please.", "I did."),
        "an action of a person": ("Action: call Bob", "No, call Ann."),
    },
)
def test_what_a_person_answers_is_no_result(said, answer):
    chat = [{"role": "assistant", "content": said}, {"role": "user", "content": answer}]
    [episode] = read(json.dumps(chat).encode())
    assert steps_of(episode) == []
    assert episode.events[-1].type == "user_message"


def test_all_that_follows_actions_is_a_result_if_one_was():
    block = {"role": "assistant", "content": "```\nls\n```"}
    result = {"role": "user", "content": "<output>\na.py\n</output>"}
    chat = [block, result, block, {"role": "user", "content": "a.py"}]
    [episode] = read(json.dumps(chat).encode())
    assert steps_of(episode) == ["bash ls -> a.py"] * 2


def test_a_response_with_its_items_may_stand_in_a_chat():
    call = {"type": "function_call", "call_id": "1", "name": "bash", "arguments": "x"}
    output = "<returncode>1</returncode>\n<output>\nno x\n</output>"
    messages = [
        {"role": "user", "content": "Fix it."},
        {"object": "response", "output": [call]},
        {"type": "function_call_output", "call_id": "1", "output": output},
    ]
    [episode] = read(lines([{"messages": messages, "info": {}}]))
    assert steps_of(episode) == ["bash x -> !no x"]


def test_a_log_of_react_has_an_episode_for_each_question():
    log = """Question: Who wrote it?
Thought 1: I search.
Action 1: Search[author]
Observation 1: KeyError: author
Action 2: Search[writer]
Observation 2: Ann
Final Answer: Ann
Question: When?
Final Answer: 1999
"""
    first, second = read(log.encode())
    assert steps_of(first) == [
        "Search author -> !KeyError: author",
        "Search writer -> Ann",
    ]
    assert first.task == "Who wrote it?"
    assert second.task == "When?"


# aider


AIDER = """
# aider chat started at 2026-01-02 03:04:05

> Aider v0.86.2

#### /add a.py
> Added a.py to the chat

#### Fix the tests
#### and the linter.

I run them.

> pytest
> Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: y
> Running pytest
> Add command output to the chat? (Y)es/(N)o [Yes]: y
> Added 9 lines of output to the chat.
> rm a.py
> Run shell command? (Y)es/(N)o [Yes]: n
> The LLM did not conform to the edit format.
> # 1 SEARCH/REPLACE block failed to match!
> Applied edit to a.py

#### /run make lint
> make: *** No rule to make target 'lint'.
> Add 1.3k tokens of command output to the chat? (Y)es/(N)o [Yes]: y

# aider chat started at 2026-01-02 04:04:05

#### Go on.
> litellm.NotFoundError: no such model
"""


def test_steps_of_aider():
    first, second = read(AIDER.replace("\n", "  \n").encode())
    assert first.task == "Fix the tests\nand the linter."
    edit = "The LLM did not conform to the edit format."
    assert steps_of(first) == [
        "Bash pytest",
        "Bash rm a.py -> xThe call was not allowed by the user.",
        f"edit -> !{edit}\n# 1 SEARCH/REPLACE block failed to match!",
        "edit a.py -> Applied edit to a.py",
        f"Bash make lint -> !{MISSING}",
    ]
    assert second.task == "Go on."
    assert second.outcome == "error"


# SWE-agent and OpenHands


def swe_agent(exit_status: str = "submitted", **more: Any) -> bytes:
    step = {"action": "make lint\n", "observation": MISSING, "thought": "I lint."}
    demo = {"role": "user", "content": "An example.", "is_demo": True}
    run = {
        "trajectory": [step, {"action": "", "observation": "Write an action."}],
        "history": [demo, {"role": "user", "content": "Fix it."}],
        "info": {"exit_status": exit_status, "submission": None},
    }
    return json.dumps(run | more, indent=1).encode()


def test_steps_of_swe_agent():
    [episode] = read(swe_agent())
    assert episode.task == "Fix it."
    assert steps_of(episode) == [f"bash make lint -> !{MISSING}"]


@cases(
    "run, outcome",
    {
        "submitted, which may be wrong": (swe_agent(), "partial"),
        "it cost too much": (swe_agent("exit_cost"), "error"),
        "resolved": (swe_agent(resolved=True), "success"),
        "not resolved": (swe_agent(resolved=False), "failure"),
    },
)
def test_outcomes_of_swe_agent(run, outcome):
    [episode] = read(run)
    assert episode.outcome == outcome


OPENHANDS = [
    {"source": "user", "action": "message", "args": {"content": "Fix it."}},
    {"source": "user", "action": "recall", "args": {"query": "Fix it."}},
    {"id": 1, "action": "run", "args": {"command": "make lint", "thought": "I lint."}},
    {
        "cause": 1,
        "observation": "run",
        "content": MISSING,
        "extras": {"metadata": {"exit_code": 2}},
    },
    {"id": 3, "action": "edit", "args": {"path": "Makefile", "start": 1}},
    {"cause": 3, "observation": "error", "content": "No such line"},
    {"id": 5, "action": "run", "args": {"command": "make serve"}},
    {
        "cause": 5,
        "observation": "run",
        "content": "ready",
        "extras": {"exit_code": -1},
        "success": False,
    },
    {"observation": "agent_state_changed", "extras": {"agent_state": "running"}},
    {"action": "finish", "args": {"final_thought": "Done."}},
]
OPENHANDS_STEPS = [
    f"run make lint -> !{MISSING}",
    "edit Makefile -> !No such line",
    "run make serve -> ready",
]


@cases(
    "file, outcome",
    {
        "a line for each event": (lines(OPENHANDS), "partial"),
        "a record of an evaluation": (
            lines([{"history": OPENHANDS, "test_result": {"resolved": True}}]),
            "success",
        ),
        "a record with pairs of events": (
            lines([{"history": [OPENHANDS[:2], OPENHANDS[2:]], "error": "stuck"}]),
            "error",
        ),
    },
)
def test_steps_of_openhands(file, outcome):
    [episode] = read(file)
    assert episode.task == "Fix it."
    assert episode.outcome == outcome
    assert steps_of(episode) == OPENHANDS_STEPS


def openhands_event(kind: str, call: str = "1", **fields: Any) -> Data:
    ids = {"tool_name": "terminal", "tool_call_id": call}
    return {"kind": kind, "source": "agent", **ids, **fields}


def test_steps_of_the_sdk_of_openhands():
    prompt = {"role": "user", "content": [{"type": "text", "text": "Fix it."}]}
    failed = {"content": [{"type": "text", "text": MISSING}], "is_error": True}
    command = {"kind": "TerminalAction", "command": "make lint"}
    events = [
        {"kind": "MessageEvent", "source": "user", "llm_message": prompt},
        openhands_event("ActionEvent", action=command, thought=[]),
        openhands_event("ObservationEvent", observation=failed),
        openhands_event("ActionEvent", "2", action=None),
        openhands_event("AgentErrorEvent", "2", error="no such tool"),
        openhands_event("ActionEvent", "3", action=command),
        openhands_event("UserRejectObservation", "3", rejection_reason="No."),
        {"kind": "ConversationErrorEvent", "source": "environment", "detail": "503"},
    ]
    [episode] = read(lines(events))
    assert episode.task == "Fix it."
    assert episode.outcome == "error"
    assert steps_of(episode) == [
        f"terminal make lint -> !{MISSING}",
        "terminal -> !no such tool",
        "terminal make lint -> xThe call was not allowed by the user.\nNo.",
    ]
