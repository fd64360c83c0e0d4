"""The hook process: `heedful-hook EVENT [--agent NAME] [--strict]` answers one event.

It starts for each event, so it imports neither Typer nor pydantic nor Rich, and reads
the settings by itself. Whatever goes wrong, the agent continues: nothing is printed,
the exit code is 0, and the log, `~/.heedful/hook.log`, gets one line. Learning happens
in a process that nobody waits for.
"""

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from heedful.errors import HeedfulError, UsageError
from heedful.knowledge import ROWS_FOLDER, use_rows_of
from heedful.redact import redact, redact_start
from heedful.sanitize import visible
from heedful.store.inline import run_inline
from heedful.store.projects import (
    SETTINGS_FILE,
    find_project,
    own_settings,
    private,
    user_folder,
    write_private,
)
from heedful.validation import MAX_READ_BYTES, Document, Fields, hex_digest
from heedful_agents import session_hooks, session_plan
from heedful_agents.accepted_rules import doubt_about_rules
from heedful_agents.agents import (
    AGENTS,
    DEFAULT_AGENT,
    Agent,
    Answer,
    Kind,
    find_agent,
    in_our_names,
)
from heedful_agents.session_hooks import Reply
from heedful_agents.transcripts import FailedCall, failed_calls

if TYPE_CHECKING:  # a hook process imports only what its event needs
    from heedful.integrations.call_host import CallHost

T = TypeVar("T")
HOOK_USAGE = (
    "usage: heedful-hook EVENT [--agent NAME] [--strict]; EVENT is the agent's own "
    "name for it"
)
# No agent sends a larger event.
MAX_HOOK_EVENT_BYTES = 8 * 2**20
# The time until an answer; the end of a turn may take longer. With the start of Python,
# no call waits longer than 3 s.
HOOK_TIMEOUT_SECONDS = 2.5
# That of events at which no call waits; agents give a hook 10 s.
IDLE_TIMEOUT_SECONDS = 8.0
IDLE_KINDS: tuple[Kind, ...] = ("start", "stop", "end")
# The settings that a hook needs: the default of each, and what the user may write.
HOOK_SETTINGS: Mapping[str, tuple[Any, tuple[type, ...]]] = {
    "db": ("", (str,)),
    "tenant": ("default", (str,)),
    "project": ("default", (str,)),
    "holdout": (0.1, (float, int)),
    "policy": ("default", (str, dict)),
    "trust": ([], (list,)),
    "strict": (False, (bool,)),
    "hook": ({}, (dict,)),
}


