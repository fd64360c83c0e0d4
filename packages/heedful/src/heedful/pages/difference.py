"""What changed between two texts: by line, with the changed words marked.

What both texts begin and end with is found first, so a small change costs little,
wherever it stands. A comparison of the rest is bounded: a larger part is shown whole,
first the old one and then the new one, and is never called unchanged.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, pairwise, takewhile
from typing import NamedTuple

# A part of a text that was compared: "same", "gone" or "new", or "place" for the head
# of a section of a diff; what is wrong with the part, or ""; and its text.
Part = tuple[str, str, str]
# A faulty place: its first character, the first behind it, and what is wrong.
Span = tuple[int, int, str]
# A step from one text to another: its kind, as `SequenceMatcher` names it, the first
# piece and the first behind it in the old text, and the same in the new text.
Step = tuple[str, int, int, int, int]
TOO_LARGE = "too large"  # the kind of a step that was not compared
# The words or lines of both texts that are compared: all equal, 800 take .1 s.
MAX_COMPARED_PIECES = 800
MIN_FOLDED_LINES = 3  # fewer unchanged lines are shown

# A word such as `high` or `1,200.5`, white space, or one sign.
_DIFF_WORD_PATTERN = re.compile(r"\w+(?:[.,]\w+)*|\s+|[^\w\s]")


class Difference(NamedTuple):
    """The parts of a text that was compared with another, and what was left out.

    `unaligned` counts changed lines that were too many to be compared, `unshown` the
    characters that were not read.
    """

    parts: Sequence[Part]
    unaligned: int = 0
    unshown: int = 0


def marked(before: str, after: str, spans: Sequence[Span] = ()) -> list[Part]:
    """Return the parts of two texts: what is gone, what is new, and what is the same.

    The texts are compared word by word; if too many differ, all of them are gone and
    new. Each of the `spans` is a faulty place in `after`.

    >>> marked("high", "P1"), marked("a b", "a b", [(2, 3, "late")])
    ([('gone', '', 'high'), ('new', '', 'P1')], [('same', '', 'a '), ('same', 'late',
    'b')])
    """
    old = _DIFF_WORD_PATTERN.findall(before)
    new = _DIFF_WORD_PATTERN.findall(after)
    return list(_parts(old, new, _steps(old, new), spans))


def difference(
    before: str | None, after: str, spans: Sequence[Span] = ()
) -> Difference:
    """Compare two texts by line, and by word within changed lines.

    Unchanged lines without a fault are folded. Without `before`, there is no
    comparison.
    """
    if before is None:
        return Difference(list(_unchanged(after, spans)))

    old = before.splitlines(keepends=True)
    new = after.splitlines(keepends=True)
    parts: list[Part] = []
    unaligned = 0
    begin = 0  # the first character of a step in `after`
    steps = list(_steps(old, new))
    for kind, old_first, old_end, new_first, new_end in steps:
        lines = new[new_first:new_end]
        text = "".join(lines)
        inner_spans = [
            (first - begin, behind - begin, why) for first, behind, why in spans
        ]
        begin += len(text)

        old_text = "".join(old[old_first:old_end])
        if kind == TOO_LARGE:
            unaligned += old_end - old_first + len(lines)
            parts += _replaced(old_text, text, inner_spans)
        elif kind != "equal":
            parts += _changed(old_text, text, inner_spans)
        else:
            parts += _folded(
                lines,
                inner_spans,
                is_first=new_first == 0,
                is_last=new_end == len(new),
            )
    return Difference(parts, unaligned)


def _steps(old: Sequence[str], new: Sequence[str]) -> Iterator[Step]:
    """Yield the steps from one sequence to another.

    If what is left between what is the same at both ends would take too long to
    compare, it is one step, which replaces all of it.
    """
    shorter = min(len(old), len(new))
    head = _count_same(old, new, shorter)
    tail = _count_same(old[::-1], new[::-1], shorter - head)
    old_end = len(old) - tail
    new_end = len(new) - tail
    old_middle = old[head:old_end]
    new_middle = new[head:new_end]

    if head:
        yield ("equal", 0, head, 0, head)
    if len(old_middle) + len(new_middle) <= MAX_COMPARED_PIECES:
        middle = SequenceMatcher(None, old_middle, new_middle, autojunk=False)
        for kind, old_first, old_last, new_first, new_last in middle.get_opcodes():
            yield (
                kind,
                head + old_first,
                head + old_last,
                head + new_first,
                head + new_last,
            )
    else:
        yield (TOO_LARGE, head, old_end, head, new_end)
    if tail:
        yield ("equal", old_end, len(old), new_end, len(new))


def _count_same(old: Sequence[str], new: Sequence[str], limit: int) -> int:
    """Return how many pieces at the beginning of two sequences are the same."""
    return sum(
        1 for _ in takewhile(lambda place: old[place] == new[place], range(limit))
    )


def _parts(
    old: Sequence[str], new: Sequence[str], steps: Iterator[Step], spans: Sequence[Span]
) -> Iterator[Part]:
    """Yield the parts of the steps, cut where a faulty place begins or ends."""
    begin = 0  # the first character of a step in the new text
    for kind, old_first, old_end, new_first, new_end in steps:
        if kind != "equal" and old_first < old_end:
            yield ("gone", "", "".join(old[old_first:old_end]))

        text = "".join(new[new_first:new_end])
        end = begin + len(text)
        cuts = {begin, end}
        for first, behind, _ in spans:
            cuts |= {place for place in (first, behind) if begin < place < end}

        for low, high in pairwise(sorted(cuts)):
            faults = [why for first, behind, why in spans if first <= low < behind]
            part_kind = "same" if kind == "equal" else "new"
            yield (part_kind, "; ".join(faults), text[low - begin : high - begin])

        begin = end


def _unchanged(text: str, spans: Sequence[Span]) -> Iterator[Part]:
    """Yield a text as it is, cut where a faulty place begins or ends."""
    only_step: Step = ("equal", 0, 1, 0, 1)
    yield from _parts([text], [text], iter([only_step]), spans)


def _changed(before: str, after: str, spans: Sequence[Span]) -> Iterator[Part]:
    """Yield the parts of changed lines: by word if half of the words are the same."""
    old_words = set(before.split())
    new_words = set(after.split())
    words = max(len(old_words), len(new_words))
    if 2 * len(old_words & new_words) >= words:
        yield from marked(before, after, spans)
        return

    yield from _replaced(before, after, spans)


def _replaced(before: str, after: str, spans: Sequence[Span]) -> Iterator[Part]:
    """Yield a text as gone, and another one as new."""
    step = ("replace", 0, len(before), 0, len(after))
    yield from _parts(before, after, iter([step]), spans)


def _folded(
    lines: Sequence[str], spans: Sequence[Span], *, is_first: bool, is_last: bool
) -> Iterator[Part]:
    """Yield unchanged lines; those far from a change and without a fault are folded.

    The first step of a text has no change before it, and the last one none behind it.
    """
    # The first character of each line, and the end of the last one.
    begins = [0, *accumulate(map(len, lines))]
    numbers = set[int]()
    if not is_first:
        numbers.add(0)
    if not is_last:
        numbers.add(len(lines) - 1)
    for first, behind, _ in spans:
        first_line = max(0, bisect_right(begins, first) - 1)
        numbers |= set(range(first_line, bisect_left(begins, behind)))

    run_begin = 0
    for number in sorted(numbers):
        yield from _fold(lines[run_begin:number])
        begin = begins[number]
        inner = [(first - begin, behind - begin, why) for first, behind, why in spans]
        yield from _unchanged(lines[number], inner)
        run_begin = number + 1
    yield from _fold(lines[run_begin:])


def _fold(lines: Sequence[str]) -> Iterator[Part]:
    """Yield unchanged lines as one line that counts them, unless they are few."""
    if len(lines) >= MIN_FOLDED_LINES:
        yield ("place", "", f"… {len(lines):,} unchanged lines …\n")
    elif lines:
        yield ("same", "", "".join(lines))
