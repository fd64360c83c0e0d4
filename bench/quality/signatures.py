"""Grouping accuracy of signatures: log lines by template, agent failures by what
failed.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from statistics import mean
from unittest.mock import patch

from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig

import heedful
from bench.quality.rows import Row, read
from heedful.lessons import patterns, signature

Labelled = Sequence[tuple[str, str]]  # (text, true group)
# What a text of 64 KiB may repeat to make a pattern look at the same place again and
# again.
NASTY = (
    *(
        "1,",
        "1.",
        "+1",
        "<1",
        "1:",
        "1::",
        "a1b2",
        "1h",
        "a-",
        "a.",
        "a/",
        "a@",
        "a_",
        "/",
        "-",
        ":",
    ),
    *(
        "0x",
        "ab:",
        "deadbeef",
        "http://",
        "../",
        "C:\\",
        "user=",
        "status=",
        "code: 4",
        "Jan 1 ",
    ),
    *(
        "'",
        '"',
        "#",
        "^\n",
        "[",
        "[1,",
        "[ != ",
        "1 != [",
        "{",
        '["assert ',
        "assert (",
        "assert '",
    ),
    *(
        "E   assert 1 == 1\nE   +  where 1 = 1 1 1\n",
        "\n + where 1 = ",
        " = ",
        "- a\n+ a\n",
    ),
    *(
        "expected ",
        "expected 1 to ",
        "got ",
        "was [",
        "left: ",
        "Expected: 1 but ",
        "= 1, want ",
    ),
    *(
        "SELECT '",
        "VALUES (1,",
        "[parameters: ",
        "Key (a)=(",
        "Duplicate entry '",
        "\0",
        "٣",
        "\ud800",
    ),
)
LENGTH = 65_536


def run(data: Path, split: str) -> Iterator[Row]:
    """Both levels beside drain3 with its defaults; each log system on its own, as in
    one scope.
    """
    systems: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in read(data, "loghub_2k", split):
        systems[row["set"]].append((row["content"], row["event_id"]))
    agent = [
        (r["feedback"], r["group"])
        for r in read(data, "agent_failure_signatures", split)
    ]
    levels: tuple[Callable[[str, Labelled], list[str]], ...] = (
        learned,
        stateless,
        drained,
    )
    ours, plain, drain3 = (
        [accuracy(f("log", s), s) for s in systems.values()] for f in levels
    )
    yield Row(
        key="signatures.loghub.ga",
        ours=mean(ours),
        baseline=mean(drain3),
        anchor="drain3; tuned Brain .983",
    )
    whole = [accuracy([digest(text) for text, _ in s], s) for s in systems.values()]
    anchor = "hash; six masks and hash .644"
    yield Row(
        key="signatures.loghub.ga_stateless",
        ours=mean(plain),
        baseline=mean(whole),
        anchor=anchor,
    )
    for system, with_level, without, theirs in zip(
        systems, ours, plain, drain3, strict=True
    ):
        name = f"signatures.loghub.{system}"
        yield Row(
            key=name,
            ours=with_level,
            baseline=theirs,
            anchor=f"drain3; ours without the level {without:.3f}",
        )
    yield from left_out(systems, agent, drain3)
    ours_agent, plain_agent, drain3_agent = (
        accuracy(f("AssertionError", agent), agent) for f in levels
    )
    yield Row(
        key="signatures.agent.ga",
        ours=ours_agent,
        baseline=drain3_agent,
        anchor="drain3 .193",
    )
    simple = accuracy([digest(text) for text, _ in agent], agent)
    yield Row(
        key="signatures.agent.ga_stateless",
        ours=plain_agent,
        baseline=simple,
        anchor="hash; six masks and hash .508",
    )
    yield from speeds(systems)


# The rules that can be left out: the module, the regular expression, and the rule's
# part of it.
RULES = {
    **{
        name: (signature, "_PARTICULAR", shape)
        for name, shape in signature._PARTICULAR_SHAPES.items()
    },
    "date": (signature, "_PARTICULAR", signature._DATE_PREFIX_REGEX),
    "code": (signature, "_CODE", signature._ERROR_NUMBER_PATTERN),
    "list": (patterns, "_LIST", patterns._LIST_TOKEN_PATTERN.pattern),
    "fixed": (patterns, "_FIXED", patterns._FIXED_TOKEN_PATTERN.pattern),
}
NEVER = "(?!)()"
AGENT = 0.95
Choice = tuple[frozenset[str], int, int]  # rules left out, MANY, WORDS


def left_out(
    systems: Mapping[str, Labelled], agent: Labelled, drain3: Sequence[float]
) -> Iterator[Row]:
    """Each system grouped with the rules and thresholds that the other systems need."""

    @cache
    def figures(*choice: *Choice) -> Mapping[str, float]:
        with chosen(*choice):
            if accuracy(learned("AssertionError", agent), agent) < AGENT:
                return dict.fromkeys(systems, 0.0)
            return {
                name: accuracy(learned("log", rows), rows)
                for name, rows in systems.items()
            }

    found = []
    for system, theirs in zip(systems, drain3, strict=True):
        off, many, words = choice = chosen_without(system, figures)
        found.append(figures(*choice)[system])
        note = f"drain3; MANY {many}, WORDS {words}, without {', '.join(sorted(off))}"
        yield Row(
            key=f"signatures.loghub.{system}_logo",
            ours=found[-1],
            baseline=theirs,
            anchor=note,
        )
    yield Row(
        key="signatures.loghub.ga_logo",
        ours=mean(found),
        baseline=mean(drain3),
        anchor="drain3",
    )


def chosen_without(system: str, figures: Callable[..., Mapping[str, float]]) -> Choice:
    """The best thresholds for the other systems, then without the rules that none of
    them needs.
    """

    def others(*choice: *Choice) -> float:
        return mean(ga for name, ga in figures(*choice).items() if name != system)

    every: frozenset[str] = frozenset()
    steps = [(m, w) for m in (0, -1, 1) for w in (0, -1, 1) if not m or not w]
    thresholds = [
        (patterns.MIN_PARTICULAR_VALUES + m, patterns.MIN_PATTERN_WORDS + w)
        for m, w in steps
    ]
    off = every
    (many, words) = max(thresholds, key=lambda pair: others(every, *pair))
    for rule in RULES:
        if others(off | {rule}, many, words) >= others(off, many, words):
            off |= {rule}
    return off, many, words


def chosen(off: frozenset[str], many: int, words: int) -> ExitStack:
    """A context in which the thresholds are these and the rules `off` match nothing."""
    changed = ExitStack()
    changed.enter_context(patch.multiple(patterns, MANY=many, WORDS=words))
    for rule in off:
        module, name, part = RULES[rule]
        known = getattr(module, name)
        left = getattr(known, "pattern", known).replace(part, NEVER)
        made = left if isinstance(known, str) else re.compile(left)
        changed.enter_context(patch.object(module, name, made))
    return changed


def stateless(kind: str, rows: Labelled) -> list[str]:
    """The digests."""
    return [heedful.signature(kind, text).digest for text, _ in rows]


def learned(kind: str, rows: Labelled) -> list[str]:
    """The groups after the last line, learnt one by one."""
    names = [heedful.signature(kind, text) for text, _ in rows]
    known = heedful.Templates()
    for name in names:
        known = known.learn(name)
    return [known.group(name) for name in names]


def drained(_: str, rows: Labelled) -> list[str]:
    """The clusters of drain3, as it ships."""
    miner = TemplateMiner(config=TemplateMinerConfig())
    return [str(miner.add_log_message(text)["cluster_id"]) for text, _ in rows]


def speeds(systems: dict[str, list[tuple[str, str]]]) -> Iterator[Row]:
    """Processor time: of a line at either level, and of the worst texts of 64 KiB."""
    lines = sum(map(len, systems.values()))
    for key, level in (("", stateless), ("_learned", learned), ("_drain3", drained)):
        seconds = sum(spent(partial(level, "log", rows)) for rows in systems.values())
        yield Row(key=f"signatures.us_per_line{key}", ours=seconds / lines * 1e6)
    texts = [
        (part * LENGTH)[:LENGTH] + end for part in NASTY for end in ("", "x", "!\n")
    ]
    worst = sorted(
        min(spent(partial(heedful.signature, "E", text)) for _ in "123")
        for text in texts
    )
    yield Row(key="signatures.ms_64kib_p99", ours=worst[int(len(worst) * 0.99)] * 1e3)


def spent(call: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def digest(text: str) -> str:
    """The hash of the whole text."""
    return hashlib.sha256(text.encode()).hexdigest()


def accuracy(predicted: Sequence[Hashable], rows: Labelled) -> float:
    """The share of lines whose predicted group is exactly their true group."""
    true = [group for _, group in rows]
    of_predicted = members(predicted)
    of_true = members(true)
    right = sum(
        of_predicted[p] == of_true[t] for p, t in zip(predicted, true, strict=True)
    )
    return right / len(true)


def members(groups: Sequence[Hashable]) -> dict[Hashable, frozenset[int]]:
    """Group -> the lines in it."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for line, group in enumerate(groups):
        found[group].append(line)
    return {group: frozenset(lines) for group, lines in found.items()}
