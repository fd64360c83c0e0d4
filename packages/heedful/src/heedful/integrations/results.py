"""The verdict on the result of an agent of any framework."""

from collections.abc import Mapping
from typing import Any, cast

from heedful.episodes.episode import Ended
from heedful.loop.codec import verdict_from
from heedful.loop.decide import Done

# The key of what heedful adds to a result, a state or a message of a framework.
RESULT_KEY = "heedful"
# How a run ends by whether its last output has passed; None if it was not judged.
PASSED_OUTCOMES: Mapping[Any, Ended] = {
    None: "partial",
    True: "success",
    False: "failure",
}


def verdict_of(result: Any) -> Done | None:
    """Return the verdict on the result of an agent, in LangChain its state, or None.

    `passed` says if the checks accept the answer, `stopped_by` has the rules that ended
    the run otherwise; then the answer is the best one. After a failure of heedful, the
    rule is `unjudged`.
    """
    if not isinstance(result, Mapping):
        fields = vars(result)
        # An event of ADK has the verdict as JSON data.
        metadata = fields.get("custom_metadata") or {}
        if RESULT_KEY in metadata:
            return cast("Done", verdict_from(metadata[RESULT_KEY]))
        state = fields.get("state")
        if RESULT_KEY not in fields and isinstance(state, Mapping):
            fields = state
        return cast("Done | None", fields.get(RESULT_KEY))

    verdict = result.get(RESULT_KEY)
    if isinstance(verdict, Done):
        return verdict

    # In LangChain, the last message has the verdict as JSON data.
    messages = result.get("messages") or [None]
    document = getattr(messages[-1], "response_metadata", {}).get(RESULT_KEY)
    return cast("Done", verdict_from(document)) if document else None
