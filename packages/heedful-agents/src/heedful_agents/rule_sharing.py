"""A team's memory: rules of a memory for the file of a repository, and back.

`rules_to_share` returns what a person released or wrote, and what evidence verified,
without secrets, personal data and absolute paths. `follow_rules` stores the rules of a
file that a person accepted; none is trusted more than this person. Such a rule has the
source `shared:DIGEST TRUST`, so one that is gone from the file, or that the file trusts
less, is revoked alone.
"""

import asyncio
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from heedful.episodes.particulars import Particulars
from heedful.errors import InvalidInput
from heedful.lessons import render
from heedful.lessons.forgetting import Target
from heedful.lessons.lesson import Lesson
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.mistake import Mistake, from_json
from heedful.lessons.origin import standing_of
from heedful.lessons.quarantine import initial_state
from heedful.lessons.scope import Scope
from heedful.lessons.signature import signature
from heedful.lessons.user_rules import RULE_TYPE
from heedful.memory import hardening
from heedful.memory.files import file_digests
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.store import forgetting, lessons as lesson_store
from heedful.store.connection import Db, resumable, token
from heedful.validation import Fields, check_actor
from heedful_agents.team_rules import MAX_RULE_CHARS, SharedRule, rule_of

TEAM_SOURCE_PREFIX = "shared:"
# A reviewed rule is worth more than a failure that was seen once.
TEAM_RULE_IMPORTANCE = 0.8
# An absolute path: two parts or more below the root, a home folder, a drive, a share.
# The address of a page has "//" before its path; a device of the system is no place.
_MACHINE_PATH_PATTERN = re.compile(
    r"""(?:(?<![\w.~/)\]}*-])|(?<=\s-[A-Za-z]))
        /(?!dev/)[\w.@+-]+(?:/[\w.@+-]+)+/?
    |(?<![\w./])~[\w.-]*/[\w.@+/-]+
    |\bfile://\S+
    |(?<![\w/])/(?:root|home|Users)\b
    |\b[A-Za-z]:[\\/][^\s"'`|<>]*
    |(?<![\\\w])\\\\[\w.$-]+\\[^\s"'`|<>]*""",
    re.VERBOSE,
)
PATH_MARK = "<path>"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesToShare:
    """The rules of a memory that a file may have.

    `left_out` maps the ids of other reviewed lessons to the reason.
    """

    rules: tuple[SharedRule, ...]
    left_out: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRules:
    """What following a file changed: rules that are new, known, gone and that wait."""

    new: int
    known: int
    gone: int
    waiting: int


async def rules_to_share(memory: Memory, root: str = "") -> RulesToShare:
    """Return the reviewed rules of a memory, without those that came from the file of
    the repository, whose folder is `root`. Raises StoreError.
    """
    rows = await memory.store.read(memory.scope, reviewed_lessons)
    return await asyncio.to_thread(_rules_of, rows, root)


def _rules_of(rows: Iterable[Fields], root: str) -> RulesToShare:
    """Return the rules of lessons, and why others are left out."""
    rules: list[SharedRule] = []
    left_out: dict[int, str] = {}
    for row in rows:
        try:
            rule = _rule_of(row, root)
        except InvalidInput as error:
            left_out[row["id"]] = str(error)
            continue

        if len(rule.line) > MAX_RULE_CHARS:
            left_out[row["id"]] = f"it has more than {MAX_RULE_CHARS} characters"
        elif redact(rule.line) != rule.line:
            left_out[row["id"]] = "it has a secret"
        else:
            rules.append(rule)
    return RulesToShare(rules=tuple(rules), left_out=left_out)


