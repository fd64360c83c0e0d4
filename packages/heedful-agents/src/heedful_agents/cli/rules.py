"""`heedful rules`: the rules that a user gave agents, for one project or for all.

Hooks and `heedful learn-sessions` find them in what the user says. Those for all
projects are in the user's own memory. `heedful rules share` writes reviewed ones into a
file for the team; `accept` shows what changed in it, and lets hooks follow it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from getpass import getuser
from pathlib import Path
from typing import Annotated, TypeVar

from typer import Argument, Context, Option, Typer

from heedful.cli.app import group_with_default
from heedful.cli.databases import db_exists
from heedful.cli.printing import (
    agrees,
    answer,
    columns,
    command_line,
    emit,
    following,
    say,
    when,
)
from heedful.cli.resources import ask, ask_own, has_own_memory
from heedful.cli.settings import (
    By,
    Why,
    is_stated,
    number_argument,
    settings,
    settings_of_hooks,
    where,
)
from heedful.display import counted
from heedful.errors import LineError, NotFound, UsageError
from heedful.lessons.rule_ledger import DenialTrial
from heedful.lessons.rule_reading import when_told
from heedful.lessons.user_rules import RuleCall, StatedRule
from heedful.memory.memory import Memory
from heedful.memory.user_rules import check_trial
from heedful.sanitize import clean, visible
from heedful.store.projects import (
    Repository,
    find_project,
    find_repository,
    project_top,
    write_private,
)
from heedful.validation import MAX_SHOWN_TEXT_CHARS
from heedful_agents.accepted_rules import ACCEPT_COMMAND, accepted_content, find_rules
from heedful_agents.file_changes import (
    FileChange,
    apply_all,
    check_within,
    read_text,
)
from heedful_agents.rule_sharing import follow_rules, rules_to_share
from heedful_agents.team_rules import (
    ATTRIBUTES_FILE,
    ATTRIBUTES_LINE,
    SHARED_FILE,
    SharedRule,
    read_rules,
    write_rules,
)

rules: Typer = group_with_default()


@rules.command()
def share(
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only show what would be written.")
    ] = False,
) -> int:
    """Write reviewed rules into .heedful/rules.md, for the team.

    Reviewed rules are those that a person wrote or released, and those that evidence
    verified. The rules in the file stay. Secrets, personal data and absolute paths are
    left out. Without --db, the rules are those of the memory that hooks follow. Your
    team follows the file after heedful rules accept.
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
    old_text = read_text(path)
    old_rules = read_rules((old_text or "").encode(), SHARED_FILE)
    # What came with the clone does not say which memory is the user's.
    reviewed = ask(
        lambda memory: rules_to_share(memory, str(top)),
        settings_of_hooks(),
    )

    old_digests = {rule.digest for rule in old_rules}
    new_rules = [rule for rule in reviewed.rules if rule.digest not in old_digests]
    if new_rules:
        new_text = write_rules([*old_rules, *new_rules])
        # The others must be able to read it.
        read_rules(new_text.encode(), SHARED_FILE)
        if not dry_run:
            _write_shared(repository, old_text, new_text)

    lines = [f"+ {_visible_line(rule)}" for rule in new_rules]
    for id, reason in reviewed.left_out.items():
        lines.append(f"left out: lesson {id}: {reason}")
    return answer(
        {
            "file": SHARED_FILE,
            "rules": len(old_digests) + len(new_rules),
            "new": [asdict(rule) for rule in new_rules],
            "left_out": reviewed.left_out,
            "dry_run": dry_run,
        },
        lines,
        _summary(len(new_rules), len(old_digests), dry_run),
    )


def _summary(new: int, old: int, dry_run: bool) -> str:
    """Return the last line of `heedful rules share`."""
    if not new:
        return f"nothing new to share; {SHARED_FILE} has {counted(old, 'rule')}"
    verb = "would get" if dry_run else "has"
    total = f"{SHARED_FILE} {verb} {counted(new + old, 'rule')}, {new} new"
    if dry_run:
        return total
    return f"{total}; read them, then: git add {Path(SHARED_FILE).parent}"


def _write_shared(repository: Repository, old_text: str | None, new_text: str) -> None:
    """Write the file of the team's rules, and how git merges it. Raises UsageError.

    If the user had accepted the old text, he accepts the new one: the new rules are his
    own.
    """
    top = repository.top
    attributes_path = top / ATTRIBUTES_FILE
    check_within(attributes_path, top)
    old_attributes = read_text(attributes_path)
    attributes = old_attributes or ""
    if ATTRIBUTES_LINE not in attributes:
        attributes += ATTRIBUTES_LINE

    apply_all(
        [
            FileChange(top / SHARED_FILE, old_text, new_text),
            FileChange(attributes_path, old_attributes, attributes),
        ]
    )
    project = find_project(top)
    is_followed = top == repository.root
    if is_followed and accepted_content(project) == (old_text or "").encode():
        write_private(project.accepted_rules, new_text.encode())