def detach(work: str, session: str, folder: Path) -> None:
    """Do the work for a session in a process that nobody waits for."""
    import subprocess

    # With -P no file of the folder is taken for a module.
    module = ["-P", "-m", "heedful_agents.hook"]
    process = subprocess.Popen(
        [sys.executable, *module, work, "--work", session],
        cwd=folder,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    process.returncode = 0  # nobody waits for it


def main(
    arguments: Sequence[str] | None = None,
    *,
    start_work: Callable[[str, str, Path], object] = detach,
    beginning: bytes = b"",
) -> int:
    """Answer one event on standard input; return the exit code.

    `start_work` gets the work that the answer leaves, the session and the folder. What
    was read of the event already has `beginning` it.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    strict = "--strict" in words
    words = [word for word in words if word != "--strict"]
    agent_name = _take_option(words, "--agent") or DEFAULT_AGENT
    session = _take_option(words, "--work")

    if len(words) != 1 or words[0].startswith("-"):
        print(HOOK_USAGE, file=sys.stderr)
        # If a hook exits with 2, Claude Code blocks the action.
        return 1

    event = words[0]
    logger = logging.getLogger("heedful")
    warning_lines = _WarningLines(event)
    logger.addHandler(warning_lines)
    try:
        with suppress(KeyboardInterrupt):
            use_rows_of(user_folder() / ROWS_FOLDER)
            if session:
                _do_work(event, session, strict)
            else:
                _answer_event(
                    event,
                    agent_name,
                    strict,
                    start_work=start_work,
                    beginning=beginning,
                )
    except Exception as error:  # the edge to the agent, which must not fail by us
        reason = _report_failure(error, event, agent_name)
        if strict:
            print(f"heedful-hook: {reason}", file=sys.stderr)
    finally:
        logger.removeHandler(warning_lines)

    return 0


def _report_failure(error: Exception, event: str, agent_name: str) -> str:
    """Log the reason why an event has no answer, and return the reason.

    The user hears it if the agent can show it.
    """
    reason = ""
    if isinstance(error, HeedfulError):
        reason = " ".join(redact(str(error)).split())

    _log_line(f"{event}: {type(error).__name__}: {reason}".rstrip(": "))
    agent = AGENTS.get(agent_name)
    if reason and agent is not None and event in agent.notice_events:
        notice = f"heedful: this hook did nothing: {visible(reason)}"
        # Nobody hears it if the agent has closed the stream, or the disk is full.
        with suppress(OSError, ValueError):
            print(json.dumps({"systemMessage": notice}), flush=True)
    return reason or repr(error)


def run(beginning: bytes = b"") -> None:
    """Run `main`, and end without waiting for what a locked database holds up.

    `beginning` is what was read of the event already.
    """
    # The process ends before there is much to collect.
    gc.disable()

    # Windows has neither these signals nor `os.nice`.
    with suppress(AttributeError):
        for number in (signal.SIGTERM, signal.SIGHUP):
            # So that the commands of a stop end, too.
            signal.signal(number, signal.default_int_handler)
        signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, HOOK_TIMEOUT_SECONDS)
        if "--work" in sys.argv:
            os.nice(10)

    code = main(beginning=beginning)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()

    os._exit(code)


def _give_up(*_: Any) -> None:
    """End the process when its time is up; the agent continues without an answer."""
    _log_line(f"{sys.argv[1]}: no answer within its time limit")
    os._exit(0)


def _take_option(words: list[str], name: str) -> str:
    """Remove an option with its value; return the value, "" if it is not there."""
    if name not in words:
        return ""

    index = words.index(name)
    value = words[index + 1] if index + 1 < len(words) else ""
    del words[index : index + 2]
    return value


def _answer_event(
    event: str,
    agent_name: str,
    strict: bool,
    *,
    start_work: Callable[[str, str, Path], object],
    beginning: bytes,
) -> None:
    """Print the answer to an event, and start the work that it leaves."""
    agent = find_agent(agent_name)
    kind = agent.events.get(event)
    if kind in IDLE_KINDS:
        _limit_time(IDLE_TIMEOUT_SECONDS)
    data = read_event(sys.stdin.buffer, beginning)
    folder = _project_folder(in_our_names(agent, data))
    notices: list[str] = []
    if kind == "start" or (kind == "prompt" and not agent.event_of("start")):
        doubt = doubt_about_rules(folder)
        if doubt:
            notices.append(visible(doubt))
    settings = read_settings(folder)

    hook_settings, host = session_hooks.follow(
        settings, folder, strict, host_type=_host_type(kind)
    )
    if kind == "stop":
        _limit_time(0)

    recent_failures: Sequence[FailedCall] = ()
    if agent.has_transcript and kind != "start":
        recent_failures = failed_calls(data.get("transcript_path"))
    plan = session_plan.SessionPlan(in_our_names(agent, data))
    work = session_hooks.reply(
        event,
        data,
        host,
        agent=agent_name,
        settings=hook_settings,
        failed_calls=recent_failures,
    )
    runs_commands = kind == "stop" and hook_settings.stop
    needs_loop = bool(runs_commands) or "://" in settings["db"]
    complete = partial(_complete, lock_seconds=host.seconds, needs_loop=needs_loop)
    complete(plan.take_in(host))
    reply = complete(work)
    _print_reply(agent, event, reply, folder=folder, notices=notices)
    plan.write(host, agent, options=sys.argv[2:], name=event, reply=reply)
    if reply.work:
        start_work(reply.work, reply.session, folder)
    if kind == "start":
        complete(session_plan.take_in_left(data.get("session_id")))


def _print_reply(
    agent: Agent,
    event: str,
    reply: Reply,
    folder: Path,
    notices: list[str],
) -> None:
    """Print the answer to an event, with what a person is to read."""
    answer = _answer_with_delay(agent, event, reply) if agent.later else reply.answer
    notices += reply.notices
    if agent.says_at_start:
        notices = find_project(folder).tell_once(notices)
        answer = _with_notices(answer, notices)
    for notice in notices:
        _log_line(f"{event}: {notice}")
    if answer is not None:
        print(json.dumps(answer), flush=True)


def _complete(
    work: Coroutine[Any, Any, T], *, lock_seconds: float, needs_loop: bool
) -> T:
    """Return the result of work, which needs a loop to wait for other programs.

    Without a loop, it waits for locks of a database for at most `lock_seconds`.
    """
    if not needs_loop:
        return run_inline(work, lock_seconds)
    import asyncio  # slow to import

    return asyncio.run(work)


def _with_notices(answer: Answer | None, notices: Sequence[str]) -> Answer | None:
    """Return the answer with lines that a person reads, if there are any."""
    if not notices:
        return answer
    lines = [f"heedful: {text}" for text in notices]
    if answer and "systemMessage" in answer:
        lines.insert(0, str(answer["systemMessage"]))
    return {**(answer or {}), "systemMessage": "\n".join(lines)}


def _answer_with_delay(agent: Agent, event: str, reply: Reply) -> Answer | None:
    """Return the answer to an event of an agent that shows some advice later.

    The advice waits in a file of the user until the event that shows it. What none has
    shown is out of date at the next prompt, when the user has gone on to something
    else. Raises OSError.
    """
    kind = agent.events[event]
    path = user_folder() / "waiting" / hex_digest(reply.session)
    if kind in agent.later and reply.advice:
        write_private(path, reply.advice.encode())
        return None
    showing_kinds = agent.later.values()
    if kind not in ("prompt", "end", *showing_kinds):
        return reply.answer

    delayed_advice = ""
    with suppress(OSError, ValueError):
        delayed_advice = path.read_text("utf-8")
        path.unlink()
    if not delayed_advice or kind not in showing_kinds:
        return reply.answer
    texts = filter(None, [delayed_advice, reply.advice])
    return agent.context(event, "\n".join(texts))


def _do_work(event: str, session: str, strict: bool) -> None:
    """Do the work that an answer left for a session; `event` names the work."""
    _limit_time(0)
    folder = _project_folder({})
    settings = read_settings(folder)

    import asyncio

    from heedful_agents import session_work

    _, host = session_work.follow(settings, folder, strict, host_type=session_work.Host)
    asyncio.run(session_work.work(host, session, cast("Any", event)))


def _host_type(kind: Kind | None) -> "type[CallHost]":
    """Return the host for events of a kind."""
    if kind != "prompt":
        return session_hooks.HOST_TYPE
    from heedful.integrations.task_host import TaskHost

    return TaskHost


def _limit_time(seconds: float) -> None:
    """Change the time limit of a process that has one; 0 lifts it."""
    # Windows has none.
    with suppress(AttributeError):
        if any(signal.getitimer(signal.ITIMER_REAL)):
            signal.setitimer(signal.ITIMER_REAL, seconds)


class _WarningLines(logging.Handler):
    """Writes warnings as lines of the hook's log that begin with the event."""

    def __init__(self, event: str) -> None:
        super().__init__(logging.WARNING)
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning as one line."""
        error = getattr(record, "error", "")
        _log_line(f"{self._event}: {record.getMessage()}: {error}".rstrip(": "))


def read_event(stream: IO[bytes], beginning: bytes = b"") -> Fields:
    """Read an event, an object in JSON, whose beginning may be read already.

    Raises UsageError for anything else.
    """
    raw = beginning + stream.read(MAX_HOOK_EVENT_BYTES + 1 - len(beginning))
    if len(raw) > MAX_HOOK_EVENT_BYTES:
        # Read on to the end, because the agent must not fail at writing.
        while stream.read(2**20):
            pass
        raise UsageError(f"the event has more than {MAX_HOOK_EVENT_BYTES} bytes")

    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the event of {len(raw)} bytes is not JSON") from error

    if not isinstance(data, dict):
        raise UsageError(f"the event is not an object but {type(data).__name__}")
    return data


def _project_folder(data: Fields) -> Path:
    """Return the folder of the project that an event is about."""
    roots = data.get("workspace_roots")
    folders = [
        os.environ.get("CLAUDE_PROJECT_DIR"),
        *(roots if isinstance(roots, list) else ()),
        data.get("cwd"),
    ]
    for folder in folders:
        if isinstance(folder, str) and os.path.isdir(folder):
            return Path(folder)
    return Path.cwd()


def read_settings(folder: Path) -> Document:
    """Return the settings of hooks in a folder: those of the user. Raises UsageError.

    `db` is the database: the stated one, or that of the project.
    """
    project = find_project(folder)
    file = user_folder() / SETTINGS_FILE
    user_settings = own_settings(project)
    settings: Document = {}
    for name, (default, types) in HOOK_SETTINGS.items():
        place = f"{name} in {file}"
        value = user_settings.get(name, default)
        variable = f"HEEDFUL_{name.upper()}"
        text = os.environ.get(variable)
        if text:
            place = f"{variable}, which is read as JSON,"
            value = text
        if text and not isinstance(default, str):
            with suppress(ValueError):
                value = json.loads(text)

        if not isinstance(value, types) or "\0" in str(value):
            allowed = " or ".join(kind.__name__ for kind in types)
            raise UsageError(
                f"{place} is {visible(repr(value))[:80]}; it must be {allowed}"
            )
        if name == "db" and not text:
            value = _database_in(user_folder(), value or str(project.db))
        settings[name] = value

    settings["db"] = _database_in(folder, settings["db"])
    policy = settings.pop("policy")
    settings["hook"] = {"policy": policy, **settings["hook"]}
    return settings


def settings_of_commands(folder: Path) -> Document:
    """Return the settings of commands that follow what hooks follow in a folder.

    `db` is the database. Raises UsageError.
    """
    settings = read_settings(folder)
    del settings["hook"]
    return {**settings, "trust": tuple(settings["trust"])}


def _database_in(folder: Path, db: Any) -> str:
    """Return the name of a database that is stated in a folder."""
    if "://" in db or db == ":memory:":
        return str(db)
    return os.path.abspath(folder / str(db))


def _log_line(line: str) -> None:
    """Append a line to the log, which begins again when it is too long.

    A full disk is not an error.
    """
    import time

    # A RuntimeError says that the user has no home.
    with suppress(OSError, RuntimeError):
        # A home that is gone, as after a trial of the hooks, is not made again.
        folder = user_folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / "hook.log"
        is_long = path.exists() and path.stat().st_size >= MAX_READ_BYTES
        mode = "w" if is_long else "a"
        now = time.strftime("%Y-%m-%d %H:%M:%S")

        with open(
            path, mode, encoding="utf-8", errors="replace", opener=private
        ) as file:
            file.write(f"{now} {redact_start(line, 400)}\n")


if __name__ == "__main__":
    run()
