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
from itertools import product
from pathlib import Path
from statistics import mean
from typing import NamedTuple
from unittest.mock import patch

from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig

import heedful
from bench.quality.rows import Row, read
from heedful.knowledge import KnowledgeTable
from heedful.lessons import patterns, signature

Labelled = Sequence[tuple[str, str]]  # (text, true group)
# Groups texts of one kind: a name of its group for each.
Level = Callable[[str, Labelled], list[str]]
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
    """Yield both levels beside drain3, each log system as in a scope of its own."""
    systems: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in read(data, "loghub_2k", split):
        systems[row["set"]].append((row["content"], row["event_id"]))
    our_scores = score_systems(learn_groups, systems)
    stateless_scores = score_systems(digests_of, systems)
    drain3_scores = score_systems(drain_groups, systems)
    yield Row(
        key="signatures.loghub.ga",
        ours=mean(our_scores),
        baseline=mean(drain3_scores),
        anchor="drain3; tuned Brain .983",
    )
    yield Row(
        key="signatures.loghub.ga_stateless",
        ours=mean(stateless_scores),
        baseline=mean(score_systems(hashes_of, systems)),
        anchor="hash; six masks and hash .644",
    )
    for system, ours, stateless, theirs in zip(
        systems, our_scores, stateless_scores, drain3_scores, strict=True
    ):
        yield Row(
            key=f"signatures.loghub.{system}",
            ours=ours,
            baseline=theirs,
            anchor=f"drain3; ours without the level {stateless:.3f}",
        )

    agent = [
        (row["feedback"], row["group"])
        for row in read(data, "agent_failure_signatures", split)
    ]
    yield from leave_out(systems, agent, drain3_scores)
    yield Row(
        key="signatures.agent.ga",
        ours=accuracy(learn_groups("AssertionError", agent), agent),
        baseline=accuracy(drain_groups("AssertionError", agent), agent),
        anchor="drain3 .193",
    )
    yield Row(
        key="signatures.agent.ga_stateless",
        ours=accuracy(digests_of("AssertionError", agent), agent),
        baseline=accuracy(hashes_of("AssertionError", agent), agent),
        anchor="hash; six masks and hash .508",
    )
    yield from speeds(systems)


def score_systems(level: Level, systems: Mapping[str, Labelled]) -> list[float]:
    """Return how well a way of grouping does on each log system."""
    return [accuracy(level("log", rows), rows) for rows in systems.values()]


# The rules that can be left out: the module, the regular expression, and the rule's
# part of it. The rows of ids are rules of their own.
RULES = {
    **{
        name: (signature, "_PARTICULAR_PATTERN", shape)
        for name, shape in signature._PARTICULAR_SHAPES.items()
        if shape != "ID"
    },
    **{
        row.id: (signature, "_PARTICULAR_PATTERN", row.regex)
        for row in KnowledgeTable("lessons/signature").rows("id")
    },
    "date": (signature, "_PARTICULAR_PATTERN", signature._DATE_PREFIX_REGEX),
    "code": (signature, "_ERROR_NUMBER_PATTERN", signature._ERROR_NUMBER_PATTERN),
    "fixed": (patterns, "_FIXED_TOKEN_PATTERN", patterns._FIXED_TOKEN_PATTERN.pattern),
}
NEVER = "(?!)()"
AGENT = 0.95


class Choice(NamedTuple):
    """The rules that are left out, and the two thresholds of a pattern."""

    off: frozenset[str]
    values: int
    words: int


def leave_out(
    systems: Mapping[str, Labelled], agent: Labelled, drain3: Sequence[float]
) -> Iterator[Row]:
    """Group each system with the rules and thresholds that the others need."""

    @cache
    def figures(choice: Choice) -> Mapping[str, float]:
        with patch_choice(choice):
            if accuracy(learn_groups("AssertionError", agent), agent) < AGENT:
                return dict.fromkeys(systems, 0.0)
            scores = score_systems(learn_groups, systems)
            return dict(zip(systems, scores, strict=True))

    scores = []
    for system, theirs in zip(systems, drain3, strict=True):
        choice = choose_without(system, figures)
        score = figures(choice)[system]
        scores.append(score)
        thresholds = f"MANY {choice.values}, WORDS {choice.words}"
        off = ", ".join(sorted(choice.off))
        yield Row(
            key=f"signatures.loghub.{system}_logo",
            ours=score,
            baseline=theirs,
            anchor=f"drain3; {thresholds}, without {off}",
        )
    yield Row(
        key="signatures.loghub.ga_logo",
        ours=mean(scores),
        baseline=mean(drain3),
        anchor="drain3",
    )


