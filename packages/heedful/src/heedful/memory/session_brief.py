"""What costs sessions most, told at their start or in AGENTS.md: rules of people first.

A line of the brief is one failure that came back in several of the newest sessions:
first those with a fix, then what calls had in common that never worked. What waits in
quarantine is not told. Agents without hooks read the section of AGENTS.md.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime

from heedful.lessons import render
from heedful.lessons.call_marks import Mark
from heedful.lessons.contracts import CONTRACTS_BY_NAME
from heedful.lessons.mistake import from_json
from heedful.lessons.scope import Scope
from heedful.lessons.user_rules import StatedRule
from heedful.memory.call_memory import CallMemory
from heedful.sanitize import clean, sanitize
from heedful.store import user_rules
from heedful.store.calls import has_failed_fix
from heedful.store.connection import Db, Row
from heedful.validation import MAX_SHOWN_ITEMS

# A brief looks at so many of the newest sessions.
BRIEF_SESSIONS = 40
# A line that cost a session less was needed in one of sixty recorded sessions.
MIN_SESSION_CALLS = 1 / 8
# What two sessions have in common was read as a particular of theirs.
MIN_LESSON_SESSIONS = 3
# However many rules there are, so many lines tell what cost earlier sessions calls.
MIN_LEARNT_LINES = 3
SECTION_HEADING = "## What earlier sessions taught"
SECTION_NOTE = (
    "`heedful hook install agents-md` keeps this section up to date. These are facts "
    "to weigh, and rules of the user."
)
NOTHING_KNOWN = "Nothing is known yet."
EMPTY_SECTION = f"{SECTION_HEADING}\n\n{SECTION_NOTE}\n\n{NOTHING_KNOWN}"


@dataclass(frozen=True, slots=True)
class BriefLine:
    """A line of a brief: what failed, and what put it right if it `has_fix`.

    `calls` were lost in `sessions` of the newest `of` sessions, last at the time
    `failed`, in seconds since 1970. `lesson` is the id of its lesson, 0 without one.
    It `is_of_tool` if the call was no command of a shell, but had arguments.
    """

    text: str
    _: KW_ONLY
    sessions: int
    of: int
    calls: int
    failed: float
    lesson: int = 0
    has_fix: bool = False
    is_of_tool: bool = False

    def __str__(self) -> str:
        day = datetime.fromtimestamp(self.failed, UTC).strftime("%d %b %Y")
        often = f"{self.sessions} of {self.of} sessions, {self.calls} calls lost"
        return f"- {self.text} ({often}, last {day})"


async def read_team_rules(memory: CallMemory) -> Mapping[int, str]:
    """Return the rules of the team's file that the user accepted, by lesson."""
    return await memory.store.read(memory.scope, team_rules, MAX_SHOWN_ITEMS)


async def read_failures(memory: CallMemory) -> Sequence[BriefLine]:
    """Return what cost earlier sessions most calls."""
    return await memory.store.read(memory.scope, read_brief)


def brief_text(rules: Sequence[str], learnt: Sequence[str]) -> str:
    """Return a brief for an agent, at most ten lines; "" if there is nothing to tell.

    `rules` are texts that people wrote or reviewed; they come first. `learnt` are
    finished lines about what failed in earlier sessions; some always have room.
    """
    rules = list(dict.fromkeys(rules))
    max_rules = MAX_SHOWN_ITEMS - min(len(learnt), MIN_LEARNT_LINES)
    lines = [f"- Rule: {clean(sanitize(rule), most=300)}" for rule in rules[:max_rules]]
    lines += [sanitize(line) for line in learnt[: MAX_SHOWN_ITEMS - len(lines)]]
    return "\n".join(lines)


async def section_text(
    memory: CallMemory, everywhere: Sequence[StatedRule] = ()
) -> str:
    """Return the section of AGENTS.md: rules of people, and what failed in sessions.

    `everywhere` are the rules of the user for all projects. The section has only what
    is trusted, and at most ten lines, because an agent reads them in each session.
    """
    stated = [*await memory.store.read(memory.scope, user_rules.in_force), *everywhere]
    rules = [rule.text for rule in stated]
    rules += (await read_team_rules(memory)).values()
    learnt = list(map(str, await read_failures(memory)))
    # A comment of Markdown could end the section.
    text = brief_text(rules, learnt).replace("<!--", "").replace("-->", "")
    return f"{SECTION_HEADING}\n\n{SECTION_NOTE}\n\n{text or NOTHING_KNOWN}"


