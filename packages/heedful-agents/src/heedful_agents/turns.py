"""The end of a turn of a coding agent: the commands of the user that must pass before.

A turn is a loop like any other, and each stop is an attempt of it.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from heedful.drive.report import ReportedLoop, open_loop
from heedful.episodes.episode import Event
from heedful.episodes.error_lines import shorten_failure
from heedful.integrations.call_host import CallRun
from heedful.lessons.scope import digest_of
from heedful.loop.decide import Again
from heedful.loop.record import Evaluation, Finding
from heedful.redact import CUT_MARGIN_CHARS, redact, redact_start
from heedful.sanitize import sanitize
from heedful.validation import (
    MAX_READ_BYTES,
    MAX_STORED_TEXT_CHARS,
    hex_digest,
    storable_id,
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A turn that is about to end.

    Its `commands` must pass in the `folder`; each takes at most `seconds`. The turn
    goes on as long as the `policy` allows, but once only if the agent says that a hook
    has already let it go on, as `went_on`.
    """

    commands: tuple[str, ...]
    folder: str
    seconds: float
    policy: str
    prompt: str
    prompt_id: str
    went_on: bool


async def end_turn(run: CallRun, turn: Turn) -> tuple[bool, str]:
    """Return whether a command failed, and why the turn goes on; "" if it may end.

    If the loop of the turn cannot be opened, the commands alone decide, once a turn.
    """
    loop = await run.host.guarded(
        "open the loop of a turn", _open(run, turn), otherwise=None
    )
    is_over = loop.ended if loop else turn.went_on
    if is_over:
        return False, ""

    findings = {
        command: await _check(command, turn) for command in dict.fromkeys(turn.commands)
    }
    errors = [finding for finding in findings.values() if finding]
    may_go_on = loop is None or await _report(run, turn, loop, findings)
    if turn.went_on or not may_go_on:
        return bool(errors), ""
    reasons = [f"{error.message}:\n{error.evidence}".rstrip(":\n") for error in errors]
    return bool(errors), "\n\n".join(reasons)


async def _open(run: CallRun, turn: Turn) -> ReportedLoop:
    """Open the loop of a turn, by the id of its prompt or by its number and text."""
    events = await run.events()
    prompts = [event["content"] for event in events if event["type"] == "user_message"]
    task = prompts[-1] if prompts else turn.prompt
    id = turn.prompt_id or f"turn-{len(prompts)}-{hex_digest(task)[:8]}"
    return await open_loop(
        f"{run.id}/{storable_id(id)}",
        task,
        policy=turn.policy,
        store=run.host.store,
        scope=run.host.own_scope,
    )


async def _check(command: str, turn: Turn) -> Finding | None:
    """Run a command of the user; return an error if it fails, else None.

    Its evidence is what the command printed: of a long output, its error lines, its
    beginning and its end.
    """
    code, output = await _run(command, turn.folder, turn.seconds)
    if code == 0:
        return None

    end = f"exited with {code}"
    if code is None:
        end = f"took over {turn.seconds:g} s"
    if not output:
        end += " and printed nothing"
    evidence = sanitize(shorten_failure(output, MAX_STORED_TEXT_CHARS))
    name = redact_start(command, 200)
    return Finding(
        name,
        redact(f"`{command}` {end}"),
        key=f"{name}: {digest_of('output', evidence)}",
        evidence=evidence,
    )


async def _run(command: str, folder: str, seconds: float) -> tuple[int | None, str]:
    """Run a shell command; return its exit code and the end of what it printed.

    The end has no secrets. After `seconds` heedful kills it and all its processes, and
    returns no code.
    """
    with tempfile.TemporaryFile() as output_file:
        process = _start(command, folder, output_file)
        try:
            code = await asyncio.to_thread(process.wait, seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # The command still runs if its time is up, or if the hook was cancelled.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

        size = output_file.seek(0, os.SEEK_END)
        output_file.seek(max(0, size - MAX_READ_BYTES))
        output = redact(output_file.read().decode("utf-8", "replace"))
        if size > MAX_READ_BYTES:
            output = output[CUT_MARGIN_CHARS:]
        return code, output.strip()


def _start(
    command: str, folder: str, output_file: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start a shell command that prints to a file.

    It starts without waiting: a hook that is cancelled while it waits would leave the
    command behind.
    """
    return subprocess.Popen(
        command,
        shell=True,
        cwd=folder,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=output_file,
        stderr=output_file,
    )


async def _report(
    run: CallRun,
    turn: Turn,
    loop: ReportedLoop,
    findings: Mapping[str, Finding | None],
) -> bool:
    """Report a stop as an attempt; return False if the loop has ended.

    `findings` maps each command to its error, None if it passed. A session learns from
    a command as from a call.
    """
    errors = tuple(finding for finding in findings.values() if finding)
    number = len(loop.loop.attempts) + 1
    report = loop.report(
        f"the files of {turn.folder} (attempt {number})",
        evaluation=Evaluation(errors, met=1 - len(errors) / len(findings)),
    )
    verdict = await run.host.guarded("decide on a turn", report, otherwise=None)

    for place, (command, finding) in enumerate(findings.items()):
        call = f"{loop.loop.id}/{number}/{place}"
        error = (finding.evidence or finding.message) if finding else ""
        await run.keep(
            Event("tool_call", tool="stop", arguments={"command": command}, call=call),
            Event("tool_response", tool="stop", call=call, error=error),
        )
    return verdict is None or isinstance(verdict, Again)
