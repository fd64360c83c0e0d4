"""Lessons by rules from runs that mended themselves, and from runs that teach nothing.

Sixty runs failed, found a way out and went on, in eight shapes; twenty of them are
parts of recorded sessions, the others were written before the code that reads them.
Forty runs failed and went on, or seemed to fail, and teach nothing. The person who
wrote a run also wrote its cure in a sentence, a task like it and a task unlike it.
Somebody who knew neither the code nor the lessons wrote for each of the two tasks the
call that fails in it: for the like task, one that meets the same obstacle. Another had
written such calls before; the code was corrected with those, and these were run after.

rule: the share of runs with a strategy. cure: the share whose strategy has at least
half of the words of the cure that the run shows first after the failure. recalled: the
share whose strategy is recalled for the like task, after the lessons were released;
told: the share whose strategy a loop with the like task is shown before it begins;
answered: the share whose strategy is the answer to the call that fails in it, before
the call or after it; reached: the share of either. astray and answered_astray are the
shares for the unlike task.
The rules were made on the recorded runs, and on the written ones with an even number in
their shape; `seen` and `unseen` are the figures of these and of the others.

Expected, written before the rules that find the fixes: cure 0.85 of all and 0.7 of each
shape, told 0.85, unmended.no_rule 0.9. Before: 0.583 (0.143 to 1.0), 0.0 and 0.625.

When the unseen half was first looked at, its cure was 0.812 and its no_rule 0.684. The
general faults that it showed were corrected then, so the figures now are of seen runs.

`bench/out/mended.json` has what a blind reader sees: no cure, in a shuffled order.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heedful
from bench.quality.attacks import CachingEmbedder
from bench.quality.failures import event_view
from bench.quality.rows import Row, read, share, write_json
from heedful.episodes import course as trace
from heedful.errors import UsageError
from heedful.models import open_embedder

HERE = Path(__file__).parent
PAIRS = Path("bench/out/mended.json")
# A word of a cure, and the words that may tell something.
_WORD_PATTERN = re.compile(r"[\w-]+")
_TELLING_PATTERN = re.compile(r"\w{4,}|(?=.*[\d_-])[\w-]{2,}|[^\x00-\x7f]{2,}")
MIN_CURE_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run, what heedful learns of it, and to which loops it tells that.

    `number` counts the runs of a shape from 0.
    """

    run: Mapping[str, Any]
    number: int
    episode: heedful.Episode | None
    lesson: str = ""
    rule: str = ""
    recalled: bool = False
    told: bool = False
    answered: bool = False
    astray: bool = False
    answered_astray: bool = False

    @property
    def shape(self) -> str:
        """The shape of the run, such as "wait"."""
        return str(self.run["shape"])

    @property
    def has_cure(self) -> bool:
        """Whether the rule has at least half of the telling words of the cure."""
        if not self.rule or self.episode is None:
            return False
        words = telling_words(self.run["cure"], self.episode)
        count = sum(has_word(self.rule, word) for word in words)
        return count >= MIN_CURE_SHARE * len(words)


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the figures of both sets, of each shape, and of each half."""
    calls = {entry["id"]: entry for entry in _load("mended_calls.json")}
    written = _load("mended.json")
    recorded = list(_load_recorded(data, split))
    mended = [{**entry, "calls": calls[entry["id"]]} for entry in (*written, *recorded)]
    cases = asyncio.run(_reflect_on(mended))
    unmended = asyncio.run(_reflect_on(_load("unmended.json")))

    views = sorted(map(reader_view, [*cases, *unmended]), key=lambda view: view["id"])
    write_json(PAIRS, views)

    cures = len(_load("mended_recorded.json"))
    anchor = f"of {cures} recorded runs with a cure; the others are not in the data"
    yield Row(key="mended.recorded", ours=len(recorded), anchor=anchor)
    yield from _figures("mended", cases)
    for name, half in _halves(cases).items():
        yield from _figures(f"mended.{name}", half)

    shapes: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        shapes[case.shape].append(case)
    for shape, group in shapes.items():
        key = f"mended.shape.{shape}"
        cures_shown = share(case.has_cure for case in group)
        yield Row(key=f"{key}.cure", ours=cures_shown, anchor="0.7")

    yield _no_rule("unmended", unmended, anchor="0.9")
    for name, half in _halves(unmended).items():
        yield _no_rule(f"unmended.{name}", half)


def _figures(key: str, cases: Sequence[Case]) -> Iterator[Row]:
    """Yield the shares of runs with a rule, with the cure, told, and told astray."""
    marks: dict[str, Callable[[Case], bool]] = {
        "rule": lambda case: bool(case.rule),
        "cure": lambda case: case.has_cure,
        "recalled": lambda case: case.recalled,
        "told": lambda case: case.told,
        "answered": lambda case: case.answered,
        "reached": lambda case: case.told or case.answered,
        "astray": lambda case: case.astray,
        "answered_astray": lambda case: case.answered_astray,
    }
    for name, mark in marks.items():
        anchor = "0.85" if name in ("cure", "reached") else ""
        yield Row(key=f"{key}.{name}", ours=share(map(mark, cases)), anchor=anchor)


def _no_rule(key: str, cases: Sequence[Case], anchor: str = "") -> Row:
    """Return the row of the share of runs from which no rule is learnt."""
    without = share(not case.rule for case in cases)
    return Row(key=f"{key}.no_rule", ours=without, anchor=anchor)


def _halves(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the cases that the rules were made on, and the others.

    Recorded runs are among the first: their set was open when the rules were made.
    """
    halves: dict[str, list[Case]] = {"seen": [], "unseen": []}
    for case in cases:
        is_written = case.run["source"] == "written"
        half = "unseen" if is_written and case.number % 2 else "seen"
        halves[half].append(case)
    return halves


