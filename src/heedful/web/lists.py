"""What the lists of the pages have alike: facets, orders, tables, and their addresses.

`list.html.j2` shows a page with these facts: `heading`, `search`, `facets`, `answer`,
`parts`, `tables`, `nothing`, `next`. The rows of a table are the fact with the name of
its kind, and a macro of `rows.html.j2` with this name draws each of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.errors import InvalidInput
from heedful.web.site import Visit

WITHOUT = "-"  # in an address, for what has no value
MAX_PAGE_ROWS = 50  # of a list on a page
MAX_FACET_VALUES = 40
MAX_OPEN_VALUES = 6  # the others of a facet are folded away
INNER_FUNCTION = ".<locals>."  # in the qualified name of a function
Plain = dict[str, Any]


def facet(
    visit: Visit,
    name: str,
    title: str,
    counts: Counter[str],
    *,
    labels: Mapping[str, str] | None = None,
) -> Plain:
    """Return a facet: its values with counts, most frequent first, each as an address.

    The address of a value turns it on; that of the chosen one turns it off. What has no
    value comes last. A facet that cannot part the rows has no values. `number` counts
    its values, of which `MAX_FACET_VALUES` are shown; `open` of them are not folded
    away.
    """
    chosen = visit.query.get(name, "")
    frequent = counts.most_common(MAX_FACET_VALUES)
    # Many values with one row each part them no better than the list does.
    is_thin = len(counts) > MAX_OPEN_VALUES and frequent[0][1] == 1
    if (len(frequent) == 1 or is_thin) and not chosen:
        frequent = []
    frequent.sort(key=lambda pair: pair[0] == WITHOUT)
    if chosen and chosen not in counts:
        frequent.append((chosen, 0))
    values = [
        {
            "value": value,
            "label": (labels or {}).get(value, value),
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
        "open": MAX_OPEN_VALUES,
    }


def orders(visit: Visit, labels: Mapping[str, str]) -> Plain:
    """Return the orders of a list as a facet without counts; the first needs no name.

    Raises InvalidInput if an address asks for another one.
    """
    first = next(iter(labels))
    sort = visit.query.get("sort") or first
    if sort not in labels:
        raise InvalidInput("sort", sort, ", ".join(labels))
    addresses = {name: name for name in labels} | {first: ""}
    values = [
        {
            "value": name,
            "label": label,
            "chosen": name == sort,
            "link": visit.turned(sort=addresses[name]),
        }
        for name, label in labels.items()
    ]
    number = len(values)
    return {
        "name": "sort",
        "title": "Order",
        "values": values,
        "number": number,
        "open": number,
    }


def order_of(orders: Plain) -> str:
    """Return the order that a list has."""
    return next(str(order["value"]) for order in orders["values"] if order["chosen"])


def table(kind: str, columns: Sequence[str], title: str = "", next: str = "") -> Plain:
    """Return a table of the rows that are the fact `kind` of a page.

    The first column is for words. A name that begins with "#" is of a column of
    numbers. At most five columns fit. `next` is the address of its older rows.
    """
    heads = [
        {"title": name.removeprefix("#"), "number": name.startswith("#")}
        for name in columns
    ]
    return {"kind": kind, "columns": heads, "title": title, "next": next}


def name_keys(values: Sequence[str]) -> dict[str, str]:
    """Return what is shown of each value: of a function in a function, its name.

    Two functions of one name have their whole names, and so has one without a name,
    such as a `<lambda>`: they say where it is from.

    >>> name_keys(["app.main.<locals>.count", "app.count"])
    {'app.main.<locals>.count': 'count', 'app.count': 'app.count'}
    >>> name_keys(["app.main.<locals>.<lambda>"])
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


def unknown_filters(query: Iterable[str], *names: str) -> str:
    """Return what an address asks a list for besides these names; "" if nothing.

    Every list has a project, an order and a place in its address, too.

    >>> unknown_filters(["q", "project"], "text", "state")
    'This page has no filter q. It has: text, state.'
    """
    others = ", ".join(sorted({*query} - {"project", "sort", "cursor", *names}))
    sentence = f"This page has no filter {others}. It has: {', '.join(names)}."
    return sentence if others else ""
