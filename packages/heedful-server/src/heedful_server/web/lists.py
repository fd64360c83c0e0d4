"""What the pages with lists share: facets, tables, and their addresses.

`list.html.j2` shows a page with these facts: `heading`, `search`, `facets`, `answer`,
`parts`, `tables`, `nothing`, `next`. The rows of a table are the fact that has the name
of its `kind`, and the macro of this name in `rows.html.j2` draws each row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from heedful.store import calls
from heedful.validation import MAX_LISTED_ITEMS, MAX_SHOWN_ROWS, Document
from heedful_server.web.site import Visit

WITHOUT = "-"  # in an address, for what has no value
INNER_FUNCTION = ".<locals>."  # in the qualified name of a function


def facet(
    visit: Visit,
    name: str,
    title: str,
    counts: Counter[str],
    *,
    labels: Mapping[str, str] = {},
) -> Document:
    """Return a facet: a filter with the values of one field of the rows.

    `counts` says how many rows have each value. The most frequent values come first, at
    most `MAX_SHOWN_ROWS`, and `WITHOUT` last. Each has a `link` to the list with only
    its rows; that of the chosen value takes the filter away. If none is chosen, there
    are no values where all rows have the same one, or where there are more than
    `MAX_LISTED_ITEMS` with one row each. `number` counts all values; the page shows the
    first `open` and folds the others.
    """
    chosen = visit.query_text(name)
    frequent = counts.most_common(MAX_SHOWN_ROWS)
    # Many values with one row each say no more than the list itself.
    is_thin = len(counts) > MAX_LISTED_ITEMS and frequent[0][1] == 1
    if (len(frequent) == 1 or is_thin) and not chosen:
        frequent = []
    frequent.sort(key=lambda pair: pair[0] == WITHOUT)
    if chosen and chosen not in counts:
        frequent.append((chosen, 0))
    values = [
        {
            "value": value,
            "label": labels.get(value, value),
            "count": count,
            "chosen": value == chosen,
            "link": visit.turned(**{name: "" if value == chosen else value}),
        }
        for value, count in frequent
    ]
    return {
        "name": name,
        "title": title,
        "values": values,
        "number": len(counts),
        "open": MAX_LISTED_ITEMS,
    }


def table(
    kind: str, columns: Sequence[str], title: str = "", older: str = ""
) -> Document:
    """Return the head of a table.

    Its rows are the fact of the page with the name `kind`. `columns` are titles, at
    most five. A "#" before a title means a column of numbers, which the first is not.
    `older` is the address of the page with older rows.
    """
    heads = [
        {"title": name.removeprefix("#"), "number": name.startswith("#")}
        for name in columns
    ]
    return {"kind": kind, "columns": heads, "title": title, "older": older}


def short_names(values: Sequence[str]) -> dict[str, str]:
    """Return the name to show for each value, such as the qualified name of a function.

    A function inside a function is shown by its own name. The whole value is shown if
    two would have the same short name, or if the function has none, as a `<lambda>`.

    >>> short_names(["app.main.<locals>.count", "app.count"])
    {'app.main.<locals>.count': 'count', 'app.count': 'app.count'}
    >>> short_names(["app.main.<locals>.<lambda>"])
    {'app.main.<locals>.<lambda>': 'app.main.<locals>.<lambda>'}
    """
    short = {}
    for value in values:
        _, is_inner, rest = value.rpartition(INNER_FUNCTION)
        short[value] = rest if is_inner and rest and rest[0] != "<" else value
    counts = Counter(short.values())
    return {
        value: name if counts[name] == 1 else value for value, name in short.items()
    }


async def known_failures(visit: Visit, limit: int) -> list[Document]:
    """Return the calls that agents are warned of; none without review rights."""
    if not visit.may("read"):
        return []
    return [
        {**asdict(failure), "told": failure.told}
        for failure in await visit.caller.read(calls.failures, limit)
    ]


def unknown_filters(query: Iterable[str], *names: str) -> str:
    """Return the message for an address with filters that the list does not have.

    `query` are the names in the address, and `names` the filters of the list; every
    list has `project`, `sort` and `cursor`, too. Returns "" if all are known.

    >>> unknown_filters(["q", "project"], "text", "state")
    'This page has no filter q. It has: text, state.'
    """
    others = ", ".join(sorted({*query} - {"project", "sort", "cursor", *names}))
    sentence = f"This page has no filter {others}. It has: {', '.join(names)}."
    return sentence if others else ""
