"""Every number on every page is one that the terminal has, in its JSON.

One database has loops, stages, runs, traces, sessions of a coding agent and a trial;
another is that of the recorded demo. A page may round, write a share in percent, count
rows and add them up. Ages, dates and times of day, ids, and what stands in code are no
figures.
"""

import asyncio
import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any, Literal

import pytest

import heedful
from heedful import Finding, Memory, Pipeline, Scope, Trial
from heedful.lessons.holdout import Shown
from heedful.lessons.lesson import Outcome
from heedful_server.setup import Setup
from tests.cli.support import Desk
from tests.engines import opened
from tests.hooks.support import run_event
from tests.service.support import Api
from tests.web.support import DIGESTS, Browser, browsing, end_loop, words_of

SCOPE = Scope("acme", "main")
DATABASE = "heedful.db"
SETTINGS = {
    "HEEDFUL_DB": DATABASE,
    "HEEDFUL_TENANT": SCOPE.tenant,
    "HEEDFUL_PROJECT": SCOPE.project,
    "HEEDFUL_EMBEDDER": "none",
}
ANSWERS = {
    "a": ("P1",),
    "b": ("urgent", "P2"),
    "c": ("high", "higher", "P0"),
    "d": ("urgent", "very urgent", "most urgent", "urgent", "now", "soon"),
}
KINDS = "aabbbccdddd"
# A run of an agent ends so, in the words of its format.
OUTCOMES = ("failure", "error", "timeout", "failure", "success")
# Loops that were shown memory or not, whether they were right at once, their calls.
COMPARED = [(n % 2 == 0, n % 2 == 0 or n % 5 == 0, 1 + n % 2 * 2) for n in range(81)]
SESSIONS = ("mon", "tue", "wed", "thu", "fri", "sat")
FAILED_CALL = {"tool_name": "Bash", "tool_input": {"command": "npm run tests"}}
FAILURE = {**FAILED_CALL, "error": 'Exit code 1\nnpm error Missing script: "tests"'}
FIXED_CALL = {"tool_name": "Bash", "tool_input": {"command": "npm run test"}}
FIX = {**FIXED_CALL, "tool_response": {"stdout": "12 passed"}}


def severity(answer: str) -> Iterator[Finding]:
    if not re.fullmatch("P[0-3]", answer):
        yield Finding("severity", f"unknown severity '{answer}'", fix="P0 to P3")


async def run_loops(memory: Memory) -> None:
    """Run loops that pass at once, later or never; a person corrects one of them."""
    for number, kind in enumerate(KINDS):
        answers = iter(ANSWERS[kind])
        await heedful.run(
            f"Bug {kind}{kind}: checkout {kind} hangs",
            generate=lambda task, hint, answers=answers: next(answers),
            checks=[severity],
            memory=memory,
            memory_key="triage",
            store=memory.store,
            id=f"loop-{kind}-{number}",
        )
    stopped = f"loop-d-{len(KINDS) - 1}"
    await memory.correct(stopped, "P3", by="ann", why="nobody waits")


def has_rows(output: Any) -> Iterator[Finding]:
    if "0.3" in output:
        yield Finding("rows", "the MAE is not 0.3", span=(11, 14))


async def run_pipelines(
    memory: Memory, texts: Sequence[str], policy: Literal["halt", "continue"]
) -> None:
    """Run a pipeline of three stages, of which the second one is judged."""
    pipeline = Pipeline(
        "forecast",
        store=memory.store,
        memory=memory,
        scope=SCOPE,
        progress=False,
        on_exhausted=policy,
    )
    answers = iter(texts)
    pipeline.stage(name="load")(lambda state: {"rows": 365})
    pipeline.stage(name="train", checks=[has_rows], retries=2)(
        lambda state: next(answers)
    )
    pipeline.stage(name="publish")(lambda state: "done")
    await pipeline.run({})


async def fill(database: str) -> None:
    """Store loops, runs of a pipeline and a trial."""
    memory = Memory(database, SCOPE, holdout=0.3)
    await run_loops(memory)
    good = "The MAE is 0.2."
    bad = "The MAE is 0.3."
    for answers in ((good,), (bad, good), (good,)):
        await run_pipelines(memory, answers, "halt")
    await run_pipelines(memory, (bad, bad, bad), "halt")
    await run_pipelines(memory, (bad, bad, bad), "continue")
    trial = Trial("house rules", memory.store, SCOPE, holdout=0.4)
    for number in range(30):
        texts = await trial.offer(f"room/{number}", ["Amounts are in euros."])
        await trial.end(f"room/{number}", passed=bool(texts))
    for number, (is_shown, is_right, calls) in enumerate(COMPARED):
        errors = frozenset() if is_right else frozenset({DIGESTS[0]})
        end = Outcome(f"loop {number}", is_right, calls=calls, signatures=errors)
        await end_loop(memory.store, end, is_shown)
    await memory.store.close()


