"""What a client of the service says its agent has read, of which no event told.

An agent reads more than the results of its calls: what is in its messages when a run
begins, results of tools that the provider of its model runs, files. A client sends this
with the next event, as a list of objects. Of each, `by` says whose words it has:

- "user": `text`, of the user or the system;
- "tool": `output`, what a call of the agent returned before the run; `tool`, `input`;
- "provider": `item`, what a tool of the provider told the model;
- "other": `text`, of anybody else, also of the agent in an earlier run;
- "unread": nothing. It was too long to be sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heedful.errors import InvalidInput
from heedful.integrations.begin import Earlier
from heedful.integrations.hooks import READINGS_FIELD
from heedful.integrations.host import HostRun
from heedful.integrations.words import marked


async def keep_readings(run: HostRun, readings: Any) -> None:
    """Keep what an agent has read as events of its run. Raises StoreError.

    Whoever sends the event sends it again after an error, so that nothing is learnt
    from a run without the words that its agent repeats.
    """
    memory = run.host.own_memory
    if memory is None:
        return

    is_list = isinstance(readings, list)
    if not is_list or not all(isinstance(reading, Mapping) for reading in readings):
        raise InvalidInput(
            READINGS_FIELD, readings, 'a list of objects, as [{"by": "unread"}]'
        )

    earlier = Earlier()
    for number, reading in enumerate(readings):
        _add(earlier, reading, call=str(number))
    await earlier.store(memory, run.id)


def _add(earlier: Earlier, reading: Mapping[str, Any], call: str) -> None:
    """Add one thing that an agent has read; `call` is an id of its own."""
    whose = reading.get("by")
    if whose == "user":
        earlier.typed(str(reading.get("text", "")))
    elif whose == "other":
        earlier.said(str(reading.get("text", "")))
    elif whose == "provider":
        earlier.ran(reading.get("item"))
    elif whose == "unread":
        earlier.is_unread = True
    elif whose == "tool":
        output = reading.get("output")
        text = str(output)
        if not isinstance(output, str):
            text = json.dumps(output, ensure_ascii=False)
        earlier.called(call, str(reading.get("tool", "")), reading.get("input"))
        earlier.returned(call, marked(text, output))
    else:
        raise InvalidInput(
            f"{READINGS_FIELD}.by",
            whose,
            '"user", "tool", "provider", "other" or "unread"',
        )
