"""What costs sessions most, told at their start or in AGENTS.md: rules of people first.

A line of the brief is one failure that came back in several of the newest sessions:
first those with a fix, then what calls had in common that never worked. What waits in
quarantine is not told. Agents without hooks read the section of AGENTS.md.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import KW_ONLY, dataclass, replace
from math import inf

from heedful.lessons import render
from heedful.lessons.call_marks import Mark
from heedful.lessons.contracts import CONTRACTS_BY_NAME, broken_contract
from heedful.lessons.mistake import from_json
from heedful.lessons.scope import Scope, State, told_mark
from heedful.lessons.telling import LessonCandidate, Situation, TellingBudget, tell
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
# What has a fix comes first, however many calls anything else cost.
FIX_WORTH = 1_000_000.0
BRIEF_BUDGET = TellingBudget(
    lessons=MAX_SHOWN_ITEMS, unchecked=MAX_SHOWN_ITEMS, size=inf
)
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
    `failed`, in seconds since 1970. `lesson` is the id of its lesson, 0 without one, in
    this `state`; it `has_ended` if the call has worked since. It `is_of_tool` if the
    call was no command of a shell, but had arguments.
    """

    text: str
    _: KW_ONLY
    sessions: int
    of: int
    calls: int
    failed: float
    lesson: int = 0
    state: State = "unverified"
    has_ended: bool = False
    has_fix: bool = False
    is_of_tool: bool = False

    def __str__(self) -> str:
        return f"- {self.words}"

    @property
    def words(self) -> str:
        """What failed and what put it right, and how often and when it came."""
        often = f"{self.sessions} of {self.of} sessions, {self.calls} calls lost"
        return f"{self.text} ({often}, last {render.day_words(self.failed)})"


async def read_team_rules(memory: CallMemory) -> list[LessonCandidate]:
    """Return the rules of the team's file that the user accepted."""
    rules = await memory.store.read(memory.scope, team_rules, MAX_SHOWN_ITEMS)
    return [
        LessonCandidate(
            name=f"lesson/{id}",
            leg="cause",
            text=text,
            lesson=id,
            marks=frozenset([told_mark(id)]),
        )
        for id, text in rules.items()
    ]


async def read_failures(memory: CallMemory) -> Sequence[LessonCandidate]:
    """Return what cost earlier sessions most calls, as candidates with a BriefLine."""
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
    rules += [rule.text for rule in await read_team_rules(memory)]
    situation = Situation(moment="session start", budget=BRIEF_BUDGET)
    telling = tell(situation, await read_failures(memory))
    learnt = [str(candidate.record) for candidate in telling.told]
    # A comment of Markdown could end the section.
    text = brief_text(rules, learnt).replace("<!--", "").replace("-->", "")
    return f"{SECTION_HEADING}\n\n{SECTION_NOTE}\n\n{text or NOTHING_KNOWN}"


def read_brief(db: Db, scope: Scope) -> list[LessonCandidate]:
    """Return what failed in several of the newest sessions, a candidate a failure.

    A failure that costs few calls for the number of sessions helps nobody.
    """
    window = db.one("brief_since", scope, sessions=BRIEF_SESSIONS)
    if window is None or not window["sessions"]:
        return []

    # Read more rows than lines: several may give one line, and cheap ones are dropped.
    since = {"since": window["since"], "limit": 4 * MAX_SHOWN_ITEMS}
    failed_calls = db.all("brief_calls", scope, **since)
    errors = db.all("brief_errors", scope, sessions=MIN_LESSON_SESSIONS, **since)
    sessions = window["sessions"]
    # A contract is what tools demand, as "read first". Its line covers such errors.
    contracts = {row["name"] for row in failed_calls if row["kind"] == "contract"}
    errors = [row for row in errors if not _is_of_contract(row, contracts)]
    lines = [
        *_contract_lines(failed_calls, sessions),
        *_error_lines(db, scope, errors, sessions),
        *_call_lines(failed_calls, sessions),
    ]
    least_calls = MIN_SESSION_CALLS * sessions
    return [candidate_of(line, could_help=line.calls >= least_calls) for line in lines]


def candidate_of(line: BriefLine, could_help: bool = True) -> LessonCandidate:
    """Return a line of a brief as a candidate: with a fix first, then by its cost."""
    repeats = {line.text}
    if line.lesson:
        repeats.add(f"lesson {line.lesson}")
    # Several calls may fail as one lesson says: each has its line, unless the lesson
    # has one already, which also tells the fix.
    says = repeats if line.has_fix else {line.text}
    marks = [told_mark(line.lesson)] if line.has_fix and line.lesson else []
    return LessonCandidate(
        name=f"line/{line.text}",
        leg="brief",
        record=line,
        text=line.text,
        lesson=line.lesson,
        could_help=could_help,
        near=line.calls,
        worth=FIX_WORTH if line.has_fix else 1.0,
        repeats=frozenset(repeats),
        says=frozenset(says),
        state=line.state,
        has_ended=line.has_ended,
        marks=frozenset(marks),
    )


def tool_mistakes(db: Db, scope: Scope) -> list[LessonCandidate]:
    """Return what calls of an agent's own tools got wrong, and what put it right.

    An error of a single run is enough, because the next run has the same tools.
    Commands of a shell are left out: they fail for passing reasons.
    """
    # Without sessions, the one row has no time, and then no error is found.
    [window] = db.all("brief_since", scope, sessions=BRIEF_SESSIONS)
    rows = db.all(
        "brief_errors", scope, sessions=1, since=window["since"], limit=MAX_SHOWN_ITEMS
    )
    return [
        replace(candidate_of(line), text=line.words)
        for line in _error_lines(db, scope, rows, of=window["sessions"])
        if line.is_of_tool
    ]


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
    error = "" if mistake is None else mistake.error
    # Only these have a rule, and so a line.
    contract = broken_contract(error, "file", "absent")
    return contract is not None and contract.rule != "" and contract.name in names


def _error_lines(db: Db, scope: Scope, rows: list[Row], of: int) -> Iterator[BriefLine]:
    """Yield a line for each error whose lesson has a fix.

    `rows` count how often each error came back, with the lesson about it. `of` is the
    number of sessions that were looked at.
    """
    for row in rows:
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
                state=row["state"],
                has_ended=bool(row["has_ended"]),
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
