"""The first stage of the hook process: it ends where memory surely has nothing to say.

A hook process starts at each call of a tool, and most of its time is the import of
heedful. So this module imports nothing of ours. The full hook has written a *plan* of
the session; with it, one question to the database says that an event is surely silent.
Then one line in the *spool* of the session says that it came, and the process ends. The
full hook takes in these lines before its own work. Whatever is not plain goes to the
full hook, as if this module were not there: nothing else is decided here.

A line has no text of a call or of its result, because nobody has redacted these: it has
the tool, its programs, its file and a number that stands for the arguments.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from contextlib import suppress
from re import IGNORECASE, escape, findall, fullmatch, search, split, sub
from time import time

TYPE_CHECKING = False  # the module `typing` is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Fields = Mapping[str, Any]

# A plan of another form is no plan.
PLAN_FORM = 1
SESSIONS_FOLDER = "sessions"
PLAN_ENDING = ".plan"
SPOOL_ENDING = ".spool"
# A longer event is not plain.
MAX_QUIET_EVENT_BYTES = 64 * 1024
# Then the full hook empties the spool.
MAX_SPOOL_BYTES = 2**20
# What an agent has written into its file of the session since the plan was made.
MAX_NEW_TRANSCRIPT_BYTES = 256 * 1024
FAILURE_SIGN = rb'"is_error" ?: ?true'
# A status that another program may hide, and the end of a command.
_HIDING = r"[|;\n`]|\$\(|(?<!&)&(?!&)"
_END_OF_COMMAND = r"[|;&\n()]+"
# A text that may be JSON, which has fields.
_DATA = r"(?s)\A\s*[{\[\"].*[}\]\"]\s*\Z"
_PROGRAM = r"[a-z][a-z0-9_.+-]{0,30}"
# Names of secrets, and long words of letters and digits.
_SECRET_SIGN = (
    r"pass(?:wor|phrase)|secret|credential|authorization|bearer|api.?key"
    r"|://[^/\s]*@|(?=\w*\d)(?=\w*[a-z])\w{20}"
)


def surroundings(event: Fields) -> list[Any]:
    """Return the folder that an event is about, and what the environment states."""
    roots = event.get("workspace_roots")
    folders = [os.environ.get("CLAUDE_PROJECT_DIR"), *(roots or []), event.get("cwd")]
    existing = [place for place in folders if place and os.path.isdir(place)]
    stated = [[*pair] for pair in os.environ.items() if pair[0].startswith("HEEDFUL_")]
    return [[*existing, os.getcwd()][0], sorted(stated)]


def file_state(path: str) -> list[int] | None:
    """Return what changes when a file does; None if there is none."""
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return None
    return [state.st_mtime_ns, state.st_size]


def user_folder() -> str:
    """Return the folder of what belongs to the user."""
    stated = os.environ.get("HEEDFUL_HOME")
    return os.path.abspath(os.path.expanduser(stated or "~/.heedful"))


def session_file(session: Any, ending: str) -> str:
    """Return the path of a file of a session; ValueError if its name is not plain."""
    if not search(r"\A[\w.-]{1,100}\Z", session):
        raise ValueError(session)
    return os.path.join(user_folder(), SESSIONS_FOLDER, session + ending)


def texts_in(value: Any) -> list[str]:
    """Return the texts in JSON data, without the names of members."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    texts = []
    for item in value if isinstance(value, list) else ():
        texts += texts_in(item)
    return texts


def command_in(arguments: Fields) -> str:
    """Return the command of a call, "" without one; it may have another form."""
    command = arguments.get("command") or arguments.get("cmd") or ""
    return command if isinstance(command, str) else "\n".join(texts_in(command))


def words_of(text: str) -> set[str]:
    """Return the words of a text: as they are, and without digits at their ends."""
    words = findall(r"[a-z0-9_]+", text.lower())
    return {*words, *(word.rstrip("0123456789") for word in words)}