def _load(name: str) -> list[dict[str, Any]]:
    """Return the runs of a file beside this one."""
    runs: list[dict[str, Any]] = json.loads((HERE / name).read_text("utf-8"))
    return runs


def _load_recorded(data: Path, split: str) -> Iterator[dict[str, Any]]:
    """Yield the recorded runs that the data have: parts of sessions, read in place.

    A session is known by the digest of its events, whatever its id.
    """
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in _load("mended_recorded.json"):
        entries[entry["session"]].append(entry)
    for session in read(data, "agent_sessions", split):
        for entry in entries.get(digest_of(session["events"]), ()):
            events = session["events"][entry["first"] : entry["last"] + 1]
            # Of a call that was not run, because its neighbour failed, there is no
            # result.
            events = [event for event in events if event.get("rule") != "sibling_error"]
            episode = {
                "task": session["task"],
                "outcome": "success",
                "events": list(map(_recorded_event, events)),
            }
            yield {**entry, "episode": episode}


def digest_of(events: Sequence[Mapping[str, Any]]) -> str:
    """Return what names recorded events, by their content alone."""
    text = json.dumps(events, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recorded_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of a session in heedful's own format."""
    is_call = event["type"] == "tool_call"
    call = event.get("call")
    output = event.get("output", "")
    is_failed = bool(event.get("failed"))
    return {
        "type": event["type"],
        "tool": event.get("tool", ""),
        "call": "" if call is None else str(call),
        "content": "" if is_failed else output,
        "error": (output or "error") if is_failed else "",
        "arguments": event.get("args", "") if is_call else None,
    }


async def _reflect_on(runs: Iterable[Mapping[str, Any]]) -> list[Case]:
    """Return what heedful learns of each run, in a memory of its own."""
    embedder = CachingEmbedder(open_embedder())
    numbers: dict[str, int] = defaultdict(int)
    cases = []
    for entry in runs:
        number = numbers[entry["shape"]]
        numbers[entry["shape"]] += 1
        cases.append(await _reflect_on_run(entry, number, embedder))
    return cases


async def _reflect_on_run(
    entry: Mapping[str, Any], number: int, embedder: CachingEmbedder
) -> Case:
    """Return what heedful learns of a run; a run that it refuses teaches nothing."""
    try:
        (episode,) = heedful.episodes.read(json.dumps(entry["episode"]).encode())
    except UsageError:
        return Case(run=entry, number=number, episode=None)

    memory = heedful.Memory(":memory:", embedder=embedder, holdout=0)
    reflected = await heedful.reflect(episode, memory=memory, origin="user")
    if reflected is None or reflected.strategy is None:
        lesson = reflected.text if reflected else ""
        return Case(run=entry, number=number, episode=episode, lesson=lesson)

    waiting = await memory.quarantine.waiting()
    ids = [lesson.id for lesson in waiting]
    if ids:
        await memory.quarantine.release(ids, by="bench", why="measured")

    rule = reflected.strategy.text
    # Of a run that teaches nothing, only whether it has a rule counts.
    if "calls" not in entry:
        return Case(run=entry, number=number, episode=episode, rule=rule)

    calls = entry["calls"]
    matches = await memory.recall(entry["similar_task"])
    return Case(
        run=entry,
        number=number,
        episode=episode,
        lesson=reflected.text,
        rule=rule,
        recalled=any(match.lesson == rule for match in matches),
        told=await _is_shown(memory, entry["similar_task"], rule),
        answered=await _is_answer(memory, calls["similar"], rule),
        astray=await _is_shown(memory, entry["unlike_task"], rule),
        answered_astray=await _is_answer(memory, calls["unlike"], rule),
    )


async def _is_shown(memory: heedful.Memory, task: str, rule: str) -> bool:
    """Return whether a new loop about the task is shown the rule."""
    briefing = await memory.brief(task, "next")
    return any(match.lesson == rule for match in briefing.chosen)


async def _is_answer(
    memory: heedful.Memory, call: Mapping[str, Any], rule: str
) -> bool:
    """Return whether the rule answers a call that fails, before or after it."""
    history = await memory.before(call["tool"], call["arguments"])
    if any(rule in (failure.words, failure.fix) for failure in history.failures):
        return True
    seen = await memory.seen(call["tool"], call["error"])
    return any(lesson["text"] == rule for lesson in seen.lessons)


def telling_words(cure: str, episode: heedful.Episode) -> set[str]:
    """Return the words of a cure that a call after the failure has, and none before.

    If no call has any, they are those that what others said has, or the calls before.
    """
    run = trace.course(episode)
    failures = [n for n, failure in enumerate(run.failure) if failure]
    first = failures[0] if failures else len(episode.events)
    before = [episode.task]
    calls: list[str] = []
    others: list[str] = []
    for position, event in enumerate(episode.events):
        if event.type != "tool_call":
            texts = others
        elif position <= first:
            texts = before
        else:
            texts = calls
        texts.append(f"{event.tool} {trace.event_text(event)}")

    words = words_of(cure)
    new = {word for word in words if not has_word(" ".join(before), word)}
    for texts, candidates in ((calls, new), (others, new), (before, words)):
        text = " ".join(texts)
        telling = {word for word in candidates if has_word(text, word)}
        if telling:
            return telling
    return words


def words_of(text: str) -> set[str]:
    """Return the words of a text that may tell something, in lower case.

    They have at least four letters, or two signs with a digit or a mark among them.
    """
    words = {word.strip("_-") for word in _WORD_PATTERN.findall(text.lower())}
    return {word for word in words if _TELLING_PATTERN.fullmatch(word)}


def has_word(text: str, word: str) -> bool:
    """Return whether a text contains a word, or a number that no digit adjoins."""
    if word.isdigit():
        return re.search(rf"(?<!\d){word}(?!\d)", text) is not None
    return word in text.lower()


def reader_view(case: Case) -> dict[str, Any]:
    """Return what a blind reader sees of a case, with an id that tells nothing."""
    episode = case.episode
    name = hashlib.sha256(case.run["id"].encode()).hexdigest()[:8]
    if episode is None:
        return {"id": name, "events": [], "reflection": "", "strategy": ""}
    return {
        "id": name,
        "task": episode.task,
        "outcome": episode.outcome,
        "events": list(map(event_view, episode.events)),
        "reflection": case.lesson,
        "strategy": case.rule,
    }
