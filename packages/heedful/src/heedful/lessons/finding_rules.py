"""Rules: what a finding says without the particulars of its task. Pure.

A finding is constant text around values: "the right queue is " and a queue. The values
are particulars, and another task must not be told them. From a single failure, constant
is what the check declares: a literal of its code, or a parameter. Of a text without
such parts, a message keeps its words, but no number, path or value of an answer; a fix
keeps what stands in no task and no answer. A list of allowed values stays whole. If the
refused answer is unknown, only what stands in the task is particular. A second task
confirms the rest: what the findings of both have in common is the rule.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from heedful.lessons.allowed_values import allowed_spans, find_name
from heedful.lessons.lesson import Example, clip
from heedful.lessons.signature import particulars
from heedful.lessons.words import INDEX_STOP_WORDS, MAX_QUOTED_CHARS, compiled

# A blank that a reader fills in; "…" says that a text was shortened.
MASK = "___"
# A check's text is a template if the check declares this share of its words.
MIN_DECLARED_SHARE = 1 / 3
# The sightings whose findings are compared, the newest ones.
MAX_COMPARED_SIGHTINGS = 5

# A mask is no word.
_WORDS_PATTERN = r"(?!_+\b)\w+"
# A name, path, date or number is one token: "fix/login", "2024-05-19", "1,204.5".
_TOKEN_PATTERN = r"\s+|[-~/.@#$]*\w+(?:[-./@\\:,']{1,3}\w+)*|[^\w\s]"
_QUOTED_CHUNK_PATTERN = r"(?<!\w)(['\"`])[^'\"`\n]+\1(?!\w)"
# What stands between blanks, without the signs around it.
_CHUNK_PATTERN = r"[^\s.,;:!?()\[\]'\"`](?:\S*[\w%$€])?"
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
    knows_refused: bool = True,
) -> str:
    """Return message and fix of a check's finding, with "___" for particulars.

    Particulars are what holds for this `task` or its answers only. `answers` are all
    outputs of its loop, the attempts at the task; `accepted` is the accepted one, or
    "". `declared` is what the check says of every task. If the refused answer is
    unknown (`knows_refused` is false), what only the accepted answer has in common with
    the finding may be what the check allows, so it is not masked. A text that has only
    masks and stop words left is omitted.
    """
    particulars_of_loop = _Particulars(
        task, answers, accepted=accepted, declared=declared, knows_refused=knows_refused
    )
    texts = [
        particulars_of_loop.mask(clip(message).rstrip(". "), is_fix=False),
        particulars_of_loop.mask(clip(fix), is_fix=True),
    ]
    return ". ".join(filter(_content_words, texts))


def with_rule(example: Example) -> Example:
    """Return the example of a finding with its rule: what it says of any task.

    Only an example without a fix may lack its rule; any other is returned as it is.
    """
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


def says_enough(rule: str) -> bool:
    """Return True if a rule has more words of its own than blanks."""
    words = [word for word in _words(rule) if word not in INDEX_STOP_WORDS]
    return len(words) > rule.count(MASK) or MASK not in rule


def cases_of_rule(
    own: Sequence[Example], alike: Sequence[Example]
) -> Sequence[Example]:
    """Return the examples that show which words of a lesson's findings are its rule.

    What several findings have in common is the rule, and the rest is particular to
    their tasks. These are the findings of the same check that are `alike`, those of
    other lessons among them. But if the lesson's `own` findings name what their tasks
    have in common, and say what is right there, they state a rule of their own: "for
    kg, begin with KG:". Then only those are returned.
    """
    # Case counts: "KG" is no word of a task about "kg".
    words = compiled(_WORDS_PATTERN)
    # What only the rule of the lesson's own findings says.
    own_words = set(words.findall(constant_rule(own)))
    own_words -= set(words.findall(constant_rule(alike)))
    task_words = set.intersection(*(set(words.findall(case.task)) for case in own))
    if own_words & task_words and own_words - task_words:
        return own
    return alike


def constant_rule(sightings: Sequence[Example], corrected: int = 0) -> str:
    """Return the rule that all findings of one lesson state.

    `sightings` are the examples with these findings, newest first. What a check says of
    two tasks has the words of the check in common and differs in the values of the
    tasks. So "the queue is red" and "the queue is blue" give the rule "the queue is
    ___". The rule of the newest sighting alone is returned if its check has stated it,
    if no second finding confirms it, or if the findings differ in most of their words.

    In a stage of a pipeline, a finding is also confirmed if it was `corrected` in more
    than one loop.
    """
    newest = sightings[0]
    if newest.stated:
        return newest.rule

    # Only the loops of a stage keep no outputs.
    is_stage = corrected > 0 and not any(sighting.has_output for sighting in sightings)
    findings = _independent_findings(sightings, is_stage)
    is_confirmed = len(findings) > 1 or (is_stage and corrected > 1)
    if not is_confirmed:
        return newest.rule

    common_text = _common_text(findings)
    fewest_words = min(len(_words(finding)) for finding in findings)
    if len(_words(common_text)) < MIN_DECLARED_SHARE * fewest_words:
        return newest.rule
    return common_text


def _independent_findings(sightings: Sequence[Example], is_stage: bool) -> list[str]:
    """Return the message and fix of the newest finding of each task, as one text.

    Findings on one task do not confirm each other. But a stage of a pipeline has the
    same task in each run, and its outputs are not kept: there, a finding with other
    words counts as that of another task.
    """
    newest_by_task: dict[object, Example] = {}
    # From the oldest to the newest, which replaces the older ones of its task.
    for sighting in reversed(sightings):
        task = (sighting.wrong, sighting.fix) if is_stage else sighting.task
        newest_by_task[task] = sighting

    return [
        ". ".join(filter(None, [sighting.wrong.rstrip(". "), sighting.fix]))
        for sighting in newest_by_task.values()
    ]


def _common_text(texts: Sequence[str]) -> str:
    """Return the text that all texts have in common, with masks where they differ."""
    *others, common = map(compiled(_TOKEN_PATTERN).findall, texts)
    for tokens in others:
        if tokens != common:
            common = _common_tokens(common, tokens)
    return compiled(_REPEATED_MASK_PATTERN).sub(MASK, "".join(common)).strip()


def _common_tokens(tokens: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the tokens that both have, in order, with a mask where they differ."""
    from difflib import SequenceMatcher  # 0.4 MB, which a memory can do without

    common: list[str] = []
    matcher = SequenceMatcher(None, tokens, others, autojunk=False)
    for kind, start, end, _, _ in matcher.get_opcodes():
        common += tokens[start:end] if kind == "equal" else [MASK]
    return common


