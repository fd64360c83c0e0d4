"""What the hooks of a call need of memory: its store, and how calls failed before.

A hook process starts for each event, so this imports no more. `Memory` has the rest.
"""

import logging
import traceback
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from heedful.lessons.call_marks import ActionHistory
from heedful.lessons.origin import check_name
from heedful.lessons.scope import DEFAULT_HOLDOUT_SHARE, Scope, check_holdout
from heedful.store import calls, open_store
from heedful.store.store import Store
from heedful.validation import Fields, check_texts, refuses_unknown_options, require

if TYPE_CHECKING:
    from heedful.memory.quarantine import Quarantine

_log = logging.getLogger("heedful")


def log_failure(event: str, error: Exception, scope: Scope | None = None) -> None:
    """Log the type of an error and where it was raised, with the scope if it is known.

    `event` is the message of the log record. The text of the error is left out, because
    it may quote data.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    place = asdict(scope) if scope else {}
    fields = {"error": type(error).__name__, "traceback": frames}
    _log.warning(event, extra=fields | place)


class CallMemory:
    """The memory of a scope, as the hooks of calls use it; see `Memory`."""

    def __init__(
        self,
        store: Store | str,
        scope: Scope | None = None,
        *,
        holdout: float = DEFAULT_HOLDOUT_SHARE,
        strict: bool = False,
        trust: Collection[str] = (),
    ) -> None:
        """Open the memory of `scope` in a store, which may be given by its name.

        `holdout` is the share of lessons that is withheld at random, `strict` makes
        more fixes wait for a review, and `trust` are names of sources whose texts need
        none. Raises InvalidInput.
        """
        # One text would pass for a list of its characters.
        require(not isinstance(trust, str), "trust", trust, "a list of names")
        for name in trust:
            check_name(name)
        require(isinstance(strict, bool), "strict", strict, "True or False")
        check_holdout(holdout)
        self.store: Store = open_store(store)
        self.scope: Scope = scope or Scope()
        self.holdout = holdout
        self.strict = strict
        self.stated: frozenset[str] = frozenset(trust)

    @property
    def quarantine(self) -> "Quarantine":
        """What waits until a person decides about it, and the sources people stated."""
        from heedful.memory.quarantine import Quarantine  # slow to import for a hook

        return Quarantine(self.store, self.scope, stated=self.stated)

    @refuses_unknown_options
    async def before(
        self, tool: str, arguments: Fields | str, *, folder: str = ""
    ) -> ActionHistory:
        """Return how calls like this one failed, and what fixed them.

        Ask before a tool runs. `arguments` are the arguments of the call as data, or
        the text of a command; paths are relative to the repository in `folder`. The
        result tells of the same call if it failed and has not worked since; of a
        command, only once it failed in two runs. It also tells of names and paths in
        the arguments that an error was about and that never worked. All reads use an
        index. Raises InvalidInput, StoreError.
        """
        check_texts(tool=tool)
        require(
            isinstance(arguments, str | Mapping),
            "arguments",
            arguments,
            "a mapping, or the text of a command",
        )
        return await self.store.read(
            self.scope,
            calls.history_of,
            tool,
            arguments,
            folder=folder,
            stated=self.stated,
        )
