"""What the user says in a session: rules, and the sources of these words.

A rule that a session shows is a lesson of its own, as trusted as the user, unless the
words repeat what a tool said or may be pasted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain

from heedful.episodes import course as trace
from heedful.episodes.episode import MODEL_WORD_EVENTS, Event
from heedful.episodes.sources import (
    Origins,
    gives_typed_lines,
    may_be_pasted,
    typed_part,
)
from heedful.lessons import trust as trusts
from heedful.lessons.lesson import Lesson
from heedful.lessons.stated_rule import RULE_TYPES
from heedful.lessons.user_rules import UserRule, read_rules, rule_signature
from heedful.redact import mask_personal, redact

RULE_IMPORTANCE = 0.9


def find_rules(events: Sequence[Event]) -> dict[UserRule, str]:
    """Return the rules of the user, each with the first message that has it."""
    message_by_rule: dict[UserRule, str] = {}
    for event in events:
        if event.type == "user_message":
            message = mask_personal(redact(event.content.strip()))
            for rule in read_rules(message):
                message_by_rule.setdefault(rule, message)
    return message_by_rule


def rule_lesson(rule: UserRule, lesson: Lesson) -> Lesson:
    """Return the lesson of a rule, made of one with its text."""
    return replace(
        lesson,
        error_type=RULE_TYPES[rule.reach],
        signature=rule_signature(rule.text, rule.reach),
        importance=RULE_IMPORTANCE,
    )


def sources_of_words(
    events: Sequence[Event], origins: Origins, messages: Mapping[str, str]
) -> dict[str, Set[str]]:
    """Return the sources of each text in a message of the user.

    `messages` maps each text to its message. A text that repeats what a tool said
    depends on all sources; one in a message that may be pasted or expanded, or after
    the name of a file whose content may follow, depends on the network, too. A text
    that repeats instructions of a clone depends on their file, and each text on all
    files of instructions that heedful could not read.
    """
    surroundings = trace.SURROUNDING_EVENTS | MODEL_WORD_EVENTS
    results = [
        event for event in events if event.origin or event.type not in surroundings
    ]
    quotations = trusts.find_quotations(messages, map(trace.event_text, results))
    files_by_text = origins.quoted_foreign(messages)
    unread_files = origins.unread_files()
    is_typed = gives_typed_lines(events)
    sources: dict[str, Set[str]] = {}
    for text, message in messages.items():
        sources[text] = {"user", *files_by_text.get(text, ()), *unread_files}
        if text in quotations:
            all_sources = map(origins.at, range(len(events)))
            sources[text] |= set(chain.from_iterable(all_sources))
        is_own = is_typed and not may_be_pasted(message)
        if not is_own or text not in typed_part(message):
            sources[text] |= {trusts.NETWORK_SOURCE}
    return sources