class _Particulars:
    """What is particular to one loop, and so is masked in the finding of its check.

    `constants` are the texts of the check that hold for every loop, and `loop_words`
    all words of the task and of the answers, without what stands in answers alone if
    the refused one is unknown.
    """

    def __init__(
        self,
        task: str,
        answers: Sequence[str],
        *,
        accepted: str,
        declared: Declared,
        knows_refused: bool,
    ) -> None:
        """Find what is particular to the loop with this task and these answers.

        `accepted` is the accepted answer, or "". `declared` is what the check says in
        its code and its parameters. If the refused answer is unknown (`knows_refused`
        is false), words that only answers have are not particular.
        """
        self.task = task
        self.accepted = accepted
        accepted_values = set(_values_of(accepted))
        self.phrases = [
            value for value in accepted_values if len(value) <= MAX_QUOTED_CHARS
        ]
        # A check may look the answer up, or be made for this very task.
        general = {text for text in declared.parameters if not find_name(text, task)}
        self.constants = [
            text
            for text in declared.texts | general
            if text.strip() not in accepted_values and _words(text)
        ]
        self.lists = declared.lists
        # The keys of an object are those of every answer, so they are no values.
        values = list(chain.from_iterable(map(_values_of, answers)))
        task_words = _content_words(task)
        self.loop_words = task_words | _content_words(" ".join(values))
        # The plain words of a value are particulars; a longer answer has those of any
        # text.
        short_values = [text for text in values if len(text) <= MAX_QUOTED_CHARS]
        self.answer_words = _content_words(" ".join(short_values))
        if not knows_refused:
            self.loop_words = task_words
            self.answer_words &= task_words
        # A name that begins a sentence of a check looks like any other word, so the
        # names of the task are known from there.
        names = filter(_is_name, compiled(_CHUNK_PATTERN).finditer(task))
        self.task_names = _content_words(" ".join(name[0] for name in names))
        self.loop_text = "\n".join([task, *answers])

    def mask(self, text: str, is_fix: bool) -> str:
        """Return the message or the fix of a finding with its particulars masked.

        If the check declares enough of its words, in its code or as parameters, the
        text is a template: whatever the check does not declare was filled in. Of
        another text, only what the task or an answer has is particular. A list of
        allowed values is never masked.
        """
        lists = list(allowed_spans(text, self.task, self.accepted, self.phrases))
        # One byte for each character of the text: 1 if the check declares it.
        is_declared = _flag_spans(text, _constant_spans(text, self.constants))
        words = [match.span() for match in compiled(_WORDS_PATTERN).finditer(text)]
        declared_count = sum(all(is_declared[start:end]) for start, end in words)
        if not declared_count or declared_count < MIN_DECLARED_SHARE * len(words):
            # Too few words are the check's own: the text is no template.
            is_listed = _flag_spans(text, lists)
            spans = [
                (start, end)
                for start, end in self._particular_spans(text, is_fix)
                if not any(is_listed[start:end])
            ]
            return _mask_spans(text, spans, merge=True)

        constants = [*self.constants, *self._members_in(text)]
        is_constant = _flag_spans(text, [*_constant_spans(text, constants), *lists])
        return _mask_spans(text, self._filled_spans(text, is_constant, is_fix))

    def _members_in(self, text: str) -> Iterator[str]:
        """Yield the members of declared lists of values that may stay in a text.

        A check chooses one member by the task, which is then particular to it. Members
        stay if the text names the whole list, or if neither the task nor an answer has
        them.
        """
        for members in self.lists:
            names_all = len(members) > 1 and all(find_name(m, text) for m in members)
            for member in members:
                if names_all or not find_name(member, self.loop_text):
                    yield member

    def _filled_spans(
        self, text: str, is_constant: bytearray, is_fix: bool
    ) -> Iterator[tuple[int, int]]:
        """Yield the spans of a template that were filled in, without blanks around.

        `is_constant` has 0 for each character that the check does not declare. In a
        fix, only a span with a word of the task or of an answer counts.
        """
        for gap in re.finditer(rb"\0+", is_constant):
            start, end = gap.span()
            filled = text[start:end]
            words = set(_words(filled))
            if words and (not is_fix or words & self.loop_words):
                blanks_before = len(filled) - len(filled.lstrip())
                yield start + blanks_before, start + len(filled.rstrip())

    def _particular_spans(self, text: str, is_fix: bool) -> Iterator[tuple[int, int]]:
        """Yield the spans where a text says what only this loop has.

        That is a word of a short answer, or a name of which the loop has all words. A
        message also loses its numbers and paths, which a fix may need.
        """
        for match in compiled(_QUOTED_CHUNK_PATTERN).finditer(text):
            if self._is_of_loop(match[0], is_name=True):
                yield match.span()
        for match in compiled(_CHUNK_PATTERN).finditer(text):
            is_name = _is_name(match) or _content_words(match[0]) <= self.task_names
            if self._is_of_loop(match[0], is_name=is_name):
                yield match.span()
        if not is_fix:
            yield from particulars(text)

    def _is_of_loop(self, chunk: str, *, is_name: bool) -> bool:
        """Return True if a chunk of a text has words that only this loop has.

        One word of a short answer is enough. A name counts only if the task and the
        answers have all of its words.
        """
        words = _content_words(chunk)
        if words & self.answer_words:
            return True
        return is_name and bool(words) and words <= self.loop_words