def import_traces(desk: Desk) -> Any:
    """Import runs of an agent; return what the command says of them."""
    events = [
        {"type": "user", "content": "make the build pass"},
        {"type": "tool_call", "tool": "sh", "call": "1", "arguments": {"command": "x"}},
        {"type": "tool_response", "tool": "sh", "call": "1", "error": "no target x"},
        {"type": "tool_call", "tool": "sh", "call": "2", "arguments": {"command": "y"}},
        {"type": "tool_response", "tool": "sh", "call": "2", "content": "built"},
    ]
    desk.tasks(
        (
            {"events": events, "outcome": outcome, "task": f"build {n}", "id": f"{n}"}
            for n, outcome in enumerate(OUTCOMES)
        ),
        name="traces.jsonl",
    )
    return desk.heedful("reflect traces.jsonl --json", **SETTINGS).json


def code_a_week(folder: Path) -> None:
    """Let a coding agent make the mistake of Monday on every day of a week.

    It is told on Tuesday, and from then on. On Saturday its session ends with the
    failure.
    """
    # Nothing is withheld at random: each day counts.
    more = {**SETTINGS, "HEEDFUL_DB": str(folder / DATABASE), "HEEDFUL_HOLDOUT": "0"}
    home = folder / "home"
    home.mkdir()

    def send(event: str, day: str, data: Mapping[str, Any]) -> None:
        done = run_event(folder, home, event, {"session_id": day, **data}, more)
        assert done.code == 0, done.err

    for number, day in enumerate(SESSIONS):
        send("SessionStart", day, {"source": "startup"})
        rule = "" if number else "Always use uv, never pip. "
        send("UserPromptSubmit", day, {"prompt": f"{rule}Run the tests"})
        send("PreToolUse", day, {**FAILED_CALL, "tool_use_id": f"{day}1"})
        send("PostToolUseFailure", day, {**FAILURE, "tool_use_id": f"{day}1"})
        if day != "sat":
            send("PreToolUse", day, {**FIXED_CALL, "tool_use_id": f"{day}2"})
            send("PostToolUse", day, {**FIX, "tool_use_id": f"{day}2"})
        send("SessionEnd", day, {"reason": "other"})


@dataclass(kw_only=True)
class Week:
    """Pages and a command line on one database."""

    browser: Browser
    desk: Desk
    settings: Mapping[str, str]
    reflected: Any = None
    documents: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)

    def says(self, line: str) -> Any:
        """Return what a command prints as JSON."""
        if line not in self.documents:
            done = self.desk.heedful(f"{line} --json", **self.settings)
            assert done.code in (0, 1), done.err
            self.documents[line] = done.json
        return self.documents[line]

    def page(self, path: str) -> str:
        """Return the HTML of a page."""
        if path not in self.pages:
            answer = self.browser.get(path)
            assert answer.status_code == 200, (path, answer.status_code)
            self.pages[path] = answer.text
        return self.pages[path]


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    folder = tmp_path_factory.mktemp("week")
    desk = Desk(folder)
    asyncio.run(fill(str(folder / DATABASE)))
    reflected = import_traces(desk)
    code_a_week(folder)
    with browsing(folder) as browser:
        browser.open(browser.api._all)
        yield Week(browser=browser, desk=desk, settings=SETTINGS, reflected=reflected)


# What a page leaves out of its figures: what is not text, and times.
UNREAD = re.compile(
    r"(?is)<(script|style|head|nav|dialog|svg|time|code|pre|form|textarea)\b.*?</\1>"
)
TIMES = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d:\d\d(?::\d\d)?|\d+ \w+ ago|\d+ (?:Jan|Feb|Mar|Apr|May|Jun"
    r"|Jul|Aug|Sep|Oct|Nov|Dec)\w*"
)
CONFIDENCE = "at least 95 % confidence"  # of each interval
MAX_SHOWN_ROWS = 50  # before "7 more"
# A figure: no part of an id, of a name such as P1, or of a version.
NUMBER = re.compile(r"(?<![\w./#:-])[-−+]?\d[\d,]*(?:\.\d+)?(?![\w/:-]|\.\d)")
# What a page writes in another unit: a share in percent or points, a time in
# milliseconds or minutes.
UNITS = (1, 100, 1000, 1 / 60)


