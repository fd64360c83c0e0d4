"""A team's memory: what is reviewed leaves a memory, and nobody's word is worth more
in another one.
"""

from typing import Any

import pytest

from heedful.errors import InvalidInput
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.origin import ORIGINS
from heedful.memory import hardening
from heedful.memory.memory import Memory
from heedful_agents import rule_sharing
from heedful_agents.rule_sharing import follow_rules, rules_to_share
from heedful_agents.team_rules import read_rules, rule_of, write_rules
from tests.alternatives import alternatives_of, source_of
from tests.engines import in_memory
from tests.hosts import patient_host
from tests.store.entries import build_lesson
from tests.tables import cases

NPM_ERROR = "npm ERR! Missing script: test"
NPM_LESSON = (
    f"Bash `npm test` failed with “{NPM_ERROR}”.\n"
    "What put it right:\nBash `pnpm test | tail`"
)
# In parts, because no file names the folders of a machine.
HOME = "/" + "home"


async def share(memory: Memory, root: str = "") -> str:
    """Return the file that a memory shares."""
    reviewed = await rules_to_share(memory, root)
    return write_rules(reviewed.rules)


async def follow(memory: Memory, text: str, **options: Any) -> Any:
    """Follow a file as a person does who approved it."""
    rules = read_rules(text.encode())
    return await follow_rules(memory, rules, by="ann", why="approved", **options)


async def keep(memory: Memory, text: str, **fields: Any) -> None:
    """Store a lesson of a session."""
    await memory.keep(build_lesson(text, "", "reflection", **fields))


@pytest.mark.both_nightly
async def test_what_was_reviewed_is_told_in_another_memory():
    memory = Memory(in_memory())
    await memory.remember("Bash", NPM_ERROR, lesson=NPM_LESSON)
    await memory.remember("", "Use pnpm, never npm.")
    other = Memory(in_memory())
    followed = await follow(other, await share(memory))
    assert followed.new == 2
    [lesson] = (await other.seen("Bash", NPM_ERROR)).lessons
    assert lesson["text"] == NPM_LESSON
    assert lesson["trust"] == "user"
    # What came from the file is not shared again by those who follow it.
    assert (await rules_to_share(other)).rules == ()


@pytest.mark.both_nightly
async def test_only_what_somebody_reviewed_is_shared():
    memory = Memory(in_memory())
    await keep(memory, "Of a model.", trust="local")
    await keep(memory, "Measured once.", trust="local")
    await keep(memory, "Verified.", trust="local", state="verified")
    await keep(memory, "Written.", trust="user")
    await keep(memory, "Of a tool.", trust="outside")
    await keep(memory, "Released.", trust="outside")
    waiting = {entry.lesson: entry.id for entry in await memory.quarantine.waiting()}
    await memory.quarantine.release([waiting["Released."]], by="ann")
    shared_rules = (await rules_to_share(memory)).rules
    texts = {rule.text: rule.trust for rule in shared_rules}
    assert texts == {"Verified.": "local", "Written.": "user", "Released.": "user"}


@pytest.mark.both_nightly
async def test_a_check_of_calls_is_shared_with_its_rule():
    memory = Memory(in_memory())
    lesson = await memory.remember("", "Use pnpm, never npm.")
    check = LessonCheck(
        lesson=lesson.id,
        kind="call",
        rule={"words": "npm install"},
        about="no npm",
        state="accepted",
    )
    settle: Any = hardening.settle
    await memory.store.write(memory.scope, settle, check, by="ann", why="")
    text = await share(memory)
    assert "not in calls: npm install" in text

    other = Memory(in_memory())
    await follow(other, text)
    history = await other.before("Bash", "npm install left-pad")
    assert [check.text for check in history.checks] == ["Use pnpm, never npm."]
    assert not await other.before("Bash", "pnpm install left-pad")


@pytest.mark.both_nightly
async def test_a_changed_file_replaces_what_it_had():
    memory = Memory(in_memory())
    await memory.remember("", "Our own.")
    both = write_rules([rule_of("Use tabs."), rule_of("Our own.")])
    await follow(memory, both)
    again = await follow(memory, both)
    assert again.new == 0
    assert again.known == 2

    changed = await follow(memory, write_rules([rule_of("Use blanks.")]))
    assert changed.new == 1
    assert changed.gone == 2
    texts = {lesson["text"] for lesson in await memory.top()}
    # What the memory has from elsewhere stays.
    assert texts == {"Use blanks.", "Our own."}


