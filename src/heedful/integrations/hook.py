"""The hook process: `heedful-hook EVENT [--agent NAME] [--strict]` answers one event.

It starts for each event, so it imports neither Typer nor pydantic nor Rich, and reads
the settings by itself. Whatever goes wrong, the agent works on: nothing is printed, the
exit code is 0, and the log, `~/.heedful/hook.log`, gets one line. Learning happens in a
process that nobody waits for.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

from heedful.errors import HeedfulError, UsageError
from heedful.redact import redact
from heedful.store import DEFAULT_DATABASE_FILE
from heedful.store.workspace import own_db, prepare_database, read_table, repository

HOOK_USAGE = (
    "usage: heedful-hook EVENT [--agent NAME] [--strict]; EVENT is the agent's own "
    "name of it"
)
# No agent sends an event of so many bytes.
MAX_HOOK_EVENT_BYTES = 8 * 2**20
# The time until an answer; the end of a turn may take longer.
HOOK_TIMEOUT_SECONDS = 5
MAX_LOG_LINE_CHARS = 400
MAX_LOG_BYTES = 2**20
# The settings that a hook needs, and how the text of an environment variable is read.
HOOK_SETTING_TYPES: Mapping[str, Callable[[str], Any]] = {
    "db": str,
    "tenant": str,
    "project": str,
    "holdout": float,
    "policy": str,
    "trust": json.loads,
    "hook": json.loads,
}
# The files that may have settings, and the table in each that has them.
SETTINGS_FILE_TABLES: dict[str, tuple[str, ...]] = {
    "pyproject.toml": ("tool", "heedful"),
    "heedful.toml": (),
}
# The file beside the user's own database that says which files of projects are used.
APPROVALS_FILE = "approved.json"
DEFAULT_AGENT = "claude-code"
# Events of Claude Code at which the user hears that settings are not followed.
NOTICE_EVENTS = ("SessionStart", "Stop")


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one event on standard input; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    strict = "--strict" in words
    words = [word for word in words if word != "--strict"]
    agent = _take_option(words, "--agent") or DEFAULT_AGENT
    session = _take_option(words, "--work")

    if len(words) != 1 or words[0].startswith("-"):
        print(HOOK_USAGE, file=sys.stderr)
        # If a hook exits with 2, Claude Code blocks the action.
        return 1

    event = words[0]
    try:
        with suppress(KeyboardInterrupt):
            if session:
                _do_work(event, session, strict)
            else:
                _answer_event(event, agent, strict)
    except Exception as error:  # the edge to the agent, which must not fail by us
        _report_failure(error, event, agent, strict)

    return 0


def _report_failure(error: Exception, event: str, agent: str, strict: bool) -> None:
    """Log why an event has no answer; the user hears it if the agent can show it."""
    reason = ""
    if isinstance(error, HeedfulError):
        reason = " ".join(redact(str(error)).split())

    _log_line(f"{event}: {type(error).__name__}: {reason}".rstrip(": "))
    if reason and event in NOTICE_EVENTS and agent == DEFAULT_AGENT:
        notice = f"heedful: this hook did nothing: {reason}"
        print(json.dumps({"systemMessage": notice}))
    if strict:
        print(f"heedful-hook: {reason or repr(error)}", file=sys.stderr)


def run() -> None:
    """Run `main`, and end without waiting for what a locked database holds up."""
    # The process ends before there is much to collect.
    gc.disable()

    # Windows has none of these signals.
    with suppress(AttributeError):
        for number in (signal.SIGTERM, signal.SIGHUP):
            # So that the commands of the project end, too.
            signal.signal(number, signal.default_int_handler)
        signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, HOOK_TIMEOUT_SECONDS)

    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()

    os._exit(code)


def _give_up(*_: Any) -> None:
    """End the process when its time is up; the agent works on without an answer."""
    _log_line(f"{sys.argv[1]}: no answer within {HOOK_TIMEOUT_SECONDS} s")
    os._exit(0)


def _take_option(words: list[str], name: str) -> str:
    """Remove an option with its value; return the value, "" if it is not there."""
    if name not in words:
        return ""

    index = words.index(name)
    value = words[index + 1] if index + 1 < len(words) else ""
    del words[index : index + 2]
    return value


def _answer_event(event: str, agent: str, strict: bool) -> None:
    """Print the answer to an event, and start the work that it leaves."""
    data = read_event(sys.stdin.buffer)
    folder = _project_folder(data)
    settings = read_settings(folder)
    _log_ignored(event, settings["ignored"])

    asyncio = _import_asyncio()
    from heedful.integrations import hooks

    _log_warnings(event)
    rules, host = hooks.follow(settings, prepare_database(settings["db"]), strict)
    if event in {row.event_of("stop") for row in hooks.AGENTS.values()}:
        _lift_time_limit(niceness=0)

    reply = asyncio.run(hooks.reply(event, data, host, agent=agent, settings=rules))
    answer = reply.answer
    if agent == DEFAULT_AGENT and event in NOTICE_EVENTS:
        notice = _notice(event, settings["ignored"])
        if notice:
            answer = dict(answer or {})
            earlier = answer.get("systemMessage")
            answer["systemMessage"] = f"{earlier}\n{notice}" if earlier else notice

    if answer is not None:
        print(json.dumps(answer), flush=True)
    if reply.work:
        detach(reply.work, reply.session, folder)


def _do_work(event: str, session: str, strict: bool) -> None:
    """Do the work that an answer left for a session; `event` names the work."""
    settings = read_settings(_project_folder({"cwd": str(Path.cwd())}))
    _log_ignored(event, settings["ignored"])

    asyncio = _import_asyncio()
    from heedful.integrations import hooks

    _log_warnings(event)
    _, host = hooks.follow(settings, prepare_database(settings["db"]), strict)
    _lift_time_limit(niceness=10)
    work: hooks.Work = "end" if event == "end" else "study"
    asyncio.run(hooks.work(host, session, work))


def _import_asyncio() -> ModuleType:
    """Import asyncio without its TLS: a hook opens no such connection.

    The module `ssl` takes 8 ms to import. asyncio works without it, as in a Python that
    was built without OpenSSL: an entry None in `sys.modules` makes its import fail.
    """
    modules: dict[str, ModuleType | None] = cast("Any", sys.modules)
    if "asyncio" in modules or "ssl" in modules:
        import asyncio

        return asyncio

    modules["ssl"] = None
    try:
        import asyncio
    finally:
        del modules["ssl"]

    return asyncio


def _lift_time_limit(niceness: int) -> None:
    """Lift the time limit of the process, and let others go first."""
    # Windows has neither of them.
    with suppress(AttributeError):
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.nice(niceness)


def _log_ignored(event: str, ignored: Mapping[str, str]) -> None:
    """Log the names of the files that are not followed, if there are any."""
    if ignored:
        _log_line(f"{event}: ignored until heedful hook approve: {', '.join(ignored)}")


def _log_warnings(event: str) -> None:
    """Log each warning of heedful as a line, without a traceback."""
    logging.getLogger("heedful").addHandler(_WarningLines(event))


class _WarningLines(logging.Handler):
    """Writes warnings as lines of the hook's log that begin with the event."""

    def __init__(self, event: str) -> None:
        super().__init__(logging.WARNING)
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning as one line."""
        error = getattr(record, "error", "")
        _log_line(f"{self._event}: {record.getMessage()}: {error}".rstrip(": "))


def _notice(event: str, ignored: Mapping[str, str]) -> str:
    """Return what the user hears about files that are not followed, "" for nothing.

    At a stop, the user hears only of files that were approved and have changed since:
    what they ask for no longer happens.
    """
    changed = sorted(set(ignored) & set(approvals()["files"]))
    names = changed if event == "Stop" else sorted(ignored)
    if not names:
        return ""

    verb = "changed and is ignored" if changed else "is ignored"
    return f"heedful: {', '.join(names)} {verb} until heedful hook approve"


def read_event(stream: IO[bytes]) -> Mapping[str, Any]:
    """Read an event, an object in JSON. Raises UsageError for anything else."""
    raw = stream.read(MAX_HOOK_EVENT_BYTES + 1)
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


def _project_folder(data: Mapping[str, Any]) -> Path:
    """Return the folder of the project that an event is about."""
    folders = [os.environ.get("CLAUDE_PROJECT_DIR")]
    roots = data.get("workspace_roots")
    if isinstance(roots, list):
        folders += roots

    for folder in [*folders, data.get("cwd")]:
        if isinstance(folder, str) and folder and os.path.isdir(folder):
            return Path(folder)

    return Path.cwd()


def read_settings(folder: Path, every: bool = False) -> dict[str, Any]:
    """Return the settings of hooks in a folder and its repository. Raises UsageError.

    `db` is the database: the stated one, or that of the folder, the repository or the
    user. `ignored` are the files that the user has not approved, with what `approve`
    takes for them; `every` file counts as if approved. A file that was approved and is
    gone is a changed one.
    """
    folder = folder.resolve()
    approved = approvals()
    root = repository(folder) or folder
    ignored: dict[str, str] = {}
    settings: dict[str, Any] = {
        "tenant": "default",
        "project": "default",
        "holdout": 0.1,
        "db": "",
        "trust": {},
        "hook": {},
        "ignored": ignored,
    }

    for place, file in product(dict.fromkeys((root, folder)), SETTINGS_FILE_TABLES):
        table = read_table(place / file, *SETTINGS_FILE_TABLES[file])
        name = str(place / file)
        digest = hashlib.sha256(json.dumps(table, default=str).encode()).hexdigest()

        # A file without settings needs no approval.
        approved_digest = approved["files"].get(name, "" if table else digest)
        if approved_digest != digest:
            ignored[name] = digest

        if every or name not in ignored:
            for key in table.keys() & HOOK_SETTING_TYPES.keys():
                settings[key] = table[key]
            settings["db"] = _database_in(place, settings["db"])

    settings |= _read_environment()
    policy = settings.pop("policy", "default")
    settings["hook"] = {"policy": policy, **settings["hook"]}
    settings["trust"] = {**approved["trust"], **settings["trust"]}

    if not settings["db"]:
        settings["db"] = _default_database(folder, root, approved["files"], ignored)
    settings["db"] = _database_in(folder, settings["db"])
    return settings


def _read_environment() -> dict[str, Any]:
    """Return the settings in environment variables. Raises UsageError."""
    settings: dict[str, object] = {}
    for name, read in HOOK_SETTING_TYPES.items():
        variable = f"HEEDFUL_{name.upper()}"
        value = os.environ.get(variable)
        if not value:
            continue

        try:
            settings[name] = read(value)
        except ValueError as error:
            raise UsageError(f"{variable} is wrong: {error}") from error

    return settings


def _default_database(
    folder: Path, root: Path, approved: Mapping[str, str], ignored: dict[str, str]
) -> str:
    """Return the database of the folder, its repository or the user.

    A file that heedful did not make, such as one of a clone, is added to `ignored` if
    the user has not approved it. The database of a repository need not exist.
    """
    database = ""
    for path in (folder / DEFAULT_DATABASE_FILE, root / DEFAULT_DATABASE_FILE):
        is_foreign = os.path.lexists(path) and not _made_here(path)
        if is_foreign and str(path) not in approved:
            ignored[str(path)] = DEFAULT_DATABASE_FILE
        elif path.exists() or (path.parent == root and repository(folder)):
            database = database or str(path)

    return database or str(_home_folder() / DEFAULT_DATABASE_FILE)


def _database_in(folder: Path, db: Any) -> str:
    """Return the name of a database that is stated in a folder."""
    if not db or "://" in db or db == ":memory:":
        return str(db)
    return str(folder / db)


def _made_here(path: Path) -> bool:
    """Return True if heedful made a database in this copy of a repository.

    When it makes one, it adds it to the file in which git keeps what to ignore. That
    file is not part of a clone.
    """
    with suppress(OSError):
        exclude = path.parent / ".git" / "info" / "exclude"
        lines = exclude.read_text("utf-8", "replace").splitlines()
        return f"/{path.name}*" in lines
    return False


def approvals() -> dict[str, dict[str, str]]:
    """Return what the user has approved: `files`, and `trust` for all projects."""
    approved: dict[str, dict[str, str]] = {"files": {}, "trust": {}}
    with suppress(OSError, ValueError):
        approved |= json.loads((_home_folder() / APPROVALS_FILE).read_text("utf-8"))
    return approved


def approve(kind: str, more: Mapping[str, str]) -> None:
    """Add to the "files" or the "trust" that the user has approved. Raises OSError."""
    approved = approvals()
    approved[kind] |= more

    # The file is replaced at once, so that no hook reads half of it.
    draft = _home_folder() / f"{APPROVALS_FILE}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8", opener=private) as file:
        json.dump(approved, file, indent=2)
    draft.replace(_home_folder() / APPROVALS_FILE)


def _home_folder() -> Path:
    """Return the folder of what belongs to no repository, which is private."""
    folder = own_db().parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, as `open` takes it for an `opener`."""
    return os.open(path, flags, 0o600)


def detach(work: str, session: str, folder: Path) -> None:
    """Do the work for a session in a process that nobody waits for."""
    import subprocess

    # With -P no file of the folder is taken for a module.
    module = ["-P", "-m", "heedful.integrations.hook"]
    process = subprocess.Popen(
        [sys.executable, *module, work, "--work", session],
        cwd=folder,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    process.returncode = 0  # nobody waits for it


def _log_line(line: str) -> None:
    """Append a line to the log, which begins again when it is too long.

    A full disk is no error.
    """
    import time

    # A RuntimeError says that the user has no home.
    with suppress(OSError, RuntimeError):
        path = _home_folder() / "hook.log"
        is_long = path.exists() and path.stat().st_size >= MAX_LOG_BYTES
        mode = "w" if is_long else "a"
        now = time.strftime("%Y-%m-%d %H:%M:%S")

        with open(
            path, mode, encoding="utf-8", errors="replace", opener=private
        ) as file:
            file.write(f"{now} {line[:MAX_LOG_LINE_CHARS]}\n")


if __name__ == "__main__":
    run()
