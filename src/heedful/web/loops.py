"""The pages about loops: what needs a person, and the list."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from weakref import WeakKeyDictionary

from heedful.errors import (
    InvalidInput,
    NotFound,
    StoreError,
    UsageError,
)
from heedful.lessons.holdout import FIRST_LOOPS_WITHOUT_HOLDOUT
from heedful.lessons.scope import name_tenant
from heedful.loop.record import DOUBT_STATES
from heedful.memory.memory import Memory
from heedful.store import (
    episodes as episode_store,
    ladders,
    lessons,
    reminders,
)
from heedful.store.connection import Row
from heedful.store.loop_names import find_loop
from heedful.store.loop_texts import LoopMatches, search_loops
from heedful.store.store import Store
from heedful.web import figures, inbox, recent
from heedful.web.begin import begin
from heedful.web.days import read_home
from heedful.web.facets import (
    FACETS,
    SORTS,
    name_keys,
    narrow,
    sort_loops,
    unknown_filters,
)
from heedful.web.recent import RecentLoop
from heedful.web.runs import degraded_runs
from heedful.web.site import (
    READING,
    Document,
    SitePage,
    Visit,
    page_links,
)
from heedful.web.summaries import found_words, summaries

MAX_LIST_ROWS = 50  # rows of a list
LOOP_STATES = ("open", "passed", *DOUBT_STATES, "stopped")
CURSOR_PATTERN = re.compile(
    r"(?P<n>[0-9]{1,16})(@(?P<changed>[0-9]{1,12}(\.[0-9]{1,12})?))?"
)
MADE_UP_ID_PART = re.compile(r"[0-9a-f-]{6,36}")
MAX_HOME_ROWS = 5  # rows of each list on the first page
NEED_DAYS = 7  # how long a stopped loop or a degraded run needs a person
MAX_GROUPED_ERRORS = 100  # different errors of reflections, which it groups
MAX_COUNTED_REVIEWS = 100  # lessons that hurt, which the first page counts
# The calls that memory saved take 1.5 s to count in 100,000 loops with three lessons
# each, so a process counts those of so many loops once in ten minutes.
MAX_SAVED_AGE_SECONDS = 600.0
MIN_CACHED_LOOPS = 2_000
# When the calls saved were counted, and their figures, by the memory of a scope.
_saved_calls = WeakKeyDictionary[Memory, tuple[float, Document]]()
# The newest loops as they were read last, by number, by the memory of a scope.
_recent_loops = WeakKeyDictionary[Memory, Mapping[int, RecentLoop]]()


async def troubled_queues(visit: Visit) -> list[Document]:
    """Return how many jobs failed or stalled in each queue.

    If the queue does not answer, one row says why.

    Only the person at this machine sees more than the name of the error, because its
    text says where the store is.
    """
    try:
        workload = await visit.caller.setup.work.workload()
    except StoreError as error:
        reason = type(error).__name__
        if visit.is_here:
            reason = str(error)
        return [{"queue": reason, "state": "failed", "number": 0, "command": ""}]
    commands = {
        "failed": name_tenant("heedful jobs", visit.caller.scope.tenant),
        "stalled": "heedful worker",
    }
    return [
        {**asdict(depth), "command": commands[depth.state]}
        for depth in workload.depths
        if depth.state in commands
    ]


async def saved_calls(store: Store, memory: Memory) -> Document:
    """Return the model calls that a memory saved, as `figures.saved_calls` does.

    Those of many loops are counted again after `MAX_SAVED_AGE_SECONDS`.
    """
    counted_at, saved = _saved_calls.get(memory, (0.0, Document()))
    is_fresh = time.monotonic() - counted_at < MAX_SAVED_AGE_SECONDS
    if is_fresh and saved and saved["ended"] >= MIN_CACHED_LOOPS:
        return saved

    saved = await store.read(memory.scope, figures.saved_calls, memory.holdout)
    _saved_calls[memory] = time.monotonic(), saved
    return saved


async def home(visit: Visit) -> Document:
    """Show what needs a person, and how the loops of the last days went."""
    read = visit.caller.read
    texts, cases = await inbox.next_cases(visit, MAX_HOME_ROWS)
    failing, unjudged = await read(figures.failing)
    stopping = await read(figures.stopping)
    overrides = await read(figures.overrides)
    week = time.time() - NEED_DAYS * figures.FIGURE_DAY_SECONDS
    (stopped,) = await read(figures.rows, "stopped_since", since=week)
    numbers, _ = await read(
        figures.listed, MAX_HOME_ROWS, state="stopped", since=week, order="changed"
    )
    unsolved = await read(summaries, numbers)
    broken = await read(figures.rows, "broken", limit=MAX_COUNTED_REVIEWS)
    broken_loops = await read(summaries, [row["n"] for row in broken[:MAX_HOME_ROWS]])
    failures = await read(figures.rows, "failures", limit=MAX_GROUPED_ERRORS)
    episodes = await read(episode_store.counts)
    jobs = await troubled_queues(visit)
    reviews = await read(figures.rows, "reviews", limit=MAX_COUNTED_REVIEWS)
    ladder_figures = await read(ladders.figures)
    reminder_figures = await read(reminders.figures)
    facts = await read_home(visit.caller.setup.store, visit.caller.scope)
    degraded = await degraded_runs(visit, week)
    # Shares of few loops say nothing: their numbers and the loops themselves do.
    few = facts["loops"] < FIRST_LOOPS_WITHOUT_HOLDOUT
    first_loops: list[Document] = []
    if few:
        numbers, _ = await read(figures.listed, MAX_HOME_ROWS)
        first_loops = await read(summaries, numbers)
    saved = await saved_calls(visit.caller.setup.store, visit.caller.memory)
    needs = {
        "texts": texts,
        "stopped": stopped["number"],
        "runs": len(degraded),
        "broken": len(broken),
        "reflections": episodes.get("failed", 0),
        "lessons": len(reviews),
        "jobs": sum(queue["number"] or 1 for queue in jobs),
        "overrides": len(overrides),
    }

    return {
        "needs": {**needs, "number": sum(needs.values())},
        "jobs": jobs,
        "reviews": [dict(row) for row in reviews[:MAX_HOME_ROWS]],
        "waiting": cases,
        "texts": texts,
        "degraded": degraded[:MAX_HOME_ROWS],
        "unsolved": unsolved,
        "broken": broken_loops,
        "failed": group_errors(failures, visit.may("read"))[:MAX_HOME_ROWS],
        "overrides": overrides,
        "failing": failing,
        "unjudged": unjudged,
        "stopping": stopping,
        "ladders": asdict(ladder_figures),
        "reminders": asdict(reminder_figures),
        "reminded": reminder_figures.total.words,
        "overhead": str(ladder_figures.overhead),
        "lessons": await read(lessons.count),
        "begin": begin(visit),
        "saved": saved,
        "projects": await project_names(visit),
        "need_days": NEED_DAYS,
        "judged": figures.MAX_JUDGED_LOOPS,
        "newest": figures.MAX_FIGURE_LOOPS,
        "few": few,
        "first_loops": first_loops,
        "compared_from": FIRST_LOOPS_WITHOUT_HOLDOUT,
        **facts,
    }


async def project_names(visit: Visit) -> list[str]:
    """Return the names of the projects that the key may see."""
    names = set(visit.caller.key.projects)
    if not names:
        scopes = await visit.caller.read(lessons.projects)
        names = {visit.caller.scope.project, *(scope.project for scope in scopes)}
    return sorted(names)


def group_errors(failures: Sequence[Row], reviews: bool) -> list[Document]:
    """Return the errors of reflections with their numbers, the most frequent first.

    What stands behind a colon may be words of others: only who `reviews` sees it.
    """
    groups = dict[str, Document]()
    for row in failures:
        error = row["error"]
        if not reviews:
            error = error.partition(":")[0]
        group = groups.setdefault(error, {"error": error, "number": 0, "at": 0.0})
        group["number"] += row["number"]
        group["at"] = max(group["at"], row["last"])
        group.setdefault("digest", row["digest"])
    return sorted(groups.values(), key=lambda group: -group["number"])


def since(visit: Visit) -> float:
    """Return the start of the last `days` of the address; 0.0 means no limit."""
    days = visit.number("days", most=10_000)
    if not days:
        return 0.0
    return time.time() - days * figures.FIGURE_DAY_SECONDS


async def recent_loops(visit: Visit) -> recent.Recent:
    """Return the newest loops.

    Those that have not changed since they were read last are not read again.
    """
    memory = visit.caller.memory
    seen_loops = _recent_loops.get(memory, {})
    newest = await visit.caller.read(recent.read_recent, seen_loops)
    _recent_loops[memory] = {loop.n: loop for loop in newest.loops}
    return newest


async def loops(visit: Visit) -> Document:
    """Show the loops that fit the filters, what they used, and their facets.

    Totals, facets and all orders but two are those of the newest loops: the list by the
    last change, and by the begin, goes on to the oldest loop.
    """
    names = [*(facet.name for facet in FACETS), "text", "days"]
    filters = {name: visit.query.get(name, "") for name in names}
    if filters["state"] not in ("", *LOOP_STATES):
        raise InvalidInput("state", filters["state"], ", ".join(LOOP_STATES))
    newest = await recent_loops(visit)
    matches = await _matches(visit, filters["text"])
    numbers = None
    if matches is not None:
        numbers = frozenset(matches.loops)

    narrowed = narrow(newest.loops, filters, numbers=numbers, since=since(visit))
    # No index finds the loops of a search by their last change.
    listed_orders = ["-changed", "-began"]
    if matches is not None:
        listed_orders.remove("-changed")
    sort = visit.query.get("sort") or listed_orders[0]
    if sort not in listed_orders:
        rows, cursor = await _sorted_page(visit, narrowed.loops, sort)
    else:
        if matches is not None and visit.query.get("cursor"):
            matches = await _matches(visit, filters["text"], visit.number("cursor"))
        rows, cursor = await _list_page(
            visit,
            filters,
            newest.loops,
            order=sort.removeprefix("-"),
            matches=matches,
        )
    if filters["text"].strip():
        visit.following = await loop_called(visit, filters["text"], rows)
        snippets = await visit.caller.read(found_words, rows, filters["text"])
        for row in rows:
            row.update(snippets.get(row["n"], {"found": ""}))

    return {
        "loops": rows,
        "key_names": name_keys([loop.memory_key for loop in newest.loops]),
        "filters": filters,
        "unknown": unknown_filters(visit.query, *names),
        "sort": sort,
        "is_whole": sort in listed_orders,
        "sorts": sort_links(visit, sort, SORTS),
        "facets": _facet_links(visit, narrowed.facets),
        "chips_held": _chips(visit, filters),
        "totals": recent.count_loops(narrowed.loops),
        "window": len(newest.loops),
        "more_loops": newest.more,
        "too_large": newest.too_large,
        **page_links(visit, cursor),
    }


async def _sorted_page(
    visit: Visit, fitting: Sequence[RecentLoop], sort: str
) -> tuple[list[Document], str]:
    """Return a page of the loops that fit, in an order, and where the next begins."""
    begin = visit.number("cursor")
    end = begin + MAX_LIST_ROWS
    page = sort_loops(fitting, sort)[begin:end]
    usage = {loop.n: loop.used for loop in page}
    rows = await visit.caller.read(summaries, list(usage), usage)
    return rows, str(end) if end < len(fitting) else ""


async def loop_called(visit: Visit, text: str, rows: Sequence[Document]) -> str:
    """Return the address of the loop or run whose id a searched text is; "" if none.

    A part is enough of an id that heedful made up. Another id may be a word, so it
    counts only if the search found nothing else: at most one of the `rows`.
    """
    name = text.strip()
    if not name:
        return ""
    try:
        id = await visit.caller.read(find_loop, name)
    except (NotFound, UsageError):
        return ""
    is_named = MADE_UP_ID_PART.fullmatch(name) or (id == name and len(rows) < 2)
    return visit.link(f"/loops/{id}") if is_named else ""


async def _matches(visit: Visit, text: str, before: int = 0) -> LoopMatches | None:
    """Return the newest loops with a text, older than the number `before` if given.

    Returns None without a text: all loops fit then.
    """
    if not text.strip():
        return None

    return await visit.caller.read(search_loops, text, before)


async def _list_page(
    visit: Visit,
    filters: Mapping[str, str],
    recent_ones: Sequence[RecentLoop],
    *,
    order: str,
    matches: LoopMatches | None,
) -> tuple[list[Document], str]:
    """Return a page of the loops that fit, in an order, and where the next begins."""
    numbers, end = await visit.caller.read(
        figures.listed,
        MAX_LIST_ROWS,
        order=order,
        state=filters["state"],
        rule=filters["rule"],
        key=filters["key"],
        model=filters["model"],
        policy=filters["policy"],
        noted=bool(filters["notes"]),
        matches=matches,
        tag=filters["check"],
        below=_place_of(visit),
        since=since(visit),
    )
    usage = {loop.n: loop.used for loop in recent_ones}
    cursor = ""
    if end != figures.LIST_END:
        cursor = f"{end.n}@{end.changed!r}" if end.changed else str(end.n)
    return await visit.caller.read(summaries, numbers, usage), cursor


def _place_of(visit: Visit) -> figures.ListPlace:
    """Return where the list of an address goes on. Raises InvalidInput.

    Its cursor is the number of a loop, perhaps with the time of its last change.
    """
    cursor = visit.query.get("cursor", "")
    if not cursor:
        return figures.LIST_BEGIN
    match = CURSOR_PATTERN.fullmatch(cursor)
    if match is None:
        raise InvalidInput("cursor", cursor, "that of a page of this list")
    return figures.ListPlace(float(match["changed"] or 0), int(match["n"]))


def sort_links(visit: Visit, sort: str, names: Iterable[str]) -> dict[str, Document]:
    """Return the address of each order, and which one the list has now.

    The largest come first, and after another click the smallest.
    """
    links = {}
    for name in names:
        link = visit.turned(sort=f"-{name}")
        order = ""
        if sort == f"-{name}":
            link = visit.turned(sort=name)
            order = "descending"
        elif sort == name:
            link = visit.turned(sort="")
            order = "ascending"
        links[name] = {"link": link, "order": order}
    return links


def _facet_links(visit: Visit, facets: Sequence[Document]) -> list[Document]:
    """Return the facets, each value with the address that turns it on, or off."""
    for facet in facets:
        names = name_keys([value["value"] for value in facet["values"]])
        for value in facet["values"]:
            if facet["name"] == "key":
                value["name"] = names[value["value"]]
            chosen = "" if value["chosen"] else value["value"]
            value["link"] = visit.turned(**{facet["name"]: chosen})
    return list(facets)


def _chips(visit: Visit, filters: Mapping[str, str]) -> list[Document]:
    """Return the filters that hold, each with the address without it."""
    titles = {facet.name: facet.title for facet in FACETS}
    return [
        {
            "name": name,
            "title": titles.get(name, name),
            "value": value,
            "without": visit.turned(**{name: ""}),
        }
        for name, value in filters.items()
        if value
    ]


PAGES = (
    SitePage(address="/", template="home", title="Home", make=home, may=READING),
    SitePage(address="/home", template="home", title="Home", make=home, may=READING),
    SitePage(
        address="/loops",
        template="loops",
        title="Loops",
        make=loops,
        may=READING,
    ),
)
