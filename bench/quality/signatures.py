"""Grouping accuracy of signatures: log lines by template, agent failures by what failed."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig

import heedful
from bench.quality.rows import Row, read

Labelled = Sequence[tuple[str, str]]  # (text, true group)
# What a text of 64 KiB may repeat to make a pattern look at the same place again and again.
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
    *("0x", "ab:", "deadbeef", "http://", "../", "C:\\", "user=", "status=", "code: 4", "Jan 1 "),
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
    *("E   assert 1 == 1\nE   +  where 1 = 1 1 1\n", "\n + where 1 = ", " = ", "- a\n+ a\n"),
    *("expected ", "expected 1 to ", "got ", "was [", "left: ", "Expected: 1 but ", "= 1, want "),
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
    """Both levels beside drain3 with its defaults; each log system on its own, as in one scope."""
    systems: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in read(data, "loghub_2k", split):
        systems[row["set"]].append((row["content"], row["event_id"]))
    agent = [(r["feedback"], r["group"]) for r in read(data, "agent_failure_signatures", split)]
    levels: tuple[Callable[[str, Labelled], list[str]], ...] = (learned, stateless, drained)
    ours, plain, drain3 = ([accuracy(f("log", s), s) for s in systems.values()] for f in levels)
    yield Row("signatures.loghub.ga", mean(ours), mean(drain3), "drain3; tuned Brain .983")
    whole = [accuracy([digest(text) for text, _ in s], s) for s in systems.values()]
    anchor = "hash; six masks and hash .644"
    yield Row("signatures.loghub.ga_stateless", mean(plain), mean(whole), anchor)
    for system, with_level, without, theirs in zip(systems, ours, plain, drain3, strict=True):
        name = f"signatures.loghub.{system}"
        yield Row(name, with_level, theirs, f"drain3; ours without the level {without:.3f}")
    ours_agent, plain_agent, drain3_agent = (
        accuracy(f("AssertionError", agent), agent) for f in levels
    )
    yield Row("signatures.agent.ga", ours_agent, drain3_agent, "drain3 .193")
    simple = accuracy([digest(text) for text, _ in agent], agent)
    yield Row("signatures.agent.ga_stateless", plain_agent, simple, "hash; six masks and hash .508")
    yield from speeds(systems)


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
        yield Row(f"signatures.us_per_line{key}", seconds / lines * 1e6)
    texts = [(part * LENGTH)[:LENGTH] + end for part in NASTY for end in ("", "x", "!\n")]
    worst = sorted(
        min(spent(partial(heedful.signature, "E", text)) for _ in "123") for text in texts
    )
    yield Row("signatures.ms_64kib_p99", worst[int(len(worst) * 0.99)] * 1e3)


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
    of_predicted, of_true = members(predicted), members(true)
    right = sum(of_predicted[p] == of_true[t] for p, t in zip(predicted, true, strict=True))
    return right / len(true)


def members(groups: Sequence[Hashable]) -> dict[Hashable, frozenset[int]]:
    """Group -> the lines in it."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for line, group in enumerate(groups):
        found[group].append(line)
    return {group: frozenset(lines) for group, lines in found.items()}