@pytest.mark.parametrize("stated", ORIGINS)
async def test_a_rule_is_trusted_as_its_file_says(stated):
    memory = Memory(in_memory())
    text = write_rules([rule_of("A rule.", trust=stated)])
    await follow(memory, text)
    waiting = await memory.quarantine.waiting()
    usable = [lesson for lesson in await memory.top() if not lesson["entry"]]
    trusts = [entry.trust for entry in waiting]
    assert trusts + [lesson["trust"] for lesson in usable] == [stated]


@cases(
    "text, secret",
    {
        "a key": ("Key AKIAIOSFODNN7EXAMPLE is used.", "AKIA"),
        "an address": ("Mail ann.lee@corp.example first.", "ann.lee"),
        "a home folder": (f"Read {HOME}/ann/shop/a.py.", HOME),
        "a drive": ("Open C:\\Users\\ann\\a.py.", "Users"),
        "a birth": ("{'first_name': 'Mia', 'dob': '1990-04-05'}", "1990"),
    },
)
async def test_no_secret_person_or_place_gets_into_the_file(text, secret):
    memory = Memory(in_memory())
    await memory.remember("Bash", text, lesson=f"{text}\nWhat put it right:\n{text}")
    shared_file = await share(memory)
    rule_lines = [line for line in shared_file.splitlines() if line[:2] == "- "]
    assert secret not in "\n".join(rule_lines)


# Places of a machine, as tools and people write them.
PLACES = [
    "cc -I/opt/acme/include",
    "see /srv/acme/a.py",
    "see ~/acme/notes.md",
    "open file:///srv/acme",
    "as /" + "root",
    f"in {HOME} alone",
    "/" + "Users",
    "open C:\\acme\\a.py",
    "open \\\\host\\acme\\a.py",
]
NO_PLACES = ["make > /dev/null", "GET /orders", "https://acme.example/a/b", "a/b.py"]


def marked_by(module: Any) -> list[bool]:
    """Return which texts have a place of a machine in the eyes of a variant."""
    pattern = vars(module)["_MACHINE_PATH_PATTERN"]
    return [bool(pattern.search(text)) for text in [*PLACES, *NO_PLACES]]


def test_places_of_a_machine_are_recognised_and_each_form_is_needed():
    assert marked_by(rule_sharing) == [True] * len(PLACES) + [False] * len(NO_PLACES)
    unneeded = [
        alternative.text
        for alternative in alternatives_of(source_of(rule_sharing))
        if alternative.place == "_MACHINE_PATH_PATTERN"
        and marked_by(alternative.left_out()) == marked_by(rule_sharing)
    ]
    assert unneeded == []


async def test_paths_of_the_repository_are_relative():
    memory = Memory(in_memory())
    await memory.remember("", "Run make in /srv/ann/shop/api first.")
    assert "make in api first" in await share(memory, "/srv/ann/shop")


async def test_a_rule_of_a_user_is_shared():
    memory = Memory(in_memory())
    rules = memory.user_rules
    await rules.state("Never use npm here, use pnpm.", by="ann")
    reviewed = await rules_to_share(memory)
    assert [rule.text for rule in reviewed.rules] == ["Never use npm here, use pnpm."]
    assert [rule.tool for rule in reviewed.rules] == [""]

    team = Memory(in_memory())
    await follow(team, write_rules(reviewed.rules))
    opening = await patient_host(memory=team, strict=True).run("s1").opening()
    assert "- Rule: Never use npm here, use pnpm." in opening.text


async def test_what_is_too_long_is_left_out_with_the_reason():
    memory = Memory(in_memory())
    lesson = await memory.remember("", "x", lesson="long " * 600)
    reviewed = await rules_to_share(memory)
    assert reviewed.rules == ()
    assert "more than 2000 characters" in reviewed.left_out[lesson.id]


async def test_somebody_must_approve():
    with pytest.raises(InvalidInput):
        await follow_rules(Memory(in_memory()), [rule_of("A rule.")], by="", why="")