def _flag_spans(text: str, spans: Iterable[tuple[int, int]]) -> bytearray:
    """Return 1 for each character of a text that stands in a span, else 0."""
    marks = bytearray(len(text))
    for start, end in spans:
        marks[start:end] = b"\1" * (end - start)
    return marks


def _constant_spans(text: str, constants: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield where the constants of a check stand in a text."""
    for constant in constants:
        yield from find_name(constant.strip(), text)


def _values_of(answer: str) -> Iterator[str]:
    """Yield an answer, or the values in it if it is an object or a list in JSON."""
    if answer.lstrip()[:1] in ("{", "["):
        # The list is made before the first value is yielded, as the JSON may be too
        # deep.
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


def _content_words(text: str) -> set[str]:
    """Return the words of a text without stop words."""
    return set(_words(text)) - INDEX_STOP_WORDS


def _is_name(match: re.Match[str]) -> bool:
    """Return True if a word in a text looks like a name.

    It has digits, signs within, or a capital; a capital that begins the word counts
    only within a sentence.
    """
    chunk = match[0]
    before = match.string[: match.start()]
    is_first = not before.strip() or before.rstrip()[-1] in ".:!?"
    has_capital = chunk[1:] != chunk[1:].lower() or not (
        is_first or chunk[0] == chunk[0].lower()
    )
    return has_capital or not chunk.isalpha()


def _mask_spans(
    text: str, spans: Iterable[tuple[int, int]], merge: bool = False
) -> str:
    """Return a text with a mask in place of each span, whatever their order.

    Spans may overlap. With `merge`, two masks with only stop words or signs between
    them become one.
    """
    parts: list[str] = []
    masked_end = 0
    for start, end in sorted(spans):
        if end <= masked_end:
            continue
        between = text[masked_end : max(start, masked_end)]
        # Else the last mask stands for this span, too.
        if not (merge and parts) or _content_words(between):
            parts += [between, MASK]
        masked_end = end
    return "".join([*parts, text[masked_end:]])
