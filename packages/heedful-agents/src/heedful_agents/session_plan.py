"""The plan and the spool of a session: what the first stage of a hook asks and leaves.

`hook_start` ends where an event is surely silent. It knows that from the plan, which
`write` makes after each event of the full hook, and leaves a line in the spool, which
`take_in` keeps in the store before the next such event. Both are private files in the
user's folder. A line has no text, so the calls it stands for are known by their tool,
programs and file only: nothing is quiet while a failure of the session is open, whose
fix must be learnt word for word.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from heedful.episodes.episode import Event
from heedful.integrations.call_host import CallHost, CallRun
from heedful.knowledge import ROWS_FOLDER, KnowledgeTable
from heedful.lessons.action import PATH_ARGUMENTS, REPLACED_ARGUMENTS, command_of
from heedful.lessons.call_marks import (
    FILTER_PATTERN,
    FORGETTING_CODES,
    SEARCH_ARGUMENTS,
    touched_path,
    without_filter,
)
from heedful.lessons.scope import MAX_READ_CHARS, Scope, reader_of
from heedful.lessons.session_names import BRANCH_COMMANDS
from heedful.lessons.triggers import ANY_CALL
from heedful.memory.call_memory import CallMemory
from heedful.store import episodes
from heedful.store.connection import key_of, storable
from heedful.store.projects import SETTINGS_FILE, user_folder, write_private
from heedful.store.statements import statements
from heedful.validation import Document, Fields
from heedful_agents import hook_start as stage
from heedful_agents.agents import Agent, Kind, session_of
from heedful_agents.session_hooks import Reply

# A failure is open until its call works, or until so many other calls have ended.
# Measured on 266 recorded sessions: docs/costs.md says how many events end at once.
MAX_OPEN_RESULTS = 5
MAX_READ_FILES = 200
# What the first stage reads under these names, no other name may have in an agent.
_READ_FIELDS = frozenset(
    {"session_id", "tool_name", "tool_input", "tool_response", "tool_use_id"}
)
_FAILURE_TABLE = KnowledgeTable("episodes/failures")
_PROGRAM_TABLE = KnowledgeTable("lessons/programs")
# A status of HTTP may begin a text.
_HTTP_SIGN = r"\A(?:<[^>]*>|\s)*(?:HTTP|[\w ]{1,40} status|[45]\d\d\b)"
# It stands in place of the words of a command that no line has.
LEFT_OUT = "…"


class SessionPlan:
    """The plan of the session of an event, and its spool, as they lie in files.

    `event` is one `in_our_names`; it may have no session. A spool is `lost` if it lies
    there without a plan: nobody knows the memory that it is about.
    """

    def __init__(self, event: Fields) -> None:
        """Read the plan of the session, if there is one that can be read."""
        self.event = event
        self.plan: Document = {}
        self.plan_path = self.spool_path = Path(os.devnull)
        with suppress(OSError, ValueError, TypeError):
            session = event.get("session_id")
            self.plan_path = Path(stage.session_file(session, stage.PLAN_ENDING))
            self.spool_path = Path(stage.session_file(session, stage.SPOOL_ENDING))
            self.plan = json.loads(self.plan_path.read_bytes())

    async def take_in(self, host: CallHost) -> None:
        """Keep the events in the spool, and empty it.

        If another process has the spool, or the events cannot be kept, they stay in it.
        """
        if self.spool_path.is_file():
            run = host.run(session_of(self.event))
            await host.guarded("take in quiet events", self._take_in(run), None)

    async def _take_in(self, run: CallRun) -> None:
        """Keep the events in the spool, and empty it. Raises StoreError and OSError."""
        spool = stage.open_spool(str(self.spool_path))
        try:
            lines = list(_lines_in(os.read(spool, 2 * stage.MAX_SPOOL_BYTES)))
            # The event at hand reports its own call with all its words.
            own_call = self.event.get("tool_use_id", "")
            others = [
                line for line in lines if not own_call or line["call"] != own_call
            ]
            await _keep_lines(run, others)
            os.ftruncate(spool, 0)
            # Windows removes no file that is open; the next event finds it empty.
            with suppress(OSError):
                self.spool_path.unlink()
        finally:
            os.close(spool)
        read = [line["file"] for line in lines if line["kind"] == "after"]
        self.plan["read"] = [*self.plan.get("read", ()), *filter(None, read)]

    def write(
        self,
        host: CallHost,
        agent: Agent,
        *,
        options: Sequence[str],
        name: str,
        reply: Reply,
    ) -> None:
        """Write the plan after an event, or remove it at the end of the session.

        `options` are those of the command, and `name` is that of the event. Without a
        plan, as on a full disk, all events go to the full hook.
        """
        kind = agent.events[name]
        if self.plan_path == Path(os.devnull) or kind == "stop":
            return
        new_plan = (
            None if kind == "end" else _plan_of(host, agent, self.event, self.plan)
        )
        try:
            if new_plan is None:
                self.plan_path.unlink(missing_ok=True)
                return
            new_plan["options"] = list(options)
            new_plan["open"] = self._open_failure(kind, reply)
            new_plan["read"] = self._read_files(kind)
            write_private(self.plan_path, json.dumps(new_plan).encode())
        except OSError:
            with suppress(OSError):
                self.plan_path.unlink(missing_ok=True)

    def _open_failure(self, kind: Kind, reply: Reply) -> Document | None:
        """Return the failure that is open after the event, None without one."""
        failure: Document | None = self.plan.get("open")
        tool = str(self.event.get("tool_name"))
        words = _words_of(self.event.get("tool_input"))
        if reply.has_failed:
            return {"tool": tool, "words": words, "left": MAX_OPEN_RESULTS}
        if failure is None or kind != "after":
            return failure
        has_worked = tool == failure["tool"] and {*words} >= {*failure["words"]}
        if has_worked or failure["left"] <= 1:
            return None
        return {**failure, "left": failure["left"] - 1}

    def _read_files(self, kind: Kind) -> list[str]:
        """Return the files that the session has read, as its calls name them."""
        if kind == "start" and self.event.get("source") in FORGETTING_CODES:
            return []
        arguments = self.event.get("tool_input")
        read = list(self.plan.get("read", ()))
        if kind == "after" and isinstance(arguments, Mapping):
            read += filter(None, [touched_path(arguments)])
        return list(dict.fromkeys(read))[-MAX_READ_FILES:]


def _lines_in(content: bytes) -> Iterator[Document]:
    """Yield the lines of a spool; what is no whole line of it is left out."""
    for text in content.split(b"\n"):
        with suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict) and line.keys() >= {"kind", "call", "at"}:
                yield line


async def _keep_lines(run: CallRun, lines: Sequence[Fields]) -> None:
    """Keep the events of lines, each of which is kept once."""
    memory = run.host.own_memory
    if memory is None or not lines:
        return
    ids = [line["call"] for line in lines]
    stored = await memory.store.read(memory.scope, episodes.kept_calls, run.id, ids)
    events: list[Event] = []
    for line in lines:
        head: Any = {"agent": line["agent"], "tool": line["tool"], "call": line["call"]}
        call = Event("tool_call", arguments=_arguments_of(line), at=line["at"], **head)
        result = Event("tool_response", at=line["at"], **head)
        for kept in [call, result] if line["kind"] == "after" else [call]:
            key = (kept.type, kept.call)
            if not kept.call or key not in stored:
                stored.add(key)
                events.append(kept)
    await run.write(events)


def _arguments_of(line: Fields) -> Document:
    """Return the arguments of a call, as far as its line has them."""
    if line["file"]:
        names = dict.fromkeys(line["names"], "")
        return {**names, "file_path": line["file"]}
    # Equal calls stay equal, and others stay different.
    rest = f"{LEFT_OUT}{line['digest']:x}"
    commands = [f"{program} {rest}" for program in line["programs"]]
    return {"command": " && ".join(commands)} if commands else {"input": rest}


def _words_of(arguments: Any) -> list[str]:
    """Return the words of a command without what only shows a part of its output."""
    if not isinstance(arguments, Mapping) or touched_path(arguments):
        return []
    return without_filter(command_of(arguments)).split()


def _signs() -> Document:
    """Return patterns of what is not quiet: without them, an event is as it should be.

    They are coarser than what the rooms know that read the tables.
    """
    texts = _rows_of(_FAILURE_TABLE, "wrong wrong_first unable error_word")
    lines = _rows_of(_FAILURE_TABLE, "trace failed_line refusal")
    complaint = _rows_of(_FAILURE_TABLE, "complaint")
    ends = _rows_of(_FAILURE_TABLE, "unfinished refused")
    codes = _rows_of(_FAILURE_TABLE, "status short_status")
    fetching = _rows_of(_PROGRAM_TABLE, "fetching fetching_first forge fetching_tool")
    naming = "|".join(["mkdir", "touch", "select", *sorted(BRANCH_COMMANDS)])
    return {
        "status": rf"(?m)\b(?:{codes})\W{{0,8}}-?\d|{_HTTP_SIGN}|{ends}",
        "failure": rf"^\S+: .*(?:{complaint})|{texts}|{lines}",
        "loud": rf"\b(?:{naming})\b|{fetching}",
    }


def _rows_of(table: KnowledgeTable, groups: str) -> str:
    """Return a pattern of all rows of these groups, which are words of a text."""
    rows = chain.from_iterable(map(table.rows, groups.split()))
    return "|".join(row.regex for row in rows)


def _plan_of(
    host: CallHost, agent: Agent, event: Fields, old: Fields
) -> Document | None:
    """Return what decides whether events like this are quiet; None if none may be.

    What the tables say is taken from an `old` plan of the same user's rows.
    """
    memory = host.own_memory
    renamed = _READ_FIELDS.intersection(agent.fields)
    if memory is None or renamed or agent.later or "://" in memory.store.url:
        return None
    # What could not be told before a call is told after it.
    quiet_kinds = {"before", "after"} if "before" in agent.takes else {"before"}
    kinds = {name: kind for name, kind in agent.events.items() if kind in quiet_kinds}
    folder = user_folder()
    files = [str(folder / name) for name in (SETTINGS_FILE, ROWS_FOLDER)]
    states = [stage.file_state(path) for path in files]
    transcript = event.get("transcript_path")
    session = str(event.get("session_id"))
    databases = [[memory.store.url, key_of(memory.scope)]]
    if host.everywhere:
        databases.append([host.everywhere, key_of(Scope(memory.scope.tenant))])
    return {
        "form": stage.PLAN_FORM,
        "kinds": kinds,
        "surroundings": stage.surroundings(event),
        "files": files,
        "states": states,
        "has_transcript": agent.has_transcript,
        "transcript": _size_of(transcript),
        "marks_failures": bool(agent.event_of("failed")),
        "signs": old["signs"] if old.get("states") == states else _signs(),
        "root": host.root,
        "any_call": ANY_CALL,
        "max_chars": MAX_READ_CHARS,
        "path": PATH_ARGUMENTS,
        "search": SEARCH_ARGUMENTS,
        "replaced": REPLACED_ARGUMENTS,
        "filter": FILTER_PATTERN,
        "reader": storable(reader_of(session, "")),
        "databases": databases,
        "question": statements("sqlite")["may_speak"],
    }


def _size_of(path: object) -> int:
    """Return the size of an agent's file of its session, 0 without one."""
    with suppress(OSError):
        return os.stat(path).st_size if isinstance(path, str) else 0
    return 0


async def take_in_left(session: object) -> None:
    """Keep the events in the spools that other sessions have left, of any project."""
    for path in (user_folder() / stage.SESSIONS_FOLDER).glob(f"*{stage.SPOOL_ENDING}"):
        plan = SessionPlan({"session_id": path.stem})
        if path.stem != session and plan.plan:
            (database, values), *_ = plan.plan["databases"]
            scope = Scope(values["tenant"], values["project"])
            memory = CallMemory(database, scope)
            await plan.take_in(CallHost(memory=memory, root=plan.plan["root"]))
