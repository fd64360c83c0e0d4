"""heedful in other people's agents: the core (`Host`), and a module a framework.

A module imports its framework and the core, nothing else, and is imported by its own
name, such as `heedful.integrations.langchain`. No framework is pinned.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # the hook process decides when to import the core
    from heedful.episodes.episode import Ended
    from heedful.integrations.host import Advice, Host, HostRun
    from heedful.loop.decide import Done

__all__ = ["Advice", "Host", "HostRun", "verdict_of"]
# The key of what heedful adds to a result, a state or a message of a framework.
RESULT_KEY = "heedful"
# How a run ends by whether its last output has passed; None if it was not judged.
PASSED_OUTCOMES: "Mapping[Any, Ended]" = {
    None: "partial",
    True: "success",
    False: "failure",
}


def verdict_of(result: Any) -> "Done | None":
    """Return the verdict on the result of an agent, in LangChain its state, or None.

    `passed` says if the checks accept the answer, `stopped_by` has the rules that ended
    the run otherwise; then the answer is the best one. After a failure of heedful, the
    rule is `unjudged`.
    """
    from heedful.loop import codec, decide

    if not isinstance(result, Mapping):
        fields = vars(result)
        # An event of ADK has the verdict as JSON data.
        metadata = fields.get("custom_metadata") or {}
        if RESULT_KEY in metadata:
            return cast("Done", codec.verdict_from(metadata[RESULT_KEY]))
        state = fields.get("state")
        if RESULT_KEY not in fields and isinstance(state, Mapping):
            fields = state
        return cast("Done | None", fields.get(RESULT_KEY))

    verdict = result.get(RESULT_KEY)
    if isinstance(verdict, decide.Done):
        return verdict

    # In LangChain, the last message has the verdict as JSON data.
    messages = result.get("messages") or [None]
    document = getattr(messages[-1], "response_metadata", {}).get(RESULT_KEY)
    return cast("Done", codec.verdict_from(document)) if document else None


def __getattr__(name: str) -> Any:
    """Import a name of the core when it is first needed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heedful.integrations import host

    return getattr(host, name)
