"""An episode as a store keeps it, to be reflected on later."""

from __future__ import annotations

import json
from dataclasses import replace

from errata.lessons import Filed
from errata.memory.episode import Episode
from errata.memory.learn import Trust
from errata.traces.gather import Limits
from errata.traces.lines import write
from errata.traces.reading import read

# Events of a record.
RECORDED = 2_000


def file(episode: Episode, digest: str, trust: Trust) -> Filed:
    """An episode as a store keeps it: of a long one its first events and its last."""
    events, half = episode.events, RECORDED // 2
    if len(events) > RECORDED:
        left = episode.omitted + len(events) - RECORDED
        episode = replace(episode, events=(*events[:half], *events[-half:]), omitted=left)
    (line,) = write([episode])
    record = {"episode": json.loads(line), "source": episode.source, "trust": trust}
    return Filed(digest, episode.id, episode.session, episode.outcome, record)


def unfiled(one: Filed) -> tuple[Episode, Trust]:
    """The episode that a store kept, and from whom its task was."""
    line = json.dumps(one.record["episode"]).encode("ascii")
    limits = Limits(events=RECORDED, bytes=len(line))
    (episode,) = read(line, "errata", limits)
    return replace(episode, source=one.record["source"]), one.record["trust"]
