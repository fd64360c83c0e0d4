"""Rules: what a finding says without the particulars of its task. Pure.

A finding is constant text around values: "the right queue is " and a queue. The values
are particulars, and another task must not be told them. From a single failure, constant
is what the check declares: a literal of its code, or a parameter. Of a text without
such parts, a message keeps its words, but no number, path or value of an answer; a fix
keeps what stands in no task and no answer. A second task confirms the rest: what the
findings of both have in common is the rule.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from heedful.lessons.lesson import Example, clip
from heedful.lessons.signature import particulars
from heedful.lessons.words import INDEX_STOP_WORDS, MAX_QUOTED_CHARS, compiled

# A blank that a reader fills in; "…" says that a text was shortened.
MASK = "___"
# In the text of a lesson, before the change that put an answer right.
CHANGE_LABEL = "Accepted: "
# A check's text is a template if the check declares this share of its words.
MIN_DECLARED_SHARE = 1 / 3
# The sightings whose findings are compared, the newest ones.
MAX_COMPARED_SIGHTINGS = 5

# A mask is no word.
_WORDS_PATTERN = r"(?!_+\b)\w+"
# A name, path, date or number is one token: "fix/login", "2024-05-19", "1,204.5".
_TOKEN_PATTERN = r"\s+|[-~/.@#$]*\w+(?:[-./@\\:,']{1,3}\w+)*|[^\w\s]"
# A quotation, or what stands between blanks without the signs around it.
_CHUNK_PATTERN = (
    r"(?<!\w)(['\"`])[^'\"`\n]+\1(?!\w)|[^\s.,;:!?()\[\]'\"`](?:\S*[\w%$€])?"
)
_REPEATED_MASK_PATTERN = rf"{MASK}(?:\W*{MASK})+|(['\"`]){MASK}\1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What checks declare: `texts` of their code and the values of their `parameters`.

    In `lists` of values, a finding may mean any one value.
    """

    texts: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()
    lists: frozenset[tuple[str, ...]] = frozenset()


def mask_finding(
    message: str,
    fix: str,
    *,
    task: str,
    answers: Sequence[str],
    accepted: str,
    declared: Declared = Declared(),
) -> str:
    """Return message and fix of a single finding with the particulars masked.

    `answers` are the outputs of its loop; `accepted` is the accepted one, or "". A text
    that has only masks and stop words left is omitted.
    """
    loop_words = _LoopWords(task, answers, accepted, declared)
    texts = [
        loop_words.mask(clip(message).rstrip(". "), is_fix=False),
        loop_words.mask(clip(fix), is_fix=True),
    ]
    return ". ".join(filter(_has_words, texts))


def with_rule(example: Example) -> Example:
    """Return the example of a finding with its rule; one without a fix may lack it."""
    if example.rule or example.fix:
        return example

    rule = mask_finding(
        example.wrong.rstrip(". "),
        "",
        task=example.task,
        answers=[example.rejected, example.accepted],
        accepted=example.accepted,
    )
    return replace(example, rule=rule)


def constant_rule(sightings: Sequence[Example], corrected: int = 0) -> str:
    """Return what the findings of one rule have in common, newest sighting first.

    A rule that its check has stated needs no comparison. With the sightings of one task
    only, nothing is confirmed: the result is the first one's `rule`. It is so, too, if
    the findings differ in most of their words.

    A stage of a pipeline has the same task in each run, and its outputs are not kept.
    There, what counts as another task is a finding with other words, or that several
    loops were `corrected` after a finding with the same words.
    """
    if sightings[0].stated:
        return sightings[0].rule

    is_stage = corrected > 0 and not any(sighting.has_output for sighting in sightings)
    by_task: dict[object, Example] = {}
    for sighting in reversed(sightings):
        name = (sighting.wrong, sighting.fix) if is_stage else sighting.task
        by_task[name] = sighting

    texts = [(seen.wrong.rstrip(". "), seen.fix) for seen in by_task.values()]
    token_pattern = compiled(_TOKEN_PATTERN)
    findings = [token_pattern.findall(". ".join(filter(None, pair))) for pair in texts]
    is_repeated = is_stage and corrected > 1
    if len(findings) < 2 and not is_repeated:
        return sightings[0].rule

    common = findings[-1]
    for tokens in findings[:-1]:
        if tokens != common:
            common = _common_tokens(common, tokens)

    text = compiled(_REPEATED_MASK_PATTERN).sub(MASK, "".join(common)).strip()
    words_left = len(_words(text))
    if words_left < MIN_DECLARED_SHARE * min(len(_words("".join(f))) for f in findings):
        return sightings[0].rule
    return text


