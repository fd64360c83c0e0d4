"""Repairs: a call of an agent that will fail is changed before it is made.

It is changed only if a person says so in the settings, and shown to that person and to
the agent. heedful never grants a permission: with "ask" the agent asks the person about
the changed call, and with "on" it decides about it by its own rules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from heedful.lessons.lesson import Scope
from heedful.lessons.preconditions import path_of
from heedful.sanitize import sanitize
from heedful.store import episodes, repairs
from heedful.store.connection import Db, resumable
from heedful.store.repairs import JudgedCall, Repair
from heedful.traces.episode import Event
from heedful.traces.error_lines import is_of_work, named_errors

if TYPE_CHECKING:  # a hook process imports only what its event needs
    from heedful.integrations.host import HostRun

Mode = Literal["off", "ask", "on"]
# In these modes of an agent nobody is there to be asked.
UNATTENDED_MODES = frozenset({"dontAsk"})


async def find_repair(
    run: HostRun,
    *,
    tool: str,
    arguments: Mapping[str, Any],
    call: str,
    agent: str,
    is_unattended: bool,
) -> Repair | None:
    """Return the repair of a call, and record that it is offered; None without one.

    Without the id of the `call`, nobody could tell how it ended. A repair that changes
    more than the spelling of words needs a person who is asked.
    """
    memory = run.host.own_memory
    if memory is None or not call:
        return None
    root = run.host.root
    failing_call = JudgedCall(
        tool=tool, arguments=arguments, session=run.id, folder=root
    )
    repair = await memory.store.read(
        memory.scope, repairs.find_repair, failing_call, memory.trust
    )
    if repair is None or not _is_in(root, path_of(repair.known.arguments)):
        return None
    if is_unattended and not repair.known.substitution.corrects_spelling:
        return None
    # What the user forbids is told or denied, and not repaired away.
    for call_arguments in (arguments, repair.known.arguments):
        if await memory.user_rules.broken_by(tool, call_arguments, folder=root):
            return None

    event = Event(
        "tool_call",
        agent=agent,
        tool=tool,
        arguments=dict(repair.known.arguments),
        call=call,
    )
    row = episodes.event_row(event)
    await memory.store.write(
        memory.scope, _offer, failing_call, call=call, repair=repair, row=row
    )
    return repair


@resumable(result=None)
def _offer(
    db: Db,
    scope: Scope,
    failing_call: JudgedCall,
    call: str,
    repair: Repair,
    row: Mapping[str, Any],
) -> None:
    """Record a repair, and the call as it will be made."""
    repairs.offer(db, scope, failing_call, id=call, repair=repair)
    episodes.append_events(
        db, scope, failing_call.session, [row], root=failing_call.folder
    )


def _is_in(root: str, path: str) -> bool:
    """Return whether a path exists in the repository; a call may have none."""
    if not path:
        return True
    if not root:
        return False
    top = os.path.realpath(root)
    place = os.path.realpath(os.path.join(top, path))
    return place.startswith(f"{top}/") and os.path.exists(place)


async def settle_repair(
    run: HostRun, *, tool: str, arguments: Mapping[str, Any], call: str, error: str
) -> None:
    """Record how a call ended that was repaired; another call changes nothing.

    An error of the work itself, such as a test that fails, says that it ran.
    """
    memory = run.host.own_memory
    if memory is None or not call:
        return
    errors: Sequence[str] = named_errors(error, arguments) if error else ()
    if errors and is_of_work(errors[0]):
        errors = ()
    made_call = JudgedCall(
        tool=tool,
        arguments=arguments,
        errors=errors,
        session=run.id,
        folder=run.host.root,
    )
    await memory.store.write(memory.scope, _settle, made_call, call)


@resumable(result=None)
def _settle(db: Db, scope: Scope, made_call: JudgedCall, call: str) -> None:
    repairs.settle(db, scope, made_call, call)


def words_of(repair: Repair, mode: Mode) -> str:
    """Return what is told of a repair: what is changed, and why."""
    text = " ".join(sanitize(repair.text).split())
    verb = "proposes" if mode == "ask" else "changed the call:"
    return f"heedful {verb} {text}"