@rules.command()
def accept(
    yes: Annotated[bool, Option("--yes", help="Accept without a question.")] = False,
) -> int:
    """Show what changed in the team's .heedful/rules.md, and follow it from now on.

    Hooks tell the rules of the version that you accepted. You answer for them.
    """
    file = find_rules(Path.cwd())
    if file is None:
        raise UsageError(f"{Path.cwd()} is in no git repository; run this in one")
    if file.problem:
        raise UsageError(f"{file.path} is not followed: {file.problem}")

    project = find_project(Path.cwd())
    rules = read_rules(file.content, str(file.path))
    changes = _changes(rules, accepted_content(project))
    say("\n".join(changes or ["the rules are those that you accepted"]))
    if changes and not yes:
        question = "May hooks tell these rules to your agents? You answer for them."
        if not agrees(question):
            raise UsageError(f"nothing was accepted; {ACCEPT_COMMAND} --yes accepts it")

    followed = ask(
        lambda memory: follow_rules(
            memory,
            rules,
            by=getuser(),
            why=f"accepted {SHARED_FILE}",
            root=str(file.root),
        ),
        settings_of_hooks(),
        new=True,
    )
    write_private(project.accepted_rules, file.content)
    counts = f"{counted(followed.new, 'new rule')}, {followed.known} known"
    return answer({"changes": changes}, f"{counts}, {followed.gone} gone")


def _changes(rules: Sequence[SharedRule], accepted: bytes) -> list[str]:
    """Return the rules that are new, and those that are gone, as lines."""
    old_lines: list[str] = []
    with suppress(LineError):
        old_lines += [_visible_line(r) for r in read_rules(accepted, SHARED_FILE)]
    new_lines = [_visible_line(rule) for rule in rules]
    gone = [f"- {line}" for line in old_lines if line not in new_lines]
    added = [f"+ {line}" for line in new_lines if line not in old_lines]
    return gone + added


def _visible_line(rule: SharedRule) -> str:
    """Return a rule as a person must see it: whole, with nothing hidden."""
    return visible(rule.line.removeprefix("- "))


T = TypeVar("T")
RuleId = Annotated[int, number_argument(help="The id.")]
Everywhere = Annotated[
    bool, Option("--everywhere", help="The rule is for all your projects.")
]


def _words_of(stated: StatedRule) -> str:
    """Return what a table says of a rule: its text, or how to release it."""
    if stated.entry:
        return f"(waits in quarantine: {stated.release})"
    return clean(stated.text, MAX_SHOWN_TEXT_CHARS)


def _state_of(stated: StatedRule) -> str:
    """Return in one word whether agents are told a rule, or denied calls."""
    if not stated.in_force:
        return stated.state
    state = "denied" if stated.denied else "in force"
    return f"{state} everywhere" if stated.everywhere else state


RULE_COLUMNS = columns(
    "rule state last_said id starts told kept broken",
    rule=_words_of,
    state=_state_of,
    last_said=lambda stated: when(stated.last_said),
    starts=lambda stated: stated.ledger.starts,
    told=lambda stated: stated.ledger.told,
    kept=lambda stated: stated.ledger.kept,
    broken=lambda stated: stated.ledger.broken,
)


def _told_of(call: RuleCall) -> str:
    """Return whether the agent was told the rule by then."""
    return "told" if call.was_told else "not told"


CALL_COLUMNS = columns(
    "when call deed told session",
    when=lambda call: when(call.at),
    told=_told_of,
)


def _ask(
    question: Callable[[Memory], Awaitable[T]], everywhere: bool, *, new: bool = False
) -> T:
    """Ask the memory of this project, that of its hooks unless there is another; or
    that of all projects.
    """
    if everywhere:
        return ask_own(question, new=new)
    values = settings()
    if not is_stated("db") and not db_exists(values.db):
        values = settings_of_hooks()
    return ask(question, values, new=new)


@rules.callback(invoke_without_command=True)
def list_rules(context: Context) -> int:
    """List the rules that you gave agents, last said first."""
    if context.invoked_subcommand is not None:
        return 0

    stated = _with_ledgers(_stated_rules())
    return emit(
        stated,
        RULE_COLUMNS,
        key="rules",
        text_columns=3,
        empty=f"no rule of yours in {where()}; say it to your agent, or heedful rules "
        "add TEXT --by NAME",
        then="\n".join(proposals(stated)),
    )


def _stated_rules() -> list[StatedRule]:
    """Return the rules of this project, and those for all projects."""
    rules: Sequence[StatedRule] = ()
    # A database that the user named may be misspelt; then this raises NotFound.
    try:
        rules = _ask(lambda memory: memory.user_rules.list(), everywhere=False)
    except NotFound:
        if is_stated("db", files=False):
            raise
    return [*rules, *rules_everywhere()]


def _find(id: int, everywhere: bool) -> StatedRule:
    """Return the rule with this id, one of this project before one for all projects.

    Only the latter count with `everywhere`. Raises NotFound.
    """
    for rule in _stated_rules():
        if rule.id == id and (rule.everywhere or not everywhere):
            return rule
    raise NotFound("rule", str(id), where())


