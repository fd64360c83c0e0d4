"""FailureEvidence: what was said and done about a failure, and whose words that are.

A text about a failure is trusted no more than the sources of all that it may be drawn
from: what the agent said, what its calls say, and what was read before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from heedful.episodes import course as trace
from heedful.episodes.course import Course
from heedful.episodes.sources import (
    Origins,
    call_words_of,
    find_quoted,
    gap_of,
    lines_of,
    names_of,
    new_words_of,
    pieces_of,
    rare_words_of,
    words_of,
)
from heedful.lessons import trust as trusts


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureEvidence:
    """What decides how far a text about a failure is trusted.

    `words` are what the agent said and did about it, and `lines` are the lines of these
    actions. `new_words` are single words: those of its calls that are in few texts, and
    all that are new in the action or the edits that put it right. Each of these is
    mapped to a step that has it. `steps` are the failed step, the tries in vain, and
    the step that worked; `edits` what was edited before that. `end` is the position of
    the last event.
    """

    words: Mapping[str, int]
    lines: Mapping[str, int]
    new_words: Mapping[str, int]
    steps: Set[int]
    edits: Set[int]
    end: int

    @classmethod
    def of(
        cls,
        run: Course,
        failed: int,
        end: int,
        *,
        tries: Sequence[int] = (),
        edits: Mapping[int, str] = {},
    ) -> FailureEvidence:
        """Return what was said and done about a failed step, up to one that worked.

        `end` is the step that worked, or the failed one. `tries` failed, too, and
        `edits` are changes of files between these, as texts.
        """
        # What the agent said and did about it.
        words = dict[str, int]()
        lines = dict[str, int]()
        for step in sorted({failed, *tries, *edits, end}):
            words.update(dict.fromkeys(words_of(run, [step]), step))
            lines.update(dict.fromkeys(lines_of(run, step), step))

        # The rare words of each call are compared with what came before it, and so are
        # all new words of the call that worked, or of the edits.
        first_words = dict[str, int]()
        for step in sorted({failed, *tries, end}, reverse=True):
            call_words = call_words_of(run.events[step])
            rare_words = rare_words_of(call_words)
            first_words.update(dict.fromkeys(rare_words, step))

        if edits:
            new_words = dict[str, int]()
            for step in edits:
                edit_words = _new_edit_words(edits[step])
                new_words |= dict.fromkeys(edit_words, step)
            prompt_words = names_of(new_words)
        else:
            calls = [failed, *tries, end]
            new_words = dict.fromkeys(new_words_of(run, calls), end)
            prompt_words = list(new_words)
        words = {**{word: new_words[word] for word in prompt_words}, **words}

        return cls(
            words=words,
            lines=lines,
            new_words={**first_words, **new_words},
            steps={failed, *tries, end},
            edits=set(edits),
            end=run.result[end] or end,
        )


def sources_of(
    run: Course, origins: Origins, cases: Sequence[FailureEvidence]
) -> Iterator[set[str]]:
    """Yield the sources that the texts about each failure depend on.

    These are the user who spoke before, the programs of its steps, and the sources
    of what the agent's words repeat: the network if that is a prompt. A single word
    depends on the first text that has it. If the agent was the first, it may be
    from a part of a result that was not kept. What came in a gap of the session is
    not known, so all that follows depends on the network.
    """
    words = {*chain.from_iterable(case.words for case in cases)}
    lines = {*chain.from_iterable(case.lines for case in cases)}
    new_words = {*chain.from_iterable(case.new_words for case in cases)}
    prompt_at = find_quoted(run, words)
    result_at = origins.quoted(words | lines)
    first_at = origins.first(new_words)
    unseen = origins.unseen()

    for case in cases:
        sources = _sources_before(run, case.end)
        # A call has sources of its own only if its words are not the agent's.
        for step in case.steps | case.edits:
            sources |= origins.at(step)
        for step in case.steps:
            sources |= origins.at(run.result[step] or step)

        for text, step in chain(case.words.items(), case.lines.items()):
            results = result_at.get(text, {}).items()
            sources |= {source for source, position in results if position < step}
            if prompt_at.get(text, case.end) < case.end:
                sources.add(trusts.NETWORK_SOURCE)

        sources |= origins.of_foreign(
            case.steps, case.edits, {**case.words, **case.lines}
        )
        for word, step in case.new_words.items():
            first, first_sources = first_at.get(word, (step, frozenset()))
            if first < step and first_sources:
                sources |= first_sources
            else:
                earlier = _sources_until(unseen, min(first, step))
                sources.update(chain.from_iterable(earlier))
        yield sources


def _sources_before(run: Course, end: int) -> set[str]:
    """Return the user if a prompt is before `end`, the network if a gap is."""
    sources = set[str]()
    if any(event.type in trace.SURROUNDING_EVENTS for event in run.events[:end]):
        sources.add("user")

    gap = gap_of(run)
    if gap is not None and gap <= end:
        sources.add(trusts.NETWORK_SOURCE)
    return sources


def _sources_until(
    unseen: Sequence[tuple[int, Set[str]]], step: int
) -> Iterator[Set[str]]:
    """Yield the sources of the results before a step that are incomplete."""
    for position, sources in unseen:
        if position < step:
            yield sources


def _new_edit_words(edit: str) -> list[str]:
    """Return the words that an edit, as `edit_of` writes it, adds to its file."""
    added: list[str] = []
    others: set[str] = set()
    for line in edit.splitlines():
        words = pieces_of(line[1:])
        if line.startswith("+"):
            added += words
        else:
            others.update(words)
    return [word for word in added if word not in others]
