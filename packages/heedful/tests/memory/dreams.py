"""Memories to dream over, and all that a scope holds, to compare before and after."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heedful.lessons import render
from heedful.lessons.lesson import Lesson, LessonRun, Scope
from heedful.lessons.mistake import Call, Fix, Mistake
from heedful.lessons.origin import Origin
from heedful.lessons.scope import digest_of
from heedful.lessons.signature import signature, strategy_signature
from heedful.memory.memory import Memory
from tests.engines import check_derived

# Two rules for one failure; the newer one contradicts the older one.
RETRY = "Retry the call."
NEVER = "Never retry the call."


# What runs taught about failures with one tool.
def failed_call(call: str, error: str, fix: str = "") -> Mistake:
    """Return the mistake of a command that failed, and of the command that worked."""
    calls = (Call(tool="Bash", text=fix),)
    return Mistake(
        action=Call(tool="Bash", text=call),
        error=error,
        fix=Fix(kind="command", calls=calls) if fix else None,
    )


REJECTED = failed_call("git push", "Updates were rejected", "git pull --rebase")
NO_STAT = failed_call(
    "git show HEAD --no-stat", "unrecognized argument", "git show HEAD"
)
CONFLICT = failed_call("git merge main", "Automatic merge failed; fix conflicts")
DIRTY = failed_call("git stash pop", "local changes would be overwritten")

OURS = "join lesson l on l.id = x.lesson_id where l.tenant = :tenant order by x.id"
# All that recall, counting and proving read. The cursors by which caches follow only
# ever grow; of an example that is gone it stays known what it came from; what was ruled
# stays on record.
TABLES = {
    "lesson": "select * from lesson where tenant = :tenant order by id",
    "occurrence": f"select x.* from occurrence x {OURS}",
    "example": f"select x.* from example x {OURS}",
    "vector": (
        "select example, space, data from vector where tenant = :tenant order by 1"
    ),
    "link": (
        "select * from link where tenant = :tenant order by child, relation, parent"
    ),
    "tally": "select * from tally where tenant = :tenant order by project",
    "corpus": "select scope, texts, length from corpus order by 1",
    "origin": (
        "select * from origin where example in (select id from example) order by 1, 2"
    ),
    "lineage": (
        "select * from lineage where child in (select id from example) order by 1, 2"
    ),
    "exposure": (
        "select * from exposure where tenant = :tenant order by loop, kind, signature"
    ),
}
INDEX = {"index": "select rowid, words from example_fts order by 1"}


async def dump_tables(memory: Memory) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of the tables of the memory's tenant; the index must agree with them."""
    store: Any = memory.store
    values = {"tenant": memory.scope.tenant}

    def read(db: Any, scope: Scope) -> dict[str, list[tuple[Any, ...]]]:
        index = INDEX if db.dialect == "sqlite" else {}
        statements = {**TABLES, **index}.items()
        return {
            name: [tuple(dict(row).values()) for row in db.execute(sql, values)]
            for name, sql in statements
        }

    await check_derived(store)
    tables: dict[str, list[tuple[Any, ...]]] = await store.read(memory.scope, read)
    return tables


async def read_states(memory: Memory) -> dict[str, str]:
    return {lesson["text"]: lesson["state"] for lesson in await memory.top(1_000)}


async def recall_ranks(
    memory: Memory, tasks: Sequence[str]
) -> list[list[tuple[Any, ...]]]:
    """What each task brings, with all that ranks it."""
    answers = [
        await memory.recall(task, 20, kind=kind)
        for task in tasks
        for kind in ("", "strategy")
    ]
    return [
        [
            (match.id, match.lesson_id, match.cosine, match.keyword, match.coverage)
            for match in matches
        ]
        for matches in answers
    ]


async def state_rule(
    memory: Memory, text: str, trust: Origin = "local", **fields: Any
) -> int:
    """Store a rule for the failure "late" beside others, each with a row of its own."""
    failure = signature("timeout", "late")
    name = strategy_signature(replace(failure, digest=digest_of("rule", text)))
    lesson = Lesson(
        "strategy",
        name,
        error_type="timeout",
        text=text,
        sighting=text,
        trust=trust,
        **fields,
    )
    stored = await memory.keep(lesson)
    store: Any = memory.store
    await store.write(memory.scope, _link_rule, name.digest, failure.digest)
    return stored.id


def _link_rule(db: Any, scope: Scope, rule: str, failure: str) -> None:
    link = {"child": f"strategy/{rule}", "parent": f"reflection/{failure}"}
    row = {"tenant": scope.tenant, "project": scope.project, **link}
    db.insert("link", {**row, "relation": "strategy"}, "on conflict do nothing")


async def learn_failure(
    memory: Memory, mistake: Mistake, run: str, trust: Origin = "local", **fields: Any
) -> int:
    """Store what a run taught about a failure, as reflecting on the run does."""
    text = render.lesson(mistake)
    name = signature("error", text)
    lesson = Lesson(
        "reflection",
        name,
        error_type="error",
        text=text,
        sighting=text,
        trust=trust,
        source=f"episode:{run}",
        evidence="failed run",
        run=LessonRun(by="rules", outcome="failure"),
        mistake=mistake,
        **fields,
    )
    return (await memory.keep(lesson)).id


async def learn_git_failures(memory: Memory, trust: Origin = "local") -> list[int]:
    """Store three failures with git: two with a cure, one that came back."""
    ids = [
        await learn_failure(memory, REJECTED, "one", trust),
        await learn_failure(memory, NO_STAT, "two", trust),
        await learn_failure(memory, CONFLICT, "two", trust),
    ]
    await learn_failure(memory, CONFLICT, "three", trust)
    return ids
