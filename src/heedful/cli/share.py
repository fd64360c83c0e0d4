"""`heedful share`: a team's memory in a file of the repository.

`share` writes reviewed rules beside those that the file has. `describe` and `follow`
are for `heedful hook approve`: they show what changed since a person approved the file,
and let hooks follow it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import Annotated

from typer import Option, confirm

from heedful.cli.output import answer, counted, say
from heedful.cli.resources import ask
from heedful.errors import LineError, UsageError
from heedful.integrations.file_changes import (
    FileChange,
    apply_all,
    check_within,
    read_text,
)
from heedful.integrations.hook import IS_CHANGED, NOT_APPROVED, Ignored
from heedful.integrations.rules import (
    RULES_PART,
    approved_content,
    find_rules,
    record_approval,
)
from heedful.lessons.shared import (
    ATTRIBUTES_FILE,
    ATTRIBUTES_LINE,
    SHARED_FILE,
    SharedRule,
    read_rules,
    write_rules,
)
from heedful.memory.shared import follow_rules, rules_to_share
from heedful.sanitize import visible
from heedful.store.ownership import approvals
from heedful.store.shared import FollowedRules
from heedful.store.workspace import Repository, find_repository

UNREADABLE_RULES = "hooks cannot follow it; correct it, or remove it"


def share(
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only show what would be written.")
    ] = False,
) -> int:
    """Write what a person reviewed into .heedful/rules.md, for the team.

    Reviewed is what somebody wrote or released, and what evidence verified; nothing
    that waits. The rules that the file has stay. Secrets, personal data and absolute
    paths are left out. Without --db, the rules are those of the memory that hooks
    follow. Others follow the file after heedful hook approve.
    """
    repository = find_repository(Path.cwd())
    if repository is None:
        raise UsageError(
            f"{Path.cwd()} is in no git repository; run this in the one that gets "
            f"{SHARED_FILE}"
        )

    top = repository.top
    path = top / SHARED_FILE
    check_within(path, top)
    before = read_text(path)
    in_file = read_rules((before or "").encode(), SHARED_FILE)
    # What came with the clone does not say which memory is the user's.
    reviewed = ask(lambda memory: rules_to_share(memory, str(top)), approved_only=True)

    digests_in_file = {rule.digest for rule in in_file}
    new_rules = [rule for rule in reviewed.rules if rule.digest not in digests_in_file]
    text = before or ""
    if new_rules:
        text = write_rules([*in_file, *new_rules])
        # The others must be able to read it.
        read_rules(text.encode(), SHARED_FILE)
    if new_rules and not dry_run:
        _write(repository, before, text)

    lines = [f"+ {_shown(rule)}" for rule in new_rules]
    for id, reason in reviewed.left_out.items():
        lines.append(f"left out: lesson {id}: {reason}")
    return answer(
        {
            "file": SHARED_FILE,
            "rules": len(digests_in_file) + len(new_rules),
            "new": [asdict(rule) for rule in new_rules],
            "left_out": reviewed.left_out,
            "dry_run": dry_run,
        },
        lines,
        _summary(len(new_rules), len(digests_in_file), dry_run),
    )


def _summary(new: int, old: int, dry_run: bool) -> str:
    """Return the last line of `heedful share`."""
    if not new:
        return f"nothing new to share; {SHARED_FILE} has {counted(old, 'rule')}"
    verb = "would get" if dry_run else "has"
    total = f"{SHARED_FILE} {verb} {counted(new + old, 'rule')}, {new} new"
    if dry_run:
        return total
    return f"{total}; read them, then: git add {Path(SHARED_FILE).parent}"


def _write(repository: Repository, before: str | None, text: str) -> None:
    """Write the file, and how git merges it. Raises UsageError.

    What one has approved stays so: the new rules are one's own.
    """
    top = repository.top
    attributes = top / ATTRIBUTES_FILE
    check_within(attributes, top)
    stated = read_text(attributes)
    wanted = stated or ""
    if ATTRIBUTES_LINE not in wanted:
        wanted += ATTRIBUTES_LINE

    file = find_rules(top)
    name = _name_of(top / SHARED_FILE)
    approved_digest = approvals()["files"].get(name)
    digest = hashlib.sha256((before or "").encode()).hexdigest()
    apply_all(
        [
            FileChange(top / SHARED_FILE, before, text),
            FileChange(attributes, stated, wanted),
        ]
    )
    is_followed = file is not None and file.path == top / SHARED_FILE
    if is_followed and (before is None or approved_digest == digest):
        record_approval(name, text.encode())


def _name_of(path: Path) -> str:
    """Return the name by which an approval of the file is recorded."""
    return Ignored(path=str(path), reason="", part=RULES_PART).name


def describe(item: Ignored) -> list[str]:
    """Return the rules that are new in a file, and those that are gone, as lines.

    Without an approval all are new. A file that cannot be read has its problem.
    """
    approved_digest = approvals()["files"].get(item.name, "")
    before = _lines_of(approved_content(approved_digest), item.path)
    try:
        rules = read_rules(item.values["content"], item.path)
    except LineError as error:
        return [visible(str(error))]

    lines = [_shown(rule) for rule in rules]
    changes = [f"- {line}" for line in before if line not in lines]
    changes += [f"+ {line}" for line in lines if line not in before]
    return changes or ["the rules are the same"]


def _lines_of(content: bytes, path: str) -> list[str]:
    """Return the rules of a file that was approved as lines; [] if it is damaged."""
    with suppress(LineError):
        return [_shown(rule) for rule in read_rules(content, path)]
    return []


def _shown(rule: SharedRule) -> str:
    """Return a rule as a person must see it: whole, with nothing hidden."""
    return visible(rule.line.removeprefix("- "))


def follow(item: Ignored) -> bool:
    """Ask whether hooks may follow the rules of a file; return True if they do."""
    rules: Sequence[SharedRule] | None = None
    if item.reason in (NOT_APPROVED, IS_CHANGED):
        with suppress(LineError):
            rules = read_rules(item.values["content"], item.path)
    if rules is None:
        say(f"  {UNREADABLE_RULES}")
        return False

    question = "May hooks tell these rules to your agents? You answer for them."
    if not confirm(question, default=False, err=True):
        return False

    followed = _store_rules(rules, Path(item.path).parent.parent)
    record_approval(item.name, item.values["content"])
    new = counted(followed.new, "new rule")
    say(f"  {new}, {followed.known} known, {followed.gone} gone")
    return True


def restore(folder: Path) -> list[str]:
    """Store the rules that the user approved, if the memory has lost them.

    Returns how many, as a line, or [].
    """
    file = find_rules(folder)
    if file is None or file.is_empty or file.problem:
        return []
    if approvals()["files"].get(_name_of(file.path)) != file.digest:
        return []

    followed = _store_rules(read_rules(file.content, SHARED_FILE), file.root)
    if not followed.new:
        return []
    return [f"stored from {SHARED_FILE}, as approved: {counted(followed.new, 'rule')}"]


def _store_rules(rules: Sequence[SharedRule], root: Path) -> FollowedRules:
    """Store rules that the user approved in the memory that hooks follow."""
    return ask(
        lambda memory: follow_rules(
            memory,
            rules,
            by=getuser(),
            why=f"approved {SHARED_FILE}",
            root=str(root),
        ),
        new=True,
        approved_only=True,
    )