def choose_without(
    system: str, figures: Callable[[Choice], Mapping[str, float]]
) -> Choice:
    """Choose the best thresholds for the others, then drop rules that none needs."""

    def score_others(choice: Choice) -> float:
        shares = figures(choice)
        return mean(share for name, share in shares.items() if name != system)

    choices = []
    for more_values, more_words in product((0, -1, 1), (0, -1, 1)):
        if not more_values or not more_words:
            values = patterns.MIN_PARTICULAR_VALUES + more_values
            words = patterns.MIN_PATTERN_WORDS + more_words
            choices.append(Choice(frozenset(), values, words))
    best = max(choices, key=score_others)
    for rule in RULES:
        without = best._replace(off=best.off | {rule})
        if score_others(without) >= score_others(best):
            best = without
    return best


def patch_choice(choice: Choice) -> ExitStack:
    """Set the thresholds, and let the rules `off` match nothing, until closed."""
    changed = ExitStack()
    thresholds = patch.multiple(
        patterns,
        MIN_PARTICULAR_VALUES=choice.values,
        MIN_PATTERN_WORDS=choice.words,
    )
    changed.enter_context(thresholds)
    with_rows = signature._with_rows(signature._PARTICULAR_PATTERN).pattern
    changed.enter_context(patch.object(signature, "_PARTICULAR_PATTERN", with_rows))
    for rule in choice.off:
        module, name, part = RULES[rule]
        rule_pattern = getattr(module, name)
        regex = getattr(rule_pattern, "pattern", rule_pattern).replace(part, NEVER)
        if not isinstance(rule_pattern, str):
            regex = re.compile(regex)
        changed.enter_context(patch.object(module, name, regex))
    return changed


def digests_of(kind: str, rows: Labelled) -> list[str]:
    """Return the digests."""
    return [heedful.signature(kind, text).digest for text, _ in rows]


def learn_groups(kind: str, rows: Labelled) -> list[str]:
    """Return the groups after the last line, learnt one by one."""
    names = [heedful.signature(kind, text) for text, _ in rows]
    templates = heedful.Templates()
    for name in names:
        templates = templates.learn(name)
    return [templates.group(name) for name in names]


def drain_groups(_: str, rows: Labelled) -> list[str]:
    """Return the clusters of drain3, as it ships."""
    miner = TemplateMiner(config=TemplateMinerConfig())
    return [str(miner.add_log_message(text)["cluster_id"]) for text, _ in rows]


def speeds(systems: dict[str, list[tuple[str, str]]]) -> Iterator[Row]:
    """Yield processor time of a line by level, and of the worst texts of 64 KiB."""
    lines = sum(map(len, systems.values()))
    levels: dict[str, Level] = {
        "": digests_of,
        "_learned": learn_groups,
        "_drain3": drain_groups,
    }
    for key, level in levels.items():
        seconds = sum(
            cpu_seconds(partial(level, "log", rows)) for rows in systems.values()
        )
        yield Row(key=f"signatures.us_per_line{key}", ours=seconds / lines * 1e6)

    worst = []
    for part, end in product(NASTY, ("", "x", "!\n")):
        text = (part * LENGTH)[:LENGTH] + end
        call = partial(heedful.signature, "E", text)
        worst.append(min(cpu_seconds(call) for _ in range(3)))
    worst.sort()
    yield Row(key="signatures.ms_64kib_p99", ours=worst[int(len(worst) * 0.99)] * 1e3)


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the processor seconds of one call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def hashes_of(_: str, rows: Labelled) -> list[str]:
    """Return the hashes of the whole texts."""
    return [hashlib.sha256(text.encode()).hexdigest() for text, _ in rows]


def accuracy(predicted: Sequence[Hashable], rows: Labelled) -> float:
    """Return the share of lines whose predicted group is exactly their true group."""
    true = [group for _, group in rows]
    of_predicted = members(predicted)
    of_true = members(true)
    right = sum(
        of_predicted[p] == of_true[t] for p, t in zip(predicted, true, strict=True)
    )
    return right / len(true)


def members(groups: Sequence[Hashable]) -> dict[Hashable, frozenset[int]]:
    """Return the lines in each group."""
    lines_by_group: dict[Hashable, list[int]] = defaultdict(list)
    for line, group in enumerate(groups):
        lines_by_group[group].append(line)
    return {group: frozenset(lines) for group, lines in lines_by_group.items()}
