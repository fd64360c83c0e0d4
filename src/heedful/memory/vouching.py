"""Whose words a run has, and what its lessons would be worth if all were trusted.

`unstated_sources` names the sources whose trust the lessons of a run wait for.
`vouched_draft` separates a lesson that waits only for them from one that waits in any
case: its words were pasted, or the origin of an error is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from heedful.episodes import sources as origins
from heedful.episodes.course import course
from heedful.episodes.episode import Episode
from heedful.lessons.lesson import Trust
from heedful.lessons.trust import (
    NETWORK_SOURCE,
    QUARANTINE_TRUST,
    untrusted_sources,
)
from heedful.memory.draft import DRAFT_BY_RULES, Draft
from heedful.memory.study import Study
from heedful.memory.wording import by_rules


def unstated_sources(
    episode: Episode, trust: Trust, stated: Mapping[str, Trust], key: str
) -> tuple[str, ...]:
    """Return the sources whose trust the lessons of an episode will wait for.

    `trust` is that of the task, and `key` is the source of the key that sent the
    episode, or "".
    """
    event_origins = origins.Origins(course(episode))
    sources = {key} - {""}
    for position in range(len(episode.events)):
        sources |= event_origins.at(position)
    if (episode.task or episode.goal) and trust in QUARANTINE_TRUST:
        sources.add("user")
    return untrusted_sources(sources, stated)


def vouched_draft(study: Study, draft: Draft) -> Draft:
    """Return a draft with the trust that it has if each source of its run is trusted.

    Text that was pasted into a prompt and errors of unknown origin stay external.
    """
    if QUARANTINE_TRUST.isdisjoint((draft.trust, draft.rule_trust)):
        return draft

    stated: dict[str, Trust] = dict.fromkeys(study.sources, "measured")
    vouched = replace(study, task_trust="operator", stated=stated)
    if draft.by == DRAFT_BY_RULES:
        return by_rules(vouched)

    # A model may quote all that it was shown. The position after the last event stands
    # for a text of unknown origin.
    last = len(study.episode.events)
    if study.episode.fault is None and not origins.pasted(study.course):
        last -= 1
    trust = vouched.floor([last])
    return replace(draft, trust=trust, rule_trust=trust)


def sources_of(
    study: Study, keys: Sequence[str], vouched: Draft, kind: str
) -> tuple[str, ...]:
    """Return the sources of a lesson of this kind, with the `keys` that sent the run.

    The user is one of them if nobody vouches for the task, because an agent may repeat
    its words. The network stands for an unknown origin: that of a lesson that would
    wait even if each named source were trusted, as in the draft `vouched`.
    """
    sources = [*study.sources, *keys]
    has_task = bool(study.episode.task or study.episode.goal)
    if has_task and study.task_trust in QUARANTINE_TRUST:
        sources.append("user")

    trust = vouched.rule_trust if kind == "strategy" else vouched.trust
    if trust in QUARANTINE_TRUST:
        sources.append(NETWORK_SOURCE)
    return tuple(dict.fromkeys(sources))