def _common_tokens(tokens: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the tokens that both have, with a mask where they differ."""
    from difflib import SequenceMatcher  # 0.4 MB, which a memory can do without

    common: list[str] = []
    matcher = SequenceMatcher(None, tokens, others, autojunk=False)
    for kind, start, end, _, _ in matcher.get_opcodes():
        common += tokens[start:end] if kind == "equal" else [MASK]
    return common


class _LoopWords:
    """The texts of a loop in which the particulars of a finding stand."""

    def __init__(
        self, task: str, answers: Sequence[str], accepted: str, declared: Declared
    ) -> None:
        accepted_values = set(_values_of(accepted))
        # A check may look the answer up, or be made for this very task.
        general = {text for text in declared.parameters if not _places(text, task)}
        self.constants = [
            text
            for text in declared.texts | general
            if text.strip() not in accepted_values and _words(text)
        ]
        self.lists = declared.lists
        # The keys of an object are those of every answer, so they are no values.
        values = list(chain.from_iterable(map(_values_of, answers)))
        self.loop_words = set(_words(" ".join([task, *values]))) - INDEX_STOP_WORDS
        # The plain words of a value are particulars; a longer answer has those of any
        # text.
        short_values = [text for text in values if len(text) <= MAX_QUOTED_CHARS]
        self.answer_words = set(_words(" ".join(short_values))) - INDEX_STOP_WORDS
        self.loop_text = "\n".join([task, *answers])

    def mask(self, text: str, is_fix: bool) -> str:
        """Return a text of the finding with its particulars masked."""
        is_declared = _mark(text, self.constants)
        words = [match.span() for match in compiled(_WORDS_PATTERN).finditer(text)]
        declared = sum(all(is_declared[start:end]) for start, end in words)
        if not declared or declared < MIN_DECLARED_SHARE * len(words):
            return _cover(text, self._particulars(text, is_fix), merge=True)

        is_constant = _mark(text, [*self.constants, *self._members_in(text)])
        return _cover(text, self._holes(text, is_constant, is_fix))

    def _members_in(self, text: str) -> Iterator[str]:
        """Yield the members of lists that are no choice of this very task.

        They are so if the text names the whole list, or if neither the task nor an
        answer has them.
        """
        for members in self.lists:
            is_whole = len(members) > 1 and all(_places(m, text) for m in members)
            for member in members:
                if is_whole or not any(_places(member, self.loop_text)):
                    yield member

    def _holes(
        self, text: str, is_constant: bytearray, is_fix: bool
    ) -> Iterator[tuple[int, int]]:
        """Yield what fills a template; in a fix, only what the loop's texts have."""
        for hole in re.finditer(rb"\0+", is_constant):
            start, end = hole.span()
            filled = text[start:end]
            words = set(_words(filled))
            if words and (not is_fix or words & self.loop_words):
                yield (
                    start + len(filled) - len(filled.lstrip()),
                    start + len(filled.rstrip()),
                )

    def _particulars(self, text: str, is_fix: bool) -> Iterator[tuple[int, int]]:
        """Yield the particulars of a text that the check does not declare."""
        for match in compiled(_CHUNK_PATTERN).finditer(text):
            words = set(_words(match[0])) - INDEX_STOP_WORDS
            is_name = match[1] or _is_name(match[0], text[: match.start()])
            if words & self.answer_words or (
                words and is_name and words <= self.loop_words
            ):
                yield match.span()
        if not is_fix:
            yield from particulars(text)


def _mark(text: str, constants: Sequence[str]) -> bytearray:
    """Return for each character of a text if it belongs to one of the constants."""
    marks = bytearray(len(text))
    for constant in constants:
        for start, end in _places(constant.strip(), text):
            marks[start:end] = b"\1" * (end - start)
    return marks


def _values_of(answer: str) -> Iterator[str]:
    """Yield an answer, or the values in it if it is an object or a list in JSON."""
    if answer.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            yield from list(_leaves(json.loads(answer)))
            return
    yield answer.strip()


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts and numbers of decoded JSON."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield str(value)


def _words(text: str) -> list[str]:
    return compiled(_WORDS_PATTERN).findall(text.lower())


def _has_words(text: str) -> bool:
    """Return True if a text says more than stop words."""
    return not INDEX_STOP_WORDS.issuperset(_words(text))


def _is_name(chunk: str, before: str) -> bool:
    """Return True for a word with digits, inner signs, or capitals in a sentence."""
    is_first = not before.strip() or before.rstrip()[-1] in ".:!?"
    has_capital = chunk[1:] != chunk[1:].lower() or not (
        is_first or chunk[0] == chunk[0].lower()
    )
    return has_capital or not chunk.isalpha()


def _places(part: str, text: str) -> list[tuple[int, int]]:
    """Return where a text stands in another as words of its own."""
    if not part or part not in text:
        return []
    # Not within a name: "fix" does not stand in "fix/login".
    before = r"(?<!\w)(?<!\w[-./@:])" if part[0].isalnum() else ""
    after = r"(?!\w)(?![-./@:]\w)" if part[-1].isalnum() else ""
    pattern = f"{before}{re.escape(part)}{after}"
    return [match.span() for match in re.finditer(pattern, text)]


def _cover(text: str, spans: Iterable[tuple[int, int]], merge: bool = False) -> str:
    """Return a text with masks; `merge` those that only stop words or signs part."""
    parts: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if end <= done:
            continue
        between = text[done : max(start, done)]
        if not (merge and parts) or _has_words(between):
            parts += [between, MASK]
        done = end
    return "".join([*parts, text[done:]])
