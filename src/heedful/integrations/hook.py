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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import IO, Any

from heedful.errors import HeedfulError, UsageError
from heedful.redact import redact
from heedful.store import DEFAULT_DATABASE_FILE, own_db, prepare, read_table, repository

HOOK_USAGE = (
    "usage: heedful-hook EVENT [--agent NAME] [--strict]; EVENT is the agent's own "
    "name of it"
)
# Bytes of an event: no agent sends so many. Characters of a line of the log, and bytes
# of the log. and the seconds until an answer, except to the end of a turn
MAX_HOOK_EVENT_BYTES = 8 * 2**20
HOOK_TIMEOUT_SECONDS = 5
MAX_LOG_LINE_CHARS = 400
MAX_LOG_BYTES = 2**20
# The settings that a hook needs, with the types of their values as text in the
# environment.
HOOK_SETTING_TYPES: dict[str, Any] = {
    "db": str,
    "tenant": str,
    "project": str,
    "holdout": float,
    "policy": str,
}
HOOK_SETTING_TYPES |= {"trust": json.loads, "hook": json.loads}
SETTINGS_FILE_TABLES: dict[str, tuple[str, ...]] = {
    "pyproject.toml": ("tool", "heedful"),
    "heedful.toml": (),
}
# beside the user's own database: which files of projects are followed
APPROVALS_FILE = "approved.json"
NOTICE_EVENTS = (
    "SessionStart",
    "Stop",
)  # of Claude Code: the user hears that settings are not followed


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one event on standard input; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    strict = "--strict" in words
    words = [word for word in words if word != "--strict"]
    agent, work = (_option(words, name) for name in ("--agent", "--work"))
    if len(words) != 1 or words[0].startswith("-"):
        print(HOOK_USAGE, file=sys.stderr)
        return 1  # if a hook exits with 2, Claude Code blocks the action
    try:
        with suppress(KeyboardInterrupt):
            _answer(words[0], agent or "claude-code", work, strict)
    except Exception as error:  # the edge to the agent, which must not fail by us
        said = (
            " ".join(redact(str(error)).split())
            if isinstance(error, HeedfulError)
            else ""
        )
        _log(f"{words[0]}: {type(error).__name__}: {said}".rstrip(": "))
        if (
            words[0] in NOTICE_EVENTS
            and (agent or "claude-code") == "claude-code"
            and said
        ):
            print(
                json.dumps({"systemMessage": f"heedful: this hook did nothing: {said}"})
            )
        if strict:
            print(f"heedful-hook: {said or repr(error)}", file=sys.stderr)
    return 0


def run() -> None:
    """Run `main`, and end without waiting for what a locked database holds up."""
    gc.disable()  # the process ends before there is much to collect
    with suppress(AttributeError):  # not on Windows
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(
                number, signal.default_int_handler
            )  # so that commands end, too
        signal.signal(signal.SIGALRM, _late)
        signal.setitimer(signal.ITIMER_REAL, HOOK_TIMEOUT_SECONDS)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _late(*_: Any) -> None:
    _log(f"{sys.argv[1]}: no answer within {HOOK_TIMEOUT_SECONDS} s")
    os._exit(0)


def _option(words: list[str], name: str) -> str:
    """Remove an option with its value from the words; return the value, "" if it is not
    there.
    """
    at = words.index(name) if name in words else len(words)
    value = words[at + 1] if at + 1 < len(words) else ""
    del words[at : at + 2]
    return value


def _answer(event: str, agent: str, work: str, strict: bool) -> None:
    data: Mapping[str, Any] = (
        {"cwd": str(Path.cwd())} if work else read_event(sys.stdin.buffer)
    )
    folder = _folder(data)
    found = read_settings(folder)
    if found["ignored"]:
        _log(
            f"{event}: ignored until heedful hook approve: "
            f"{', '.join(found['ignored'])}"
        )
    bare = "asyncio" not in sys.modules and "ssl" not in sys.modules
    if bare:  # ssl takes 8 ms to import, and a hook opens no TLS connection
        sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio

    if bare:
        del sys.modules["ssl"]

    from heedful.integrations import hooks

    handler = logging.Handler(
        logging.WARNING
    )  # a line for each warning, without a traceback
    handler.emit = lambda record: _log(  # type: ignore[method-assign]
        f"{event}: {record.getMessage()}: {getattr(record, 'error', '')}".rstrip(": ")
    )
    logging.getLogger("heedful").addHandler(handler)
    rules, host = hooks.follow(found, prepare(found["db"]), strict)
    if work or event in {one.event_of("stop") for one in hooks.AGENTS.values()}:
        with suppress(AttributeError):  # not on Windows
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.nice(10 if work else 0)
    if work:
        asyncio.run(hooks.work(host, work, "end" if event == "end" else "study"))
        return
    made = asyncio.run(hooks.reply(event, data, host, agent=agent, settings=rules))
    answer = made.answer
    tells = agent == "claude-code" and event in NOTICE_EVENTS
    changed = set(found["ignored"]) & set(approvals()["files"])
    # A stop tells only of what the gate has lost, not of what it never had.
    if tells and (names := sorted(changed if event == "Stop" else found["ignored"])):
        what = f"{', '.join(names)} {'changed and ' * bool(changed)}is ignored until"
        notes = [
            (answer or {}).get("systemMessage"),
            f"heedful: {what} heedful hook approve",
        ]
        answer = {**(answer or {}), "systemMessage": "\n".join(filter(None, notes))}
    if answer is not None:
        print(json.dumps(answer), flush=True)
    if made.work:
        detach(made.work, made.session, folder)


