"""The page of two loops: how they ended, their attempts, answers and memory."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from operator import itemgetter

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_from
from heedful.loop.record import DOUBT_STATES, NO_USAGE, Usage
from heedful.pages.difference import Difference, Part, difference, marked
from heedful.pages.report import counted, text
from heedful.sanitize import clean
from heedful.service.review import may_review
from heedful.store import loops as loop_store
from heedful.store.connection import Db, bulk
from heedful.store.loop_names import find_loop
from heedful.store.offload import offload
from heedful.web import figures, matrix
from heedful.web.failure import count_broken, failed_checks, find_failure, is_tied
from heedful.web.instructions import name_choices
from heedful.web.site import READING, Document, SitePage, Visit
from heedful.web.told import list_outcomes

MAX_OTHERS = 5  # loops that a page offers to compare with
MAX_OTHER_TASK_CHARS = 400  # of the task of each of them
MAX_LESSON_CHARS = 80  # of a lesson that only one of two loops was shown
# Loops before and after one in the list, among which these are looked for. Their tasks
# are compared as a whole, and may be large.
MAX_NEAR_LOOPS = 50
UNRELATED = "Different tasks"  # that have nothing in common
# What is printed of both loops beside each other, in this order; what is the same in
# both is named once.
FIGURE_NAMES = (
    "state",
    "memory",
    "attempts",
    "calls",
    "tokens",
    "cost",
    "seconds",
    "model",
    "policy",
    "memory_key",
)


@dataclass(frozen=True, kw_only=True)
class ComparedLoop:
    """One of two loops: its facts as its page has them, and what it used.

    `usage` is None if the loop is too long to be read as a whole.
    """

    facts: Document
    best: int | None
    usage: Usage | None
    matrix: Document

    @property
    def id(self) -> str:
        """The id of the loop."""
        return str(self.facts["name"])

    @property
    def passed(self) -> bool:
        """Whether the loop passed."""
        return bool(self.facts["state"] == "passed")

    @property
    def attempt(self) -> Document | None:
        """The attempt whose answer is compared, None if there is none."""
        attempts = [
            attempt
            for attempt in self.facts["made"]
            if attempt["number"] == self.facts["first"]
        ]
        return attempts[0] if attempts else None

    @property
    def memory(self) -> str:
        """What memory did, such as "2 lessons shown, 1 lesson withheld at random"."""
        if self.facts["told"]:
            return list_outcomes(self.facts["told"])
        return "silent" if self.facts["silence"] else ""

    @property
    def outcomes(self) -> set[tuple[str, int]]:
        """The outcomes, such as "told", with the lessons that had them."""
        return {(choice["outcome"], choice["lesson"]) for choice in self.facts["told"]}

    def has_memory(self, outcome: str) -> bool:
        """Whether memory had a text with this outcome, such as "told", for the loop."""
        return any(outcome == name for name, _ in self.outcomes)

    @property
    def withheld(self) -> str:
        """That memory was withheld from the loop, in brackets; "" if it was not."""
        return " (withheld at random)" if self.has_memory("withheld") else ""

    def shown_without(self, other: ComparedLoop) -> list[Document]:
        """Return the choices of lessons that this loop was shown and the other not."""
        choices = dict[int, Document]()
        for choice in self.facts["told"]:
            outcome = ("told", choice["lesson"])
            if outcome in self.outcomes - other.outcomes:
                choices.setdefault(choice["lesson"], choice)
        return list(choices.values())

    def figures(self) -> Document:
        """Return the values of the rows of `FIGURE_NAMES`; None is not recorded."""
        usage = self.usage
        spent: Document = dict.fromkeys(("calls", "tokens", "cost", "seconds"))
        if usage is not None:
            # A usage that was not reported is stored as 0.
            spent = {name: getattr(usage, name) or None for name in spent}
        return {
            "state": self.facts["state"],
            "attempts": self.facts["attempts"],
            **spent,
            "model": self.facts["model"],
            "policy": policy_from(self.facts["policy"]).name or "its own",
            "memory_key": self.facts["memory_key"],
            "memory": self.memory,
        }

    def plain(self) -> Document:
        """Return what the page shows of this loop alone."""
        names = (
            "task",
            "left_out",
            "long",
            "state",
            "sentence",
            "failure",
            "tied",
            "told",
            "silence",
            "silent_because",
        )
        attempt = self.attempt
        return {
            "id": self.id,
            **{name: self.facts[name] for name in names},
            "best": self.best,
            "memory": self.memory,
            "matrix": self.matrix,
            "attempt": None if attempt is None else attempt["number"],
        }


@bulk
def others(db: Db, scope: Scope, id: str, key: str) -> list[Document]:
    """Return loops to compare one with, and why: those with the same task come first.

    Then come those whose tasks differ in numbers, those that failed the same check and
    ended otherwise, and those with the same memory `key`. They are looked for among
    `MAX_NEAR_LOOPS` before and after the loop.
    """
    (head,) = figures.rows(db, scope, "matrix_head", id=id)
    near_loops = figures.rows(
        db,
        scope,
        "others",
        id=id,
        n=head["n"],
        near=MAX_NEAR_LOOPS,
        chars=MAX_OTHER_TASK_CHARS,
    )
    readable = [
        row["n"] for row in near_loops if row["size"] <= figures.MAX_LIST_RECORD_CHARS
    ]
    checks = defaultdict[int, set[str]](set)
    for row in figures.rows(db, scope, "checks_of", numbers=json.dumps(readable)):
        checks[row["n"]].add(row["failed"])

    (this,) = (row for row in near_loops if row["id"] == id)
    words = _without_numbers(this["task"])
    offered = []
    for row in near_loops:
        failed = ", ".join(sorted(checks[this["n"]] & checks[row["n"]]))
        reasons = (
            ("the same task", row["same"]),
            (
                "the same task with other numbers",
                _without_numbers(row["task"]) == words,
            ),
            (f"{failed} failed there, too", failed and row["state"] != this["state"]),
            ("the same memory key", key and row["memory_key"] == key),
        )
        ranks = [rank for rank, (_, holds) in enumerate(reasons) if holds]
        if not ranks or row is this:
            continue
        task, left_out = figures.beginning(row["task"], row["task_chars"])
        other = {
            "id": row["id"],
            "state": row["state"],
            "attempts": row["attempts"],
            "task": task,
            "left_out": left_out,
            "why": reasons[ranks[0]][0],
        }
        offered.append((ranks[0], other))

    offered.sort(key=itemgetter(0))
    return [other for _, other in offered[:MAX_OTHERS]]


def _without_numbers(task: str) -> str:
    """Return the text of a task without its numbers."""
    return re.sub("[0-9]+", "", task)


async def pair(visit: Visit) -> Document:
    """Show two loops beside each other; with one of them, offer others."""
    names = [visit.query.get(side, "").strip() for side in ("a", "b")]
    loops = [
        await _read_loop(visit, name, f"{side}_attempt")
        for side, name in zip("ab", names, strict=True)
        if name
    ]

    offered: list[Document] = []
    if len(loops) == 1:
        (only,) = loops
        offered = await visit.caller.read(others, only.id, only.facts["memory_key"])
    if len(loops) < 2:
        return {
            "names": names,
            "sentence": "",
            "related": False,
            "loops": [loop.plain() for loop in loops],
            "others": offered,
            "rows": [],
            "only_shown": [],
            "change": None,
            "tasks": [],
        }

    first, second = loops
    if first.id == second.id:
        visit.following = _address_of_attempts(visit, first, second)
    is_related = _compare_tasks(first.facts, second.facts) != UNRELATED
    if is_related:
        matrix.align_checks(first.matrix, second.matrix)
    columns = [loop.figures() for loop in loops]
    rows = []
    for name in FIGURE_NAMES:
        values = [column[name] for column in columns]
        if any(values):
            is_same = values[0] == values[1]
            rows.append({"name": name, "values": values, "same": is_same})
    return {
        "names": names,
        "sentence": describe_pair(first, second),
        "related": is_related,
        "loops": [first.plain(), second.plain()],
        "others": [],
        "rows": rows,
        "only_shown": [first.shown_without(second), second.shown_without(first)],
        "change": await offload(_difference, first.attempt, second.attempt, is_related),
        "tasks": await offload(_mark_tasks, first.facts, second.facts),
    }


def _address_of_attempts(
    visit: Visit, first: ComparedLoop, second: ComparedLoop
) -> str:
    """Return the address of two attempts of one loop, or of the loop if it is one."""
    numbers = {}
    if first.attempt and second.attempt:
        numbers["against"] = first.attempt["number"]
        numbers["attempt"] = second.attempt["number"]
    if len(set(numbers.values())) < 2:
        return visit.link(f"/loops/{first.id}")
    return visit.link(f"/loops/{first.id}", **numbers)


async def _read_loop(visit: Visit, name: str, field: str) -> ComparedLoop:
    """Return the loop called `name`, with the attempt whose number is in a `field`.

    Without a number it is the best attempt, or else the last. Raises InvalidInput,
    NotFound, UsageError.
    """
    read = visit.caller.read
    id = await read(find_loop, name)
    number = visit.number(field)
    facts = await read(figures.window, id, number, 1, reviews=may_review(visit.caller))
    if number > facts["attempts"]:
        allowed = f"the number of an attempt, at most {facts['attempts']}"
        raise InvalidInput(field, number, allowed)

    best = facts["latest"].get("best")
    facts |= {"failure": None, "tied": False, "broken": {}, "failed": []}
    facts["told"] = await name_choices(visit, facts["told"], facts["created"])
    usage = None
    if not facts["long"]:
        decided_loop = await read(loop_store.read_decisions, id)
        loop = replace(
            decided_loop.loop, improves=policy_from(facts["policy"]).improvement
        )
        best = loop.best
        usage = loop.usage
        explanation = await offload(decided_loop.explain)
        facts["sentence"] = explanation.sentence
        facts["failure"] = find_failure(decided_loop)
        facts["tied"] = is_tied(loop)
        facts["broken"] = count_broken(loop)
        facts["failed"] = failed_checks(loop)

    # Of attempts that are alike, it is the one that is kept, as on a loop's page.
    if best and not number:
        of_best = await read(figures.window, id, best, 1)
        facts |= {name: of_best[name] for name in ("first", "last", "made")}
    marked = None if facts["tied"] else best
    columns = await read(matrix.read_matrix, id, marked)
    return ComparedLoop(facts=facts, best=best, usage=usage, matrix=columns.plain)


def describe_pair(first: ComparedLoop, second: ComparedLoop) -> str:
    """Return in one sentence which of two loops passed, and what it took."""
    task = _compare_tasks(first.facts, second.facts)
    silent = [loop.facts["state"] in DOUBT_STATES for loop in (first, second)]
    if all(silent):
        end = "nothing judged either"
    elif first.passed and second.passed:
        end = "both passed"
    elif first.passed:
        end = "only A passed"
    elif second.passed:
        end = "only B passed"
    else:
        end = "neither passed"

    if task == UNRELATED:  # what each took says nothing of the other
        return f"{task}: {end}.{_compare_memory(first, second)}"

    differences = _spending(
        first.facts["attempts"], second.facts["attempts"], "attempt"
    )
    old = first.usage or NO_USAGE
    new = second.usage or NO_USAGE
    spent = "as many attempts"
    if old.tokens and new.tokens:
        differences += _spending(old.tokens, new.tokens, "token")
        spent = "as many attempts and tokens"
    if differences:
        spent = " and ".join(differences)
    cause = _compare_memory(first, second) or _name_failed_checks(first, second)
    return f"{task}: {end}.{cause} B took {spent}."


def _name_failed_checks(first: ComparedLoop, second: ComparedLoop) -> str:
    """Return which checks failed in attempts of only one of two loops; "" if none."""
    for name, loop, other in (("A", first, second), ("B", second, first)):
        failed = [
            check
            for check in loop.facts["failed"]
            if check not in other.facts["failed"]
        ]
        if failed:
            return f" Only {name} failed {clean(', '.join(failed), MAX_LESSON_CHARS)}."
    return ""


def _compare_memory(first: ComparedLoop, second: ComparedLoop) -> str:
    """Return which lesson only one of two loops was shown, and the other alone broke.

    Without one it is that only one of them was shown memory, or "".
    """
    sentence = _name_cause("B", second, "A", first) or _name_cause(
        "A", first, "B", second
    )
    if sentence or first.has_memory("told") == second.has_memory("told"):
        return sentence

    if first.has_memory("told"):
        return f" A was shown memory, B was not{second.withheld}."
    return f" B was shown memory, A was not{first.withheld}."


def _name_cause(
    name: str, loop: ComparedLoop, other_name: str, other: ComparedLoop
) -> str:
    """Return the first lesson that only `loop` was shown, and only `other` broke."""
    for choice in loop.shown_without(other):
        lesson = choice["name"]
        if lesson not in other.facts["broken"] or lesson in loop.facts["broken"]:
            continue
        words = clean(choice["words"], MAX_LESSON_CHARS)
        in_brackets = f" ({words})" if words else ""
        return (
            f" Only {name} was shown lesson {choice['lesson']}{in_brackets}; "
            f"{other_name} broke it."
        )
    return ""


def _compare_tasks(first: Document, second: Document) -> str:
    """Return what the tasks of two loops have in common, from the facts of each."""
    if first["task"] == second["task"]:
        is_cut = first["left_out"]["task"]
        return "Tasks that begin alike" if is_cut else "The same task"

    if _without_numbers(text(first["task"])) == _without_numbers(text(second["task"])):
        return "The same task with other numbers"
    if first["memory_key"] and first["memory_key"] == second["memory_key"]:
        return "The same memory key, another task"
    return UNRELATED


def _spending(first: int, second: int, unit: str) -> list[str]:
    """Return how many more or fewer of a unit the second loop took, if they differ."""
    if first == second:
        return []
    direction = "more" if second > first else "fewer"
    return [f"{counted(abs(second - first), unit)} {direction}"]


def _mark_tasks(first: Document, second: Document) -> list[Part]:
    """Return the parts of two tasks that differ little; [] if they are two tasks."""
    is_same = first["task"] == second["task"]
    if is_same or _compare_tasks(first, second) == UNRELATED:
        return []
    return marked(text(first["task"]), text(second["task"]))


def _difference(
    first: Document | None, second: Document | None, is_related: bool
) -> Document | None:
    """Return the answers of two attempts, what differs marked on both `sides`.

    Those of tasks that are not related are not compared.
    """
    if first is None or second is None:
        return None
    if first["output"] is None or second["output"] is None:
        return None

    old = text(first["output"])
    new = text(second["output"])
    change = difference(old, new)
    old_side = [part for part in change.parts if part[0] != "new"]
    new_side = [part for part in change.parts if part[0] != "gone"]
    sides = [old_side, new_side]
    if not is_related:
        changes = [difference(None, answer) for answer in (old, new)]
        sides = [list(change.parts) for change in changes]
        change = Difference([], unshown=sum(change.unshown for change in changes))
    unread = first["left_out"]["output"] + second["left_out"]["output"]
    return {
        "same": old == new and not unread,
        "parts": [list(part) for part in change.parts],
        "sides": sides,
        "unshown": change.unshown,
        "unshown_changes": change.unshown_changes,
        "unaligned": change.unaligned,
        "unread": unread,
    }


PAGES = (
    SitePage(
        address="/loops/compare",
        template="pair",
        title="Two loops",
        make=pair,
        may=READING,
    ),
)
