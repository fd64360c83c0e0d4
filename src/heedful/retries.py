"""What failed over many runs, what the retries mended and what they cost. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from heedful.lessons.proof import Estimate, share
from heedful.reports import AttemptReport, Report, StageReport


@dataclass(frozen=True, slots=True)
class Extra:
    """What attempts after the first ones came to; `seconds` is the time they took."""

    attempts: int = 0
    seconds: float = 0.0
    tokens: int = 0

    def plus(self, attempts: Iterable[AttemptReport]) -> Extra:
        """With these attempts too."""
        listed = list(attempts)
        ms = sum(one.execution_time_ms for one in listed)
        tokens = self.tokens + sum(one.usage.tokens for one in listed)
        return Extra(self.attempts + len(listed), round(self.seconds + ms / 1000, 6), tokens)


@dataclass(frozen=True, slots=True)
class CheckCount:
    """One check: how many attempts it `judged`, and how many of them `failed` it.

    It judges every attempt of the stages in whose reports it ever appears, but those at which it
    raised, or is not named where results were missing: else a check that is not named found
    nothing. `stages` is the number of stages that have
    ended in which an attempt failed it, `recovered` the number of them that passed in the end.
    `cost` is that of the attempts that followed one which failed it; where several checks failed at
    once, it counts for each of them.
    """

    name: str
    judged: int
    failed: int
    stages: int
    recovered: int
    cost: Extra

    @property
    def share(self) -> Estimate | None:
        """The share of attempts that failed it, with a 95 % interval; None where it judged none."""
        return share(self.failed, self.judged) if self.judged else None

    @property
    def success(self) -> Estimate | None:
        """The share of stages that passed in the end, with a 95 % interval; None without any."""
        return share(self.recovered, self.stages) if self.stages else None

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        shares = {"share": self.share, "success": self.success}
        return asdict(self) | {name: one and asdict(one) for name, one in shares.items()}


@dataclass(frozen=True, slots=True)
class StageCount:
    """One stage over the runs in which it was tried; `cost` is that beyond its first attempts."""

    name: str
    runs: int
    passed: int
    degraded: int
    attempts: int
    cost: Extra


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts over `runs`: checks, most failed first, and stages, in the order of the pipeline."""

    runs: int = 0
    checks: tuple[CheckCount, ...] = ()
    stages: tuple[StageCount, ...] = ()
    cost: Extra = field(default_factory=Extra)

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self) | {"checks": [one.plain() for one in self.checks]}


def statistics(reports: Iterable[Report]) -> Statistics:
    """Which checks fail most, what came of it, and what the attempts after the first ones cost."""
    listed = list(reports)
    tried: dict[str, list[StageReport]] = defaultdict(list)
    for report in listed:
        for stage in report.stages:
            if stage.attempts:
                tried[stage.name].append(stage)
    where: dict[str, list[StageReport]] = defaultdict(list)
    for found in tried.values():
        names = (one.check_name for stage in found for a in stage.attempts for one in a.checks)
        for name in dict.fromkeys(names):
            where[name] += found
    counts = (_check(name, found) for name, found in where.items())
    checks = sorted(counts, key=lambda one: -one.failed)
    stages = tuple(_stage(name, found) for name, found in tried.items())
    beyond = (made for found in tried.values() for stage in found for made in stage.attempts[1:])
    return Statistics(len(listed), tuple(checks), stages, Extra().plus(beyond))


def _check(name: str, stages: Sequence[StageReport]) -> CheckCount:
    judged, failed, ended, recovered, cost = 0, 0, 0, 0, Extra()
    for stage in stages:
        said = [_said(name, made) for made in stage.attempts]
        judged += sum(one != {"not_validated"} for one in said)
        fails = ["failed" in one for one in said]
        failed += sum(fails)
        cost = cost.plus(stage.attempts[n + 1] for n, fell in enumerate(fails[:-1]) if fell)
        if any(fails) and stage.action != "open":
            ended += 1
            recovered += stage.action == "passed"
    return CheckCount(name, judged, failed, ended, recovered, cost)


def _said(name: str, made: AttemptReport) -> set[str]:
    said: set[str] = {one.status for one in made.checks if one.check_name == name}
    return {"not_validated"} if made.without_results and not said else said


def _stage(name: str, found: Sequence[StageReport]) -> StageCount:
    cost = Extra().plus(made for stage in found for made in stage.attempts[1:])
    return StageCount(
        name,
        len(found),
        sum(stage.action == "passed" for stage in found),
        sum(stage.degraded for stage in found),
        sum(len(stage.attempts) for stage in found),
        cost,
    )