def text_of_page(page: str) -> str:
    """Return the text of a page without what is no figure."""
    text = words_of(UNREAD.sub(" ", page)).replace(CONFIDENCE, "")
    return TIMES.sub(" ", text)


def numbers_in(text: str) -> list[str]:
    """Return the numbers in a text, without signs and marks of thousands."""
    return [number.lstrip("-−+").replace(",", "") for number in NUMBER.findall(text)]


def numbers_of(document: Any) -> set[float]:
    """Return the numbers of JSON data, those in texts, and counts and sums of rows."""
    numbers: set[float] = {0.0}
    if isinstance(document, bool) or document is None:
        return numbers
    if isinstance(document, int | float):
        return {abs(float(document))}
    if isinstance(document, str):
        return {float(number) for number in numbers_in(document)}
    if isinstance(document, Mapping):
        for value in document.values():
            numbers |= numbers_of(value)
        return numbers

    numbers.add(float(len(document)))
    counts = Counter[str]()
    sums = defaultdict[str, float](float)
    for row in document:
        numbers |= numbers_of(row)
        if isinstance(row, Mapping):
            counts.update(f"{name}={value}" for name, value in row.items())
            for name, value in row.items():
                sums[name] += value if isinstance(value, int | float) else 0
    return numbers.union(map(float, counts.values()), map(float, sums.values()))


def is_said(number: str, figures: set[float]) -> bool:
    """Return whether one of the figures may be written so."""
    digits = len(number.partition(".")[2])
    least = 0.5001 * 10**-digits
    value = float(number)
    for figure in figures:
        for unit in UNITS:
            scaled = figure * unit
            # Three digits are enough of a time.
            size = abs(scaled - value)
            if size <= least or (unit in (1, 1000) and size <= 0.0051 * value):
                return True
    return False


def unsaid(page: str, documents: Sequence[Any]) -> list[str]:
    """Return the numbers of a page that no document has, each with its place."""
    figures: set[float] = set()
    for document in documents:
        figures |= numbers_of(document)
    text = text_of_page(page)
    places = []
    for match in NUMBER.finditer(text):
        number = match[0].lstrip("-−+").replace(",", "")
        rest = text[match.end() :]
        is_rest = rest.startswith(" more ") and any(
            int(number) + rows in figures for rows in range(1, MAX_SHOWN_ROWS + 1)
        )
        if not is_rest and not is_said(number, figures):
            start = max(0, match.start() - 50)
            places.append(f"{match[0]}: …{text[start : match.end() + 30]}…")
    return places


def documents_of(week: Week, path: str) -> list[Any]:
    """Return what the terminal says about what a page shows."""
    everywhere = [week.says("loops --limit 500"), week.says("lessons --limit 500")]
    matter, _, name = path.removeprefix("/").partition("/")
    proof = week.says("proof --limit 500")
    runs = week.says("loops runs --limit 500")
    traces = [week.reflected, week.says("hook status")]
    waiting = [week.says("quarantine list"), week.says("quarantine log")]
    if matter in ("loops", "runs") and name:
        full = week.says(f"why {shlex.quote(name)} --full")
        return [*everywhere, full, week.says(f"why {shlex.quote(name)}"), runs]
    if matter == "lessons" and name:
        return [*everywhere, week.says(f"lessons show {name}"), proof, *waiting]
    documents = {
        "home": [proof, runs, *traces, *waiting],
        "loops": [],
        "work": [runs, *traces],
        "traces": traces,
        "lessons": [proof],
        "inbox": waiting,
        "proof": [proof],
    }
    return [*everywhere, *documents[matter]]


def pages_of(week: Week) -> list[str]:
    """Return the addresses of the lists, and of the page of each row."""
    loops = week.says("loops --limit 500")["loops"]
    paths = ["/home", "/loops", "/work", "/lessons", "/inbox", "/proof"]
    for loop in loops:
        kind = "runs" if loop["kind"] == "run" else "loops"
        paths.append(f"/{kind}/{loop['id']}")
    paths += [f"/lessons/{row['id']}" for row in week.says("lessons")["lessons"]]
    paths += [f"/traces/{row['digest']}" for row in week.reflected["episodes"]]
    return paths


