"""What is stored of a loop when it begins, and the columns that have it.

A field of `Head` is a column of the table `loop` with its name, and the statements that
write it are made from the fields. Few processes store loops, so that this module
imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal

from heedful.validation import Document, Fields, typed_frozen

if TYPE_CHECKING:
    from heedful.loop.ladder import Ladder
    from heedful.loop.runs import StageHead

# The fields of a `Head` in which `begin` and the stored loop must agree.
HEAD_FIELDS = ("task", "goals", "policy", "context")


@typed_frozen(slots=True, kw_only=True)
class Head:
    """What is stored when a loop begins: its task, and goals and policy as plain data.

    `context` becomes the `Context.data` of the checks, unless the driver of the loop
    sets it. `kind` is "loop", "run" for the run of a pipeline, or "stage" for a stage
    of a run. A loop learns the rules that earlier loops with its `memory_key` broke;
    with "" it learns none. `model` makes its attempts; if nobody named one when the
    loop began, it is that of the first attempt. Without a `ladder`, the loop has one
    rung. `columns` are those of its row, if they were made before the transaction to
    keep it short.
    """

    task: Any
    goals: Sequence[Fields] = field(default_factory=list)
    policy: Fields = field(default_factory=dict)
    context: Any = None
    kind: Literal["loop", "run", "stage"] = "loop"
    stage: StageHead | None = None
    memory_key: str = ""
    model: str = ""
    ladder: Ladder | None = None
    columns: Mapping[str, str] | None = field(default=None, compare=False, repr=False)

    def plain(self) -> Document:
        """Return what the caller who began the loop set, as JSON data by its name."""
        names = ("task", "context", *HEAD_PLAIN)
        return {name: getattr(self, name) for name in names if name != "kind"}


# The fields that are texts, and those that most loops of a process share, as JSON data.
# What is left is the task with its context, and records.
HEAD_TEXTS = [column.name for column in fields(Head) if isinstance(column.default, str)]
HEAD_DATA = [
    column.name
    for column in fields(Head)
    if column.compare
    and column.name not in (*HEAD_TEXTS, "task", "context", "stage", "ladder")
]
# Both kinds: the page of a loop shows each of them, also those that it does not know.
HEAD_PLAIN = [*HEAD_TEXTS, *HEAD_DATA]
# A stage is three columns: its record as settings, its run and its name.
HEAD_COLUMNS = [*HEAD_PLAIN, "ladder", "settings", "run", "stage", "task", "context"]