def read_event(stream: IO[bytes]) -> Mapping[str, Any]:
    """Read an event as JSON data; nothing for an empty input. Raises UsageError."""
    raw = stream.read(MAX_HOOK_EVENT_BYTES + 1)
    if len(raw) > MAX_HOOK_EVENT_BYTES:
        while stream.read(2**20):  # the agent must not fail at writing
            pass
        raise UsageError(f"the event has more than {MAX_HOOK_EVENT_BYTES} bytes")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the event of {len(raw)} bytes is not JSON") from error
    if not isinstance(data, dict):
        raise UsageError(f"the event is not an object but {type(data).__name__}")
    return data


def _folder(data: Mapping[str, Any]) -> Path:
    """Return the folder of the project that an event is about."""
    roots = data.get("workspace_roots")
    named = [
        os.environ.get("CLAUDE_PROJECT_DIR"),
        *(roots if isinstance(roots, list) else []),
    ]
    for place in (*named, data.get("cwd")):
        if isinstance(place, str) and place and os.path.isdir(place):
            return Path(place)
    return Path.cwd()


def read_settings(folder: Path, every: bool = False) -> dict[str, Any]:
    """Return the settings of hooks in a folder, else in its repository. Raises
    UsageError.

    `db` is the database: the stated one, or that of the folder, the repository or the
    user. `ignored` are the files that the user has not approved, with what `approve`
    takes for them; `every` file counts as if approved. A file that was approved and is
    gone is a changed one.
    """
    folder = folder.resolve()
    known = approvals()
    root = repository(folder) or folder
    ignored = dict[str, str]()
    found: dict[str, Any] = {
        "tenant": "default",
        "project": "default",
        "holdout": 0.1,
        "db": "",
    }
    found |= {"trust": {}, "hook": {}, "ignored": ignored}
    for place, file in product(dict.fromkeys((root, folder)), SETTINGS_FILE_TABLES):
        stated = read_table(place / file, *SETTINGS_FILE_TABLES[file])
        name = str(place / file)
        digest = hashlib.sha256(json.dumps(stated, default=str).encode()).hexdigest()
        if known["files"].get(name, "" if stated else digest) != digest:
            ignored[name] = digest
        if every or name not in ignored:
            found |= {
                key: value for key, value in stated.items() if key in HOOK_SETTING_TYPES
            }
            found["db"] = _at(place, found["db"])
    for name, make in HOOK_SETTING_TYPES.items():
        if value := os.environ.get(f"HEEDFUL_{name.upper()}"):
            try:
                found[name] = make(value)
            except ValueError as error:
                raise UsageError(f"HEEDFUL_{name.upper()} is wrong: {error}") from error
    found["hook"] = {"policy": found.pop("policy", "default"), **found["hook"]}
    for path in (
        ()
        if found["db"]
        else (folder / DEFAULT_DATABASE_FILE, root / DEFAULT_DATABASE_FILE)
    ):
        if (
            os.path.lexists(path)
            and not _made_here(path)
            and str(path) not in known["files"]
        ):
            ignored[str(path)] = DEFAULT_DATABASE_FILE
        elif path.exists() or (path.parent == root and repository(folder)):
            found["db"] = found["db"] or str(path)
    found["db"] = _at(folder, found["db"] or str(_home() / DEFAULT_DATABASE_FILE))
    return {**found, "trust": {**known["trust"], **found["trust"]}}


def _at(folder: Path, db: Any) -> str:
    """Return the name of a database that is stated in a folder."""
    return str(folder / db) if db and "://" not in db and db != ":memory:" else str(db)


def _made_here(path: Path) -> bool:
    """Return True if heedful made a database: it had git ignore it in a file no clone
    brings.
    """
    with suppress(OSError):
        excluded = (path.parent / ".git" / "info" / "exclude").read_text(
            "utf-8", "replace"
        )
        return f"/{path.name}*" in excluded.splitlines()
    return False


def approvals() -> dict[str, dict[str, str]]:
    """Return what the user has approved: `files`, and the `trust` of sources in all
    projects.
    """
    found: dict[str, dict[str, str]] = {"files": {}, "trust": {}}
    with suppress(OSError, ValueError):
        found |= json.loads((_home() / APPROVALS_FILE).read_text("utf-8"))
    return found


def approve(kind: str, more: Mapping[str, str]) -> None:
    """Add to the "files" or the "trust" that the user has approved. Raises OSError."""
    known = approvals()
    draft = _home() / f"{APPROVALS_FILE}.{os.getpid()}"
    known[kind] |= more
    with open(draft, "w", encoding="utf-8", opener=private) as file:
        json.dump(known, file, indent=2)
    draft.replace(_home() / APPROVALS_FILE)


def _home() -> Path:
    """Return the folder of what belongs to no repository, which is private."""
    place = own_db().parent
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, as `open` takes it for an `opener`."""
    return os.open(path, flags, 0o600)


def detach(work: str, session: str, folder: Path) -> None:
    """Do the work for a session in a process that nobody waits for."""
    import subprocess

    # With -P no file of the folder is taken for a module.
    command = [
        sys.executable,
        "-P",
        "-m",
        "heedful.integrations.hook",
        work,
        "--work",
        session,
    ]
    streams: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, **streams)
    process.returncode = 0  # nobody waits for it


def _log(line: str) -> None:
    """Append a line to the log, which begins again when it is long; a full disk is no
    error.
    """
    import time

    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        place = _home() / "hook.log"
        kept = (
            "a" if not place.exists() or place.stat().st_size < MAX_LOG_BYTES else "w"
        )
        with open(
            place, kept, encoding="utf-8", errors="replace", opener=private
        ) as file:
            file.write(
                f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line[:MAX_LOG_LINE_CHARS]}\n"
            )


if __name__ == "__main__":
    run()
