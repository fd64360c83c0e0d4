"""How far a run is: a line every few seconds, and each failure when it happens."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

SECONDS_BETWEEN_LINES = 10.0


def minutes(seconds: float) -> str:
    """Return a duration as in "4:05"."""
    total = round(seconds)
    return f"{total // 60}:{total % 60:02}"


class Progress:
    """What the process that starts the workers prints, in place of dots."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.monotonic()
        self._first_test = self._began
        self._next_line = self._began
        self._total: int | None = None
        self._done = 0
        self._failed = 0

    def _print(self, line: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(line)
        reporter.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Say that nothing runs for the next seconds."""
        self._print("collecting the tests …")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(
        self, node: object, ids: Sequence[str]
    ) -> None:
        """Keep how many tests there are; each worker collects all of them."""
        if self._total is None:
            self._total = len(ids)
            self._first_test = time.monotonic()
            self._next_line = self._first_test + SECONDS_BETWEEN_LINES
            seconds = self._first_test - self._began
            self._print(f"{len(ids):,} tests, collected in {seconds:.0f} s")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str] | None:
        """Print no letter for a test, whatever became of it."""
        if hasattr(report, "wasxfail"):
            return None
        if report.when != "call" and report.failed:
            return "error", "", ""
        if report.when != "call" and report.passed:
            return "", "", ""
        return report.outcome, "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure at once, and now and then how far the run is."""
        if report.failed:
            self._failed += 1
            crash = getattr(report.longrepr, "reprcrash", None)
            self._print(f"FAILED {report.nodeid}")
            if crash is not None:
                reason = crash.message.splitlines()[0]
                self._print(f"    {crash.path}:{crash.lineno}: {reason}")
        if report.when != "teardown":
            return

        self._done += 1
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + SECONDS_BETWEEN_LINES
            self._print(self._line(now))

    def pytest_terminal_summary(self) -> None:
        """Say how many tests did not run, as after Ctrl-C."""
        total = self._total or 0
        if self._done < total:
            self._print(f"{total - self._done:,} of {total:,} tests did not run")

    def _line(self, now: float) -> str:
        """Return how many tests are done, and the time that the rest needs at the speed
        until now.
        """
        total = self._total or 0
        seconds = now - self._first_test
        left = seconds / self._done * (total - self._done)
        failures = f", {self._failed} failed" if self._failed else ""
        return (
            f"{self._done:>6,} of {total:,} tests{failures}; "
            f"{minutes(now - self._began)} gone, about {minutes(left)} left"
        )
