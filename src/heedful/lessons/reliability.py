"""Reliability: how surely a call fails that takes something for granted. Pure.

What failed and never passed mostly fails again; what passed before mostly does not. So
each precondition has a `Track` of its calls, and tracks of one `Form` are alike. When a
session has ended, it is replayed: whatever its preconditions would have announced is
tested by what happened. `lower_bound` is how surely calls of a form fail, by these
tests; memory speaks from `MIN_SPOKEN_BOUND` on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

from heedful.lessons.preconditions import STATE_TEMPLATES, Precondition, find_blamed

if TYPE_CHECKING:  # a hook process before a call replays nothing
    from heedful.lessons.substitution import Replacement

# A form has at most so many of each count: more say nothing more.
MAX_FORM_FAILURES = 3
MAX_FORM_PASSES = 2
# All templates together count as so many tests of a form of one template.
POOLED_TESTS = 6
# A form of tests made elsewhere counts as at most so many.
MAX_SHIPPED_TESTS = 50
MIN_TESTS = 3
# Judged by leaving one environment out of 14 recorded ones: from 0.5 to 0.8, at most
# 15 % of what is announced passes in coding sessions and 1 % in queries.
MIN_SPOKEN_BOUND = 0.6


@dataclass(frozen=True, slots=True)
class Track:
    """What became of the calls with a precondition.

    They failed because of it in `failed` sessions. So many `passed`, and `since` it
    failed last.
    """

    failed: int = 0
    since: int = 0
    passed: int = 0

    def after_failure(self, *, again: bool) -> Track:
        """Return the track after a failure, which may come `again` in its session."""
        failed = self.failed if again else self.failed + 1
        return replace(self, failed=failed, since=0)

    def after_pass(self) -> Track:
        """Return the track after a call that passed."""
        return replace(self, since=self.since + 1, passed=self.passed + 1)


@dataclass(frozen=True, slots=True)
class Form:
    """What tracks have in common: their `template`, "" for any, and rough counts.

    Preconditions on the state of a session have no track; their form has the `variant`
    in its place, such as the tool.
    """

    template: str
    failed: int = 0
    since: int = 0
    has_passed: bool = False
    variant: tuple[str, ...] = ()

    @classmethod
    def of(cls, precondition: Precondition, track: Track) -> Form:
        """Return the form of a track."""
        if precondition.template in STATE_TEMPLATES:
            return cls(precondition.template, variant=precondition.words)
        return cls(
            precondition.template,
            min(track.failed, MAX_FORM_FAILURES),
            min(track.since, MAX_FORM_PASSES),
            track.passed > 0,
        )

    @property
    def pooled(self) -> Form | None:
        """The same form of any template; None where templates cannot be compared.

        A whole command that failed once, or that passed, is often the work itself: a
        test that fails. One that failed in two sessions and never passed is like any.
        """
        if self.variant:
            return None
        if self.template == "command" and (self.has_passed or self.failed == 1):
            return None
        return replace(self, template="")


@dataclass(frozen=True, slots=True)
class FormTests:
    """How often a form was tested, and how often it held: the call failed."""

    held: float = 0.0
    tested: float = 0.0

    def __add__(self, other: FormTests) -> FormTests:
        return FormTests(self.held + other.held, self.tested + other.tested)

    def at_most(self, tested: float) -> FormTests:
        """Return as good a share of fewer tests."""
        if self.tested <= tested:
            return self
        return FormTests(self.held * tested / self.tested, tested)


NO_TESTS = FormTests()
TestsByForm = Mapping[Form, FormTests]


def lower_bound(form: Form, own: TestsByForm, shipped: TestsByForm) -> float:
    """Return how surely calls of a form fail: the share that held, less its error.

    `own` tests are those of the environment. Returns 0 with fewer than `MIN_TESTS`.
    """
    if not (form.failed or form.variant):
        return 0.0

    tests = own.get(form, NO_TESTS) + _shipped_tests(form, shipped)
    pooled_form = form.pooled
    if pooled_form is not None:
        pooled = own.get(pooled_form, NO_TESTS) + _shipped_tests(pooled_form, shipped)
        weight = POOLED_TESTS * pooled.tested / (pooled.tested + 1)
        share = (pooled.held + 0.5) / (pooled.tested + 1)
        tests = tests + FormTests(weight * share, weight)
    if tests.tested < MIN_TESTS:
        return 0.0

    share = (tests.held + 0.5) / (tests.tested + 1)
    return share - sqrt(share * (1 - share) / (tests.tested + 1))


def _shipped_tests(form: Form, shipped: TestsByForm) -> FormTests:
    """Return the tests of a form that were made elsewhere."""
    return shipped.get(form, NO_TESTS).at_most(MAX_SHIPPED_TESTS)


@dataclass(frozen=True)
class Step:
    """A step of a finished run: a call, what it took for granted, and its `errors`.

    Without errors it passed. `lesson` is the id of the lesson about its failure, 0 if
    there is none. `state` says in what state it failed, such as the step before it.
    `at` is the time of its result in seconds since 1970, 0 if unknown. A failure cost
    so many `calls`: itself, and those until a like call passed. `replacement` is what
    then worked in its place, if anything like it did, and `contract` the name of the
    contract that it broke, if any. Of `unnamed` preconditions the words are not stored,
    since an untrusted text had them first.
    """

    preconditions: tuple[Precondition, ...]
    errors: tuple[str, ...] = ()
    _: KW_ONLY
    lesson: int = 0
    state: str = ""
    at: float = 0.0
    calls: int = 1
    replacement: Replacement | None = None
    contract: str = ""
    unnamed: frozenset[Precondition] = frozenset()

    @property
    def path(self) -> str:
        """The path that the call is about, "" if it has none."""
        for precondition in self.preconditions:
            if precondition.template == "path":
                return precondition.words[0]
        return ""

    @cached_property
    def blamed(self) -> Mapping[Precondition, str]:
        """The preconditions that the errors blame, each with the error."""
        return find_blamed(self.preconditions, self.errors)


def blamed_steps(steps: Sequence[Step]) -> dict[Precondition, list[Step]]:
    """Return the steps that failed because of each precondition that is blamed."""
    blamed = defaultdict(list)
    for step in steps:
        for precondition in step.blamed:
            blamed[precondition].append(step)
    return dict(blamed)


@dataclass(slots=True)
class Replay:
    """A finished session as a test of what was known before it, and what it adds.

    `tracks` are those of its preconditions before, and then after it. `tests` are those
    that it adds. Because of those in `again`, the session had failed before these
    steps.
    """

    tracks: dict[Precondition, Track]
    again: frozenset[Precondition] = frozenset()
    tests: dict[Form, FormTests] = field(default_factory=lambda: defaultdict(FormTests))

    def run(self, steps: Sequence[Step]) -> None:
        """Test the tracks by the steps of the session, then count the steps."""
        self._test(steps)
        self._count(steps)

    def _test(self, steps: Sequence[Step]) -> None:
        tested = set[Precondition]()
        for step in steps:
            for precondition in step.preconditions:
                is_state = precondition.template in STATE_TEMPLATES
                track = self.tracks.get(precondition, Track())
                is_known = is_state or (track.failed and precondition not in tested)
                if precondition in self.again:
                    continue  # the session itself would test what it has added
                is_blamed = precondition in step.blamed
                # A call that failed otherwise tests nothing.
                failed_otherwise = bool(step.errors) and not is_blamed
                if is_known and not failed_otherwise:
                    tested.add(precondition)
                    self._add_test(Form.of(precondition, track), fails=is_blamed)

    def _add_test(self, form: Form, *, fails: bool) -> None:
        for tested_form in (form, form.pooled):
            if tested_form is not None:
                self.tests[tested_form] += FormTests(float(fails), 1.0)

    def _count(self, steps: Sequence[Step]) -> None:
        again = set(self.again)
        for step in steps:
            for precondition in step.preconditions:
                track = self.tracks.get(precondition, Track())
                if precondition in step.blamed:
                    is_again = precondition in again
                    self.tracks[precondition] = track.after_failure(again=is_again)
                    again.add(precondition)
                elif not step.errors:
                    self.tracks[precondition] = track.after_pass()