def read_brief(db: Db, scope: Scope) -> tuple[BriefLine, ...]:
    """Return what failed in several of the newest sessions, a line for each failure.

    Lines with a fix come first, then those that cost most calls; at most ten. Failures
    that cost few calls for the number of sessions are left out.
    """
    window = db.one("brief_since", scope, sessions=BRIEF_SESSIONS)
    if window is None or not window["sessions"]:
        return ()

    # Read more rows than lines: several may give one line, and cheap ones are dropped.
    since = {"since": window["since"], "limit": 4 * MAX_SHOWN_ITEMS}
    failed_calls = db.all("brief_calls", scope, **since)
    errors = db.all("brief_errors", scope, sessions=MIN_LESSON_SESSIONS, **since)
    sessions = window["sessions"]
    lines: dict[str, BriefLine] = {}
    told_ids = set[int]()
    # A contract is what tools demand, as "read first". Its line covers such errors.
    contracts = {row["name"] for row in failed_calls if row["kind"] == "contract"}
    errors = [row for row in errors if not _is_of_contract(row, contracts)]
    for line in (
        *_contract_lines(failed_calls, sessions),
        *_error_lines(db, scope, errors, sessions),
    ):
        # The id 0 stands for no lesson, so several lines may have it.
        if line.text not in lines and line.lesson not in told_ids - {0}:
            lines[line.text] = line
            told_ids.add(line.lesson)
    # Several calls may fail as one lesson says: each has its line, unless the lesson
    # has one already, which also tells the fix.
    for line in _call_lines(failed_calls, sessions):
        if not line.lesson or line.lesson not in told_ids:
            lines.setdefault(line.text, line)
    least_calls = MIN_SESSION_CALLS * sessions
    costly_lines = [line for line in lines.values() if line.calls >= least_calls]
    costly_lines.sort(key=lambda line: (line.has_fix, line.calls), reverse=True)
    return tuple(costly_lines[:MAX_SHOWN_ITEMS])


def tool_mistakes(db: Db, scope: Scope) -> dict[int, str]:
    """Return what calls of an agent's own tools got wrong, and what put it right.

    The result has a text for each lesson, by its id. An error of a single run is
    enough, because the next run has the same tools. Commands of a shell are left out:
    they fail for passing reasons.
    """
    # Without sessions, the one row has no time, and then no error is found.
    [window] = db.all("brief_since", scope, sessions=BRIEF_SESSIONS)
    rows = db.all(
        "brief_errors", scope, sessions=1, since=window["since"], limit=MAX_SHOWN_ITEMS
    )
    lines = _error_lines(db, scope, rows, of=1)
    return {line.lesson: line.text for line in lines if line.is_of_tool}


def _contract_lines(rows: list[Row], of: int) -> Iterator[BriefLine]:
    """Yield a line for each contract that calls broke, and that has a rule to tell.

    A contract is what tools demand of a call, such as to read a file before an edit.
    `rows` count the failures, and `of` is the number of sessions that were looked at.
    """
    rows_by_contract: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "contract":
            rows_by_contract.setdefault(row["name"], []).append(row)
    for name, failures in rows_by_contract.items():
        contract = CONTRACTS_BY_NAME.get(name)
        if contract is None or not contract.rule:
            continue
        tools = ", ".join(sorted({row["tool"] for row in failures}))
        yield BriefLine(
            render.contract_line(contract.rule, tools, failures[0]["error"]),
            # The tools may have failed in the same sessions, so there is no sum.
            sessions=max(row["sessions"] for row in failures),
            of=of,
            calls=sum(row["calls"] for row in failures),
            failed=max(row["failed"] for row in failures),
            has_fix=True,
        )


def _is_of_contract(row: Row, names: Set[str]) -> bool:
    """Return True if the error of a lesson says that one of some contracts was broken.

    `row` is the lesson; `names` are the contracts, demands of tools such as "read
    first". Each has a line of its own, which says the same as the lesson would.
    """
    mistake = from_json(row["mistake"])
    return mistake is not None and any(
        contract.rule and contract.is_broken(mistake.error)
        for name, contract in CONTRACTS_BY_NAME.items()
        if name in names
    )


def _error_lines(db: Db, scope: Scope, rows: list[Row], of: int) -> Iterator[BriefLine]:
    """Yield a line for each error whose lesson may be told and has a fix.

    `rows` count how often each error came back, with the lesson about it. `of` is the
    number of sessions that were looked at.
    """
    for row in rows:
        # The others wait for a person, were retired, or were replaced.
        if row["state"] not in ("unverified", "verified"):
            continue
        mistake = from_json(row["mistake"])
        if mistake is None or has_failed_fix(db, scope, mistake):
            continue
        text = render.brief_line(mistake)
        if text:
            yield BriefLine(
                text,
                sessions=row["sessions"],
                of=of,
                calls=row["calls"],
                failed=row["failed"],
                lesson=row["id"],
                has_fix=True,
                is_of_tool=bool(mistake.action and mistake.action.arguments),
            )


def _call_lines(rows: list[Row], of: int) -> Iterator[BriefLine]:
    """Yield a line for each path, name or whole call with which calls kept failing.

    `rows` count the failures, and `of` is the number of sessions that were looked at. A
    call is left out if a path or name in it failed with the same error, for that has a
    line. Commands have none, since one that fails may be the work itself.
    """
    parts_of_calls = [row for row in rows if row["kind"] in ("path", "name")]
    whole_calls = [row for row in rows if row["kind"] == "call"]
    for row in (*parts_of_calls, *whole_calls):
        mark = Mark(row["kind"], row["name"], row["tool"])
        if mark.kind == "call" and any(
            part["error"] == row["error"] and part["name"] in mark.name.casefold()
            for part in parts_of_calls
        ):
            continue
        # Words from outside the program may be an attack, so they are not quoted.
        error = row["error"] if row["origin"] != "outside" else ""
        yield BriefLine(
            render.mark_line(mark, error),
            sessions=row["sessions"],
            of=of,
            calls=row["calls"],
            failed=row["failed"],
            lesson=row["lesson_id"] or 0,
        )


def team_rules(db: Db, scope: Scope, limit: int) -> dict[int, str]:
    """Return the followed rules that are about no error: their texts by id."""
    return {
        row["id"]: row["text"] for row in db.all("opening_rules", scope, limit=limit)
    }
