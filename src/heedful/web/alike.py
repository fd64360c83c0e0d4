"""Near-equal texts as one text: they differ in one word, and none negates another.

Home, Quarantine and Search show each group of them as one row. Pure.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from heedful.lessons.consolidate import particulars

Item = TypeVar("Item")
MAX_DIFFERING_WORDS = 3  # those that the name of a group has, of more than four
# Near-equal texts have at least as many words in common, and at most a few dozen.
ALIKE_WORDS = range(4, 60)


def group_alike(
    items: Sequence[Item],
    text_of: Callable[[Item], str],
    kind_of: Callable[[Item], object],
) -> list[list[Item]]:
    """Return the items of one kind with near-equal texts together, in their order.

    >>> group_alike(["Set the cache first", "No", "Set the queue first"], str, type)
    [['Set the cache first', 'Set the queue first'], ['No']]
    """
    keys_of = [_keys(text_of(item), kind_of(item)) for item in items]
    number_of = Counter(chain.from_iterable(keys_of))
    groups: defaultdict[object, list[Item]] = defaultdict(list)
    for item, keys in zip(items, keys_of, strict=True):
        groups[max(keys, key=number_of.__getitem__)].append(item)
    return list(groups.values())


def _keys(text: str, kind: object) -> list[tuple[object, ...]]:
    """Return what near-equal texts may share with a text: all, or all but one word."""
    words = text.split()
    keys: list[tuple[object, ...]] = [(kind, text)]
    if len(words) in ALIKE_WORDS:
        negations = tuple(particulars(text)["negation"])
        keys += [
            (kind, negations, *words[:place], None, *words[place + 1 :])
            for place in range(len(words))
        ]
    return keys


def name_alike(texts: Sequence[str]) -> str:
    """Return one text for near-equal ones of equally many words.

    >>> name_alike([f"Set the {word}, first" for word in ("cache", "queue", "proxy")])
    'Set the cache, queue and proxy, first'
    """
    if len(set(texts)) == 1:
        return texts[0]
    return " ".join(map(_name_words, zip(*map(str.split, texts), strict=True)))


def _name_words(column: Sequence[str]) -> str:
    """Return the different words at one place of texts, the first of many."""
    end = re.split(r"\w", column[0])[-1]
    words = [word.removesuffix(end) for word in dict.fromkeys(column)]
    if len(words) > MAX_DIFFERING_WORDS + 1:
        words[MAX_DIFFERING_WORDS:] = [f"{len(words) - MAX_DIFFERING_WORDS:,} more"]
    start = ", ".join(words[:-1])
    return f"{start} and {words[-1]}{end}" if start else column[0]
