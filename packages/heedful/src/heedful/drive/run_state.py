"""What a run knows of its loop between two attempts."""

from dataclasses import dataclass, field, replace
from typing import Any

from heedful.drive import journal
from heedful.drive.generate import CandidateBatch
from heedful.loop import decide, record
from heedful.models.call import RETRY_TEMPERATURE_STEP
from heedful.store.records import StoredLoop


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What a run knows of its loop.

    `values` are the candidates, one for each attempt. `answer` has the candidates of an
    attempt that is not judged yet; None if there is no such attempt.
    """

    loop: record.Loop
    values: tuple[Any, ...] = ()
    verdict: decide.Verdict = field(default_factory=decide.Again)
    answer: CandidateBatch | None = None

    @property
    def rung(self) -> int:
        """The rung that makes the next attempt, or that made the last one."""
        if isinstance(self.verdict, decide.Again):
            return self.verdict.rung
        return self.loop.rung

    def warmed(self, temperature: float) -> float:
        """Return the temperature of the next attempt.

        Each repeated candidate makes the model warmer, up to 1.
        """
        if len(self.loop.attempts) < 2 or self.rung != self.loop.rung:
            return temperature
        repeats = self.loop.of_rung().repeats()
        repeated = [first for first in repeats if first is not None]
        warmer = temperature + RETRY_TEMPERATURE_STEP * len(repeated)
        return max(temperature, min(1.0, warmer))


def count_died_calls(stored_loop: StoredLoop, *, is_given: bool) -> record.Loop:
    """Return the loop; a call that died with its process counts, as it was made.

    With an answer, or with the candidate that the caller gives, no call was needed:
    then `died` is 0.
    """
    loop = stored_loop.loop
    has_answer = journal.answer_step(loop) in stored_loop.journal
    goes_on = isinstance(stored_loop.verdict, decide.Again)
    needed_none = has_answer or not goes_on or (is_given and not loop.attempts)
    if not loop.died or needed_none:
        return replace(loop, died=0)
    return replace(loop, extra=loop.extra + record.Usage(loop.died))
