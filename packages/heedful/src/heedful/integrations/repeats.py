"""Calls of tools that repeat in one run: what the agent reads, and when its run ends.

A call repeats if tool, arguments and result are those of the call before it, or if it
is in a cycle of two or three such calls. Results are equal if only times and ids in
errors differ. The third equal call is noted in its result; the fifth does not run, and
the agent reads why. If the agent then makes this call again, its run ends. Anything
else begins the count anew: another call, another result, a rejected answer.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.episodes.signals import canonical_json
from heedful.lessons.scope import digest_of
from heedful.loop.finding_key import mask_moments
from heedful.loop.stop import Repeat, Stop
from heedful.redact import redact
from heedful.sanitize import clean, redact_ends
from heedful.validation import MAX_SHOWN_TEXT_CHARS

NOTED_TIMES = 3
HELD_TIMES = 5
# A single call, or a cycle of calls.
CYCLE_LENGTHS = (1, 2, 3)
WAY_OUT = "change its arguments, use another tool, or answer with what you know"
NOTE = f"This call repeats: it had the same result {NOTED_TIMES} times. Now {WAY_OUT}."
HELD_TEXT = (
    f"This call did not run: it had the same result {HELD_TIMES - 1} times in a row. "
    f"Now {WAY_OUT}. If you make it again, the run ends."
)


@dataclass(eq=False, kw_only=True)
class _Step:
    """A call with its result, of which `digest` is equal for equal ones; None at first.

    `action` is the tool with its arguments.
    """

    call: str
    action: str
    digest: str | None = None
    result: str = ""

    def repeats(self, earlier: "_Step") -> bool:
        """Return True if an earlier step has the same action and the same result."""
        is_same = self.action == earlier.action and self.digest == earlier.digest
        return is_same and self.digest is not None


class Repeats:
    """The calls of one run, in the order in which they began.

    Tools in `polls` wait for something, so their calls may repeat. `stopped` is the
    reason if the run ends because it repeats a call.
    """

    def __init__(self, polls: Collection[str]) -> None:
        self.polls = polls
        self.stopped: Stop | None = None
        self._steps: list[_Step] = []
        # The actions that do not run until another one does.
        self._held: set[str] = set()
        # True once the agent could read why: calls of one answer know nothing of it.
        self._is_read = False

    def forget(self) -> None:
        """Begin the count anew: the agent was told something."""
        self._steps.clear()
        self._held.clear()

    def hold(self, tool: str, arguments: Any, call: str) -> str:
        """Begin the call with this id; return why it does not run, or "".

        What it returns is the result of the call.
        """
        action = f"{tool} {canonical_json(arguments)}"
        if tool in self.polls:
            self.forget()
        elif action in self._held:
            if self._is_read:
                self._stop(action)
            return HELD_TEXT
        elif self._find_open(call) is None:
            cycle = self._find_cycle(action)
            self._held = {step.action for step in cycle}
            self._is_read = False
            if cycle:
                return HELD_TEXT
            self._steps.append(_Step(call=call, action=action))
        return ""

    def note(self, call: str, result: str, *, failed: bool = False) -> str:
        """Record the result of a call, or its error; return a note that it repeats.

        The note is "" without any. Times and ids in an error are particulars, in a
        result they may be the progress.
        """
        step = self._find_open(call)
        if step is None:
            return ""

        end_texts = redact_ends(result, MAX_SHOWN_TEXT_CHARS)
        step.result = clean(end_texts, MAX_SHOWN_TEXT_CHARS)
        identity = mask_moments(result) if failed else result
        step.digest = digest_of("result", identity)
        steps = self._steps[: self._steps.index(step) + 1]
        return NOTE if _count_times(steps) == NOTED_TIMES else ""

    def before_request(self, *, at_limit: bool) -> None:
        """Note that the agent reads the results; end a run that repeats `at_limit`."""
        self._is_read = True
        if at_limit and self._steps and _count_times(self._steps) >= NOTED_TIMES:
            self._stop(self._steps[-1].action)

    def _stop(self, action: str) -> None:
        """End the run because of a call."""
        results = [step.result for step in self._steps if step.action == action]
        called = clean(redact(action), MAX_SHOWN_TEXT_CHARS)
        reason = f"{called} kept giving the same: {results[-1]}"
        self.stopped = Stop(Repeat.name, reason)

    def _find_open(self, call: str) -> _Step | None:
        """Return the call with this id that has no result yet."""
        for step in self._steps:
            if step.digest is None and step.call == call:
                return step
        return None

    def _find_cycle(self, action: str) -> Sequence[_Step]:
        """Return the cycle that a call would begin too often, () if there is none."""
        for length in CYCLE_LENGTHS:
            size = length * (HELD_TIMES - 1)
            is_cycle = _count_repeating(self._steps, length) >= size
            if is_cycle and self._steps[-length].action == action:
                return self._steps[-length:]
        return ()


def _count_repeating(steps: Sequence[_Step], length: int) -> int:
    """Return how many steps at the end repeat those `length` before, or are these."""
    count = length
    while count < len(steps) and steps[length - count - 1].repeats(steps[-count - 1]):
        count += 1
    return count


def _count_times(steps: Sequence[_Step]) -> int:
    """Return how often the last of the steps was made in a row, or in a cycle."""
    return max(
        (_count_repeating(steps, length) - 1) // length + 1 for length in CYCLE_LENGTHS
    )