def _with_ledgers(rules: Sequence[StatedRule]) -> Sequence[StatedRule]:
    """Return rules with how they were kept in the sessions of this project."""
    with suppress(NotFound):  # nothing is stored yet
        return _ask(lambda memory: memory.user_rules.with_ledgers(rules), False)
    return rules


def rules_everywhere() -> list[StatedRule]:
    """Return the rules that the user stated for all projects."""
    if not has_own_memory():
        return []
    rules = ask_own(lambda memory: memory.user_rules.list())
    return [replace(rule, everywhere=True) for rule in rules]


def proposals(rules: Sequence[StatedRule]) -> list[str]:
    """Return a line for each rule that agents break although they are told."""
    return [
        f"rule {rule.id} was broken {rule.ledger.ignored} times after it was told; "
        f"next: {_denial(rule)} --try"
        for rule in rules
        if rule.in_force
        and rule.ledger.proposes_denial
        and not (rule.denied or rule.allowed)
    ]


def _denial(rule: StatedRule) -> str:
    """Return the command that denies what a rule forbids."""
    return command_line("rules", "deny", rule.id, everywhere=rule.everywhere)


@rules.command("calls")
def list_calls(id: RuleId, everywhere: Everywhere = False) -> int:
    """List the calls that kept or broke a rule, or were denied, oldest first."""
    (rule,) = _with_ledgers([_find(id, everywhere)])
    return emit(
        rule.ledger.calls,
        CALL_COLUMNS,
        key="calls",
        text_columns=5,
        empty=f"no recorded call kept or broke rule {id}",
        then=rule.ledger.words,
    )


@rules.command("deny")
def deny_rule(
    id: RuleId,
    by: Annotated[str, Option(help="Who decides; not needed with --try.")] = "",
    why: Why = "",
    only_try: Annotated[
        bool, Option("--try", help="Only list what would have been blocked.")
    ] = False,
    everywhere: Everywhere = False,
) -> int:
    """Deny agents the calls that a rule forbids; say what would have been blocked."""
    rule = _find(id, everywhere)
    trial = DenialTrial(calls=0)
    with suppress(NotFound):  # there is no recorded call yet
        trial = _ask(lambda memory: memory.user_rules.try_denial(rule), False)
    if not only_try:
        check_trial(rule, trial)
        _ask(lambda memory: memory.user_rules.deny(id, by=by, why=why), rule.everywhere)
    state = "not denied" if only_try else "denied from now on"
    blocked = counted(len(trial.blocked), "recorded call")
    lines = [f"rule {id}: {state}; it would have blocked {blocked} of {trial.calls}"]
    lines += [clean(call, MAX_SHOWN_TEXT_CHARS) for call in trial.blocked]
    then = following(
        "rules",
        "deny" if only_try else "allow",
        id,
        everywhere=rule.everywhere,
        by="NAME",
    )
    if trial.obeying:
        lines.append("refused, as these also do what the rule wants:")
        lines += [clean(call, MAX_SHOWN_TEXT_CHARS) for call in trial.obeying]
        then = following("rules", "add", "RULE IN NARROWER WORDS", by="NAME")
    return answer({"denied": not only_try, **asdict(trial)}, lines, then)


@rules.command("allow")
def allow_rule(
    id: RuleId, by: By, why: Why = "", everywhere: Everywhere = False
) -> int:
    """Deny no more calls because of a rule: agents are told it, as before."""
    rule = _find(id, everywhere)
    _ask(lambda memory: memory.user_rules.allow(id, by=by, why=why), rule.everywhere)
    words = f"told, not denied: {clean(rule.text, MAX_SHOWN_TEXT_CHARS)}"
    return answer({"allowed": id, "by": by, "why": why}, words, following("rules"))


@rules.command("add")
def add_rule(
    text: Annotated[str, Argument(help="The rule, as you would say it to an agent.")],
    by: By,
    everywhere: Everywhere = False,
) -> int:
    """State a rule for this project, or for all your projects.

    Older rules about the same thing are retired.
    """
    root = str(project_top(Path.cwd()))

    def state(memory: Memory) -> Awaitable[StatedRule]:
        return memory.user_rules.state(text, by=by, root=root)

    stated = _ask(state, everywhere, new=True)
    lines = [f"rule {stated.id} is in force ({when_told(stated.text)})"]
    lines += [f"it ends: {clean(old, MAX_SHOWN_TEXT_CHARS)}" for old in stated.ended]
    then = following("rules", "retire", stated.id, everywhere=everywhere, by="NAME")
    document = {
        "id": stated.id,
        "seen": stated.seen,
        "told": when_told(stated.text),
        "ended": stated.ended,
    }
    return answer(document, lines, then)


@rules.command("retire")
def retire_rule(
    id: RuleId, by: By, why: Why = "", everywhere: Everywhere = False
) -> int:
    """Retire a rule: agents no longer see it, unless you state it again."""
    rule = _find(id, everywhere)
    _ask(lambda memory: memory.user_rules.retire(id, by=by, why=why), rule.everywhere)
    words = f"retired: {clean(rule.text, MAX_SHOWN_TEXT_CHARS)}"
    return answer({"retired": id, "by": by, "why": why}, words, following("rules"))