def test_every_number_of_every_page_is_one_of_the_terminal(week: Week):
    wrong = {}
    for path in pages_of(week):
        places = unsaid(week.page(path), documents_of(week, path))
        if places:
            wrong[path] = places
    assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False)


def test_every_link_of_every_page_leads_somewhere(week: Week):
    links = set[str]()
    for path in pages_of(week):
        links |= set(re.findall(r'href="(/ui[^"#]*)', week.page(path)))
    lost = []
    for link in sorted(map(unescape, links)):
        answer = week.browser.api.run(
            week.browser.client.get(link, follow_redirects=True)
        )
        if answer.status_code != 200:
            lost.append((link, answer.status_code))
    assert not lost


def test_a_warned_call_that_failed_is_no_mistake_that_was_not_repeated(week: Week):
    total = week.says("hook status")["reminders"]
    (mistake,) = [
        lesson
        for lesson in week.says("lessons")["lessons"]
        if lesson["kind"] == "reflection" and "npm run tests" in lesson["text"]
    ]
    # On each day from Tuesday on, the call was made, and failed.
    ends = {"shown": 5, "right": 0, "again": 5, "other": 0}
    assert mistake["shown"] == ends
    assert total["repeated"] == total["calls_lost"] == len(SESSIONS) - 1
    assert week.says("proof")["reminders"] == total
    home = text_of_page(week.page("/home"))
    assert "not repeated" not in home
    assert f"{total['calls_lost']} calls lost to known mistakes" in home


def test_what_was_shown_is_counted_alike_everywhere(week: Week):
    listed = text_of_page(week.page("/lessons"))
    proven = {row["id"]: row["loops"] for row in week.says("proof")["lessons"]}
    for lesson in week.says("lessons")["lessons"]:
        ends = lesson["shown"]
        page = text_of_page(week.page(f"/lessons/{lesson['id']}")).lower()
        assert proven.get(lesson["id"], ends) == ends
        assert ("never shown" in page) == (ends["shown"] == 0)
        if ends["shown"]:
            counts = Shown(**ends)
            names_call = bool((lesson["mistake"] or {}).get("action"))
            words = counts.of_call if names_call else str(counts)
            assert words in page
            assert words in listed


def test_a_run_that_failed_is_one_whatever_its_format_calls_it(week: Week):
    failed = week.reflected["runs_failed"]
    assert failed == len(OUTCOMES) - 1
    assert f"{failed} failed" in text_of_page(week.page("/work"))
    for row in week.reflected["episodes"]:
        page = text_of_page(week.page(f"/traces/{row['digest']}"))
        assert ("The run failed" in page) == row["run_failed"]


def test_a_proof_has_each_figure_of_the_terminal(week: Week):
    page = text_of_page(week.page("/proof"))
    balance = week.says("proof")["balance"]
    rounded = {round(float(number)) for number in numbers_in(page)}
    for figure in (balance["net"], balance["calls_saved"]):
        for name in ("gain", "low", "high"):
            assert round(abs(figure[name])) in rounded
    assert str(balance["right"]) in numbers_in(page)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    desk = Desk(tmp_path_factory.mktemp("demo"))
    done = desk.heedful("demo --recorded --no-browser", HEEDFUL_EMBEDDER="none")
    assert done.code == 0, done.err
    database = desk.folder / "out" / "recorded" / "demo-recorded.db"
    settings = {"HEEDFUL_DB": str(database), "HEEDFUL_EMBEDDER": "none"}
    with opened(database) as store:
        api = Api(Setup(store=store))
        try:
            yield Week(browser=Browser(api).open(), desk=desk, settings=settings)
        finally:
            api.close()


@pytest.mark.parametrize("path", ["/home", "/loops", "/lessons", "/proof"])
def test_the_pages_of_a_demo_say_what_its_terminal_says(demo: Week, path: str):
    assert unsaid(demo.page(path), documents_of(demo, path)) == []


@pytest.mark.parametrize("kind", ["loop", "stage", "run"])
def test_a_page_that_is_sent_says_what_the_terminal_says(week: Week, kind: str):
    loops = week.says("loops --limit 500")["loops"]
    id = next(
        loop["id"]
        for loop in loops
        if loop["kind"] == kind and loop["state"] == "stopped"
    )
    week.says(f"why {shlex.quote(id)} --html sent.html")
    page = (week.desk.folder / "sent.html").read_text("utf-8")
    matter = "runs" if kind == "run" else "loops"
    assert unsaid(page, documents_of(week, f"/{matter}/{id}")) == []