def open_spool(path: str) -> int:
    """Open a spool for one process at a time. Raises OSError if another has it."""
    spool = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(spool, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(spool, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return spool


def is_quiet(name: str, event: Fields, plan: Fields) -> bool:
    """Return True if memory surely has nothing to say about an event, nor to learn."""
    kind = plan["kinds"].get(name)
    if kind is None or plan["open"] or surroundings(event) != plan["surroundings"]:
        return False
    is_changed = [file_state(path) for path in plan["files"]] != plan["states"]
    if is_changed or has_new_failure(event, plan):
        return False
    arguments = event["tool_input"]
    text = "\n".join([event["tool_name"], *arguments, *texts_in(arguments)])
    is_plain = text.isascii() and not {"mcp_server", "mcp_context"} & event.keys()
    if not is_plain or search(_SECRET_SIGN, text, IGNORECASE):
        return False
    if kind == "after":
        return not may_have_failed(event, plan)
    return not search(plan["signs"]["loud"], text, IGNORECASE) and not may_speak(
        event, plan, text
    )


def has_new_failure(event: Fields, plan: Fields) -> bool:
    """Return True if a call may have failed of which no event says so."""
    path = event.get("transcript_path")
    if not plan["has_transcript"] or not path or not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        file.seek(plan["transcript"])
        new = file.read(MAX_NEW_TRANSCRIPT_BYTES + 1)
    return len(new) > MAX_NEW_TRANSCRIPT_BYTES or search(FAILURE_SIGN, new) is not None


def may_have_failed(event: Fields, plan: Fields) -> bool:
    """Return True unless a result is plainly that of a call that worked."""
    response = event["tool_response"]
    fields = response if isinstance(response, dict) else {}
    parts = [fields, *(part for part in fields.values() if isinstance(part, dict))]
    if event.get("error") or any(map(is_doubtful, parts)):
        return True
    texts = texts_in(response)
    command = command_in(event["tool_input"])
    # Where a status is known, only a part of the text may say that the call failed.
    has_status = plan["marks_failures"] or fields
    sign = plan["signs"]["status"]
    if not has_status or search(_HIDING, command):
        sign = f"{sign}|{plan['signs']['failure']}"
    is_data = any(search(_DATA, text) for text in texts)
    return is_data or any(search(sign, t) for t in [*texts, "\n".join(texts)])


def is_doubtful(fields: Fields) -> bool:
    """Return True if a field of a result may say that the call failed."""
    for name, value in fields.items():
        word = name.replace("_", "").lower().removeprefix("is")
        is_bad = word.startswith(("err", "interrupt")) and value
        is_code = word.endswith(("code", "status")) and value not in (0, None)
        if is_bad or is_code or value == "error":
            return True
        if word in ("success", "ok") and value is not True:
            return True
    return False


def may_speak(event: Fields, plan: Fields, text: str) -> bool:
    """Return True unless memory surely has nothing to say about a call."""
    import sqlite3

    call = {
        "words": json.dumps(sorted(words_about(event, plan, text))),
        "text": text.lower(),
        "reader": "" if event.get("agent_id") else plan["reader"],
    }
    for database, scope in plan["databases"]:
        if not os.path.exists(database):
            continue
        connection = sqlite3.connect(file_uri(database), uri=True, timeout=0)
        if connection.execute(plan["question"], {**scope, **call}).fetchone():
            return True
    return False


def words_about(event: Fields, plan: Fields, text: str) -> set[str]:
    """Return the words of a call, given with its `text`, that may be triggers."""
    tool = event["tool_name"].lower()
    arguments = event["tool_input"]
    # Paths in the folder of the project are known without it.
    words = words_of(text) | words_of(text.replace(plan["root"] + "/", ""))
    words |= {plan["any_call"], tool, tool.rpartition("__")[2]}
    words |= {number_of(whole_call(arguments, plan)), number_of(path_at(event, plan))}
    texts = [value for value in arguments.values() if value and isinstance(value, str)]
    if len(texts) > len(set(texts)):
        words.add(f"equal {tool}")
    is_edit = not arguments.keys().isdisjoint(plan["replaced"])
    if is_edit and not was_read(event, plan):
        words.add(f"unread {tool}")
    return words


def whole_call(arguments: Fields, plan: Fields) -> str:
    """Return the text by which a call as a whole is known."""
    text = "" if path_of(arguments, plan) else command_in(arguments)
    if not text:
        text = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
        return text.replace(plan["root"] + "/", "")[: plan["max_chars"]]
    text = text.strip().replace(plan["root"] + "/", "")[: plan["max_chars"]]
    return sub(plan["filter"], "", text).strip()


def path_at(event: Fields, plan: Fields) -> str:
    """Return the path of a call as memory knows it: in the folder of the project."""
    path = path_of(event["tool_input"], plan).rstrip("/")
    return path.removeprefix(plan["root"] + "/").removeprefix("./")


def number_of(text: str) -> str:
    """Return a number for a text, which equal texts have in common."""
    return f"={zlib.crc32(text.encode('utf-8', 'replace')):x}"


def was_read(event: Fields, plan: Fields) -> bool:
    """Return True if the session has surely read the file of a call."""
    path = path_in(event["tool_input"], plan)
    if path in plan["read"]:
        return True
    sign = escape(f'"file": {json.dumps(path)}').encode()
    try:
        with open(session_file(event["session_id"], SPOOL_ENDING), "rb") as spool:
            return search(rb'"kind": "after".*' + sign, spool.read()) is not None
    except FileNotFoundError:
        return False


def file_uri(path: str) -> str:
    """Return the address by which SQLite only reads a file."""
    for sign in "%?#":
        path = path.replace(sign, f"%{ord(sign):02x}")
    return f"file:{path}?mode=ro"


def path_of(arguments: Fields, plan: Fields) -> str:
    """Return the path that a call is about, "" without one."""
    paths = [arguments[name] for name in plan["path"] if name in arguments]
    return paths[0] if paths else ""


def path_in(arguments: Fields, plan: Fields) -> str:
    """Return the path of the file that a call reads or writes, "" without one."""
    is_search = not arguments.keys().isdisjoint(plan["search"])
    return "" if is_search else path_of(arguments, plan)


def line_of(kind: str, event: Fields, plan: Fields) -> bytes:
    """Return the line of an event in the spool."""
    arguments = event["tool_input"]
    commands = [part.split() for part in split(_END_OF_COMMAND, command_in(arguments))]
    first_words = [words[0] for words in commands if words]
    line = {
        "kind": kind,
        "call": event.get("tool_use_id", ""),
        "agent": event.get("agent_id", ""),
        "tool": event["tool_name"],
        "programs": [word for word in first_words if fullmatch(_PROGRAM, word)],
        "file": path_in(arguments, plan),
        "names": sorted(arguments),
        "digest": zlib.crc32(json.dumps(arguments, sort_keys=True).encode()),
        "length": sum(map(len, texts_in(event.get("tool_response")))),
        "at": time(),
    }
    # A line that another process has left unfinished ends here.
    return b"\n" + json.dumps(line).encode() + b"\n"


def keep(path: str, line: bytes) -> None:
    """Append a line to a spool. Raises OSError if it cannot be kept as a whole."""
    spool = open_spool(path)
    try:
        state = os.fstat(spool)
        if not state.st_nlink or state.st_size > MAX_SPOOL_BYTES:
            raise OSError("the spool is gone, or full")
        if os.write(spool, line) < len(line):
            raise OSError("the disk is full")
    finally:
        os.close(spool)


def end_quietly(words: list[str], beginning: bytes) -> bool:
    """Keep a quiet event, and return True; return False for any other."""
    if len(beginning) > MAX_QUIET_EVENT_BYTES:
        return False
    name, *options = words
    event = json.loads(beginning)
    with open(session_file(event["session_id"], PLAN_ENDING), "rb") as file:
        plan = json.load(file)
    is_ours = plan["form"] == PLAN_FORM and plan["options"] == options
    if not is_ours or not is_quiet(name, event, plan):
        return False
    spool = session_file(event["session_id"], SPOOL_ENDING)
    keep(spool, line_of(plan["kinds"][name], event, plan))
    return True


def run() -> None:
    """Answer an event on standard input, here or in the full hook."""
    beginning = sys.stdin.buffer.read(MAX_QUIET_EVENT_BYTES + 1)
    # Whatever is not plain goes to the full hook.
    with suppress(Exception, KeyboardInterrupt):
        if end_quietly(sys.argv[1:], beginning):
            os._exit(0)
    from heedful_agents import hook

    hook.run(beginning)