def _rule_of(row: Fields, root: str) -> SharedRule:
    """Return the rule of a lesson. Raises InvalidInput."""
    particulars = Particulars(root)

    def leave_out(text: str) -> str:
        """Return a text without secrets, people and absolute paths."""
        return _MACHINE_PATH_PATTERN.sub(PATH_MARK, particulars.leave_out(text, 0))

    mistake = from_json(row["mistake"])
    reviewer = standing_of(row["trust"], row["released_by"])
    text = leave_out(render.account(mistake)) if mistake else leave_out(row["text"])
    if row["error_type"] == RULE_TYPE:
        return rule_of(text, trust=reviewer)

    pattern = leave_out(row["pattern"])
    # A rule that is found by its own words needs no pattern; that of a strategy names
    # a lesson of this memory.
    text_signature = signature(row["error_type"], rule_of(text).text)
    is_own = row["kind"] == "strategy" or text_signature.digest == row["signature"]
    error = "" if is_own else pattern
    fix = ""
    files: Iterable[str] = ()
    if mistake is not None:
        fix = leave_out("\n".join(render.fix_lines(mistake)))
        files = mistake.files
    return rule_of(
        text,
        fix=fix,
        scope=sorted(files),
        tool=leave_out(row["error_type"]),
        error=error,
        check=leave_out(str(row["rule"].get("words", ""))),
        trust=reviewer,
    )


async def follow_rules(
    memory: Memory,
    rules: Sequence[SharedRule],
    *,
    by: str,
    why: str,
    root: str = "",
) -> FollowedRules:
    """Follow the rules of a file in the place of those that it had before.

    `by` is the user, who reviewed them. A rule that only a tool or a stranger confirms
    waits in quarantine. `root` is the folder of the repository, whose files rules may
    be about. Raises InvalidInput, StoreError.
    """
    check_actor(by, why)
    lessons = await asyncio.to_thread(
        lambda: [_lesson_of(rule, root) for rule in rules]
    )
    checks = [rule.check for rule in rules]
    return await memory.store.write(
        memory.scope, follow, lessons, checks, by=by, why=why
    )


def _lesson_of(rule: SharedRule, root: str) -> Lesson:
    """Return the lesson of a rule, trusted as the file says."""
    files = file_digests(root, rule.scope) if root else {}
    # A file that is not here has no digest: the lesson rests until it is.
    digests = {path: files.get(path, "") for path in rule.scope}
    mistake = rule.mistake or (Mistake(words=rule.text) if digests else None)
    return Lesson(
        "reflection",
        rule.signature,
        error_type=rule.tool,
        text=rule.lesson_text,
        sighting=rule.text,
        state=initial_state(rule.trust),
        trust=rule.trust,
        importance=TEAM_RULE_IMPORTANCE,
        evidence="put right" if rule.fix else "once",
        # What is about no error is found by its own words.
        is_correction=not rule.error,
        mistake=mistake and replace(mistake, files=digests),
        source=f"{TEAM_SOURCE_PREFIX}{rule.digest} {rule.trust}",
    )


def reviewed_lessons(db: Db, scope: Scope) -> list[Fields]:
    """Return the lessons that may be shared, as data.

    A person wrote or released them, or evidence verified them. `rule` is that of their
    check of calls, {} without one.
    """
    return [
        {**row, "rule": json.loads(row["rule"] or "{}")}
        for row in db.all("reviewed_lessons", scope)
        if not row["source"].startswith(TEAM_SOURCE_PREFIX)
    ]


@resumable(result=FollowedRules)
def follow(
    db: Db,
    scope: Scope,
    rules: Sequence[Lesson],
    checks: Sequence[str],
    *,
    by: str,
    why: str,
) -> FollowedRules:
    """Store the rules of a file in the place of those that it had before.

    Each rule has a check: the words that it forbids in calls, or "". `by` approved the
    file. Raises InvalidInput.
    """
    followed = {
        row["source"] for row in db.run("shared_sources", {"scope": token(scope)})
    }
    sources = {rule.source for rule in rules}

    gone = sorted(followed - sources)
    for source in gone:
        forgetting.forget(db, scope, Target(source=source), by=by, why=why)

    new = 0
    waiting = 0
    for rule, words in zip(rules, checks, strict=True):
        if rule.source in followed:
            continue
        new += 1
        (answer,) = lesson_store.upsert(db, scope, [rule], time.time())
        if answer.entry:
            waiting += 1
        elif words and not hardening.read_checks(db, scope, limit=1, lesson=answer.id):
            check = LessonCheck(
                lesson=answer.id,
                kind="call",
                rule={"words": words},
                about=f"this call has {words!r}",
                state="accepted",
            )
            hardening.settle(db, scope, check, by=by, why=why)
    return FollowedRules(
        new=new, known=len(rules) - new, gone=len(gone), waiting=waiting
    )
