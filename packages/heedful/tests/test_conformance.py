"""The suites of `heedful.testing.conformance` and of `tests.promises`, by our own
implementations and by broken ones.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest

from heedful.episodes.episode import Episode, Event, Limits
from heedful.episodes.readers.heedful import EpisodeReader
from heedful.episodes.reading import formats
from heedful.loop.record import Usage
from heedful.models.contract import Answer
from heedful.models.function import Function
from heedful.store.sqlite import File, in_file
from heedful.store.store import Store
from heedful.testing import FixedEmbedder, ScriptedModel, conformance
from heedful.testing.conformance import Driven, Say
from tests import engines, model_promises, promises
from tests.episodes.runs import CHAT, OWN, QUESTION, document, genai
from tests.episodes.test_samples import SAMPLES
from tests.promises import SampleFile
from tests.tables import cases, read_samples

ANSWER = '{"answer": "red"}'
MODELS: dict[str, Callable[[], Any]] = {
    "the scripted model": lambda: ScriptedModel(ANSWER, forever=True),
    "a function": lambda: Function(lambda messages: ANSWER),
}
LINT = "No rule to make target"
# For each format a sample, and a text in it.
FILES: dict[str, tuple[str, str]] = {
    "claude-code": ("claude_code: a denied call of claude code was refused", "rm"),
    "codex": ("codex: an output and its exit code as an object", LINT),
    "codex-exec": ("codex_exec: a command that failed", LINT),
    "swe-agent": ("swe_agent: steps of swe agent", LINT),
    "openhands": ("openhands: a line for each event", LINT),
    "react": ("texts: a log of react has an episode for each question", "KeyError"),
    "aider": ("aider: steps of aider", LINT),
    "junit": ("ci: a report of tests", "total is 3, not 4"),
    "ci-log": ("ci: a log of GitHub", "return value of"),
}
RUNS = {"heedful": [OWN], "otlp": [document(genai()[:1])], "chat": CHAT}


def values_of(content: str) -> list[Any]:
    """Return the values of a file: a document, lines, or a text."""
    for form in (content, f"[{content.replace(chr(10), ',')}]"):
        with suppress(ValueError):
            document = json.loads(form)
            return document if isinstance(document, list) else [document]
    return [content.removeprefix("\ufeff")]


def reading_of(source: str) -> SampleFile:
    reader = formats()[source]
    if source in RUNS:
        return SampleFile(reader=reader, values=RUNS[source], text=QUESTION)
    sample, text = FILES[source]
    path, name = SAMPLES[sample]
    content, _ = read_samples(path)[name]
    return SampleFile(reader=reader, values=values_of(content), text=text)


@cases("make", MODELS)
@pytest.mark.parametrize("case", model_promises.MODEL, ids=conformance.name)
async def test_a_model(case: Any, make: Any) -> None:
    await case(make)


@pytest.mark.parametrize("case", model_promises.EMBEDDER, ids=conformance.name)
async def test_an_embedder(case: Any) -> None:
    await case(FixedEmbedder)


@pytest.mark.both
@pytest.mark.parametrize("case", promises.STORE, ids=conformance.name)
async def test_a_store(case: Any, path: Any) -> None:
    with ExitStack() as stack:
        await case(lambda: stack.enter_context(engines.opened(path)))


@pytest.mark.parametrize("source", formats())
@pytest.mark.parametrize("case", promises.READER, ids=conformance.name)
async def test_a_reader(case: Any, source: str) -> None:
    await case(reading_of(source))


# -- what each suite refuses


class BrokenModel(ScriptedModel):
    """A model that gives a value in place of an answer."""

    def __init__(self, answer: Any = "", name: str = "broken") -> None:
        super().__init__()
        self.answer = answer
        self.name = name

    async def complete(self, messages: Any, **options: Any) -> Any:
        return self.answer


class BrokenEmbedder(FixedEmbedder):
    """An embedder that changes its vectors."""

    def __init__(self, change: Any = None, name: str = "broken") -> None:
        super().__init__()
        self.change = change
        self.name = name

    async def embed(self, texts: Sequence[str]) -> Any:
        rows: Any = await super().embed(texts)
        return self.change(rows)


class Forgetful(Store):
    async def write(self, *call: Any, **options: Any) -> Any:
        pass


class Scopeless(Store):
    async def read(self, *call: Any, **options: Any) -> Any:
        _, *rest = call
        return await super().read(promises.SCOPE, *rest, **options)


class Committing(Store):
    """A store that commits what work has done before it raised."""

    async def write(self, *call: Any, **options: Any) -> Any:
        scope, work, *arguments = call
        errors = []

        def lenient(*call: Any, **options: Any) -> Any:
            try:
                return work(*call, **options)
            except LookupError as error:
                errors.append(error)

        result = await super().write(scope, lenient, *arguments, **options)
        if errors:
            raise errors[0]
        return result


class Snapless(Store):
    """A store that reads without a transaction."""

    async def read(self, *call: Any, **options: Any) -> Any:
        scope, work, *arguments = call

        def loose(db: Any, *call: Any) -> Any:
            db.execute("commit")
            result = work(db, *call)
            db.execute("begin")
            return result

        return await super().read(scope, loose, *arguments, **options)


class Silent(EpisodeReader):
    def add(self, value: Any) -> list[Episode]:
        return []


class Greedy(EpisodeReader):
    @staticmethod
    def begins(value: Any) -> bool:
        return True


class Fragile(EpisodeReader):
    def add(self, value: Any) -> list[Episode]:
        return super().add({**value, "events": [*value["events"]]})


class Offended(EpisodeReader):
    """A reader that reads nothing after a value that is damaged."""

    is_offended = False

    def add(self, value: Any) -> list[Episode]:
        self.is_offended |= not isinstance(value, dict)
        return [] if self.is_offended else super().add(value)


class Leaky(EpisodeReader):
    def add(self, value: Any) -> list[Episode]:
        return [Episode((Event("message", json.dumps(value)),), source="heedful")]


class Endless(EpisodeReader):
    def __init__(self, limits: Limits) -> None:
        super().__init__(Limits())


async def drive_without_heedful(
    host: Any, task: str, script: Any, *, id: str, results: Any = None
) -> Driven:
    driven = Driven()
    for turn in script * 5:
        driven.prompts.append(task)
        if isinstance(turn, Say):
            driven.answer = turn.text
            break
        driven.commands.append(turn.command)
    return driven


CASES = {
    conformance.name(case): case
    for case in (
        *model_promises.MODEL,
        *model_promises.EMBEDDER,
        *promises.STORE,
        *promises.READER,
    )
}
SEVERAL = "model answers several calls at once"
# For each fault the case that finds it, and what is given in place of an answer, or
# what is done to the vectors.
BROKEN_ANSWERS: dict[str, tuple[str, Any]] = {
    "a text": (SEVERAL, ANSWER),
    "an unknown finish": (SEVERAL, Answer(ANSWER, finish=cast("Any", "done"))),
    "no call": (SEVERAL, Answer(ANSWER, Usage())),
    "no JSON for a schema": ("model takes every option", Answer("red")),
}
BROKEN_VECTORS: dict[str, tuple[str, Any]] = {
    "another order": ("embedder keeps the order", lambda rows: rows[::-1]),
    "one for all": ("embedder keeps the order", lambda rows: rows[:1] * len(rows)),
    "one too few": ("embedder takes any text", lambda rows: rows[1:]),
    "long": ("embedder takes any text", lambda rows: [[2.0] * 64 for _ in rows]),
    "short": ("embedder takes any text", lambda rows: [[1.0] for _ in rows]),
}
BROKEN_STORES: dict[str, tuple[str, type[Store]]] = {
    "a write that is lost": ("store shows a write to all", Forgetful),
    "scopes that are one": ("store shows a write to all", Scopeless),
    "half a write": ("store undoes what fails", Committing),
    "a read of two moments": ("store reads one snapshot", Snapless),
}
BROKEN_READERS: dict[str, tuple[str, type[EpisodeReader]]] = {
    "no episode": ("reader reads its format", Silent),
    "all formats": ("reader recognises its format alone", Greedy),
    "another error": ("reader refuses damaged values", Fragile),
    "nothing after damage": ("reader loses nothing beside damage", Offended),
    "a secret": ("reader removes secrets", Leaky),
    "no limits": ("reader keeps its limits", Endless),
}
REFUSED = (AssertionError, TypeError, LookupError, pytest.fail.Exception)


@cases(("case", "answer"), BROKEN_ANSWERS)
async def test_a_broken_answer_is_refused(case: Any, answer: Any) -> None:
    with pytest.raises(AssertionError, match="broken promise"):
        await CASES[case](lambda: BrokenModel(answer))


@cases(("case", "change"), BROKEN_VECTORS)
async def test_broken_vectors_are_refused(case: Any, change: Any) -> None:
    with pytest.raises(AssertionError, match="broken promise"):
        await CASES[case](lambda: BrokenEmbedder(change))


@pytest.mark.parametrize("names", [("", ""), ("a", "b")], ids=["no name", "two names"])
@cases(
    ("case", "kind"),
    {
        "a model": ("model has a name", BrokenModel),
        "an embedder": ("embedder names its space", BrokenEmbedder),
    },
)
async def test_a_broken_name_is_refused(case: Any, kind: Any, names: Any) -> None:
    remaining = iter(names)
    with pytest.raises(AssertionError, match="broken promise"):
        await CASES[case](lambda: kind(name=next(remaining)))


@cases(("case", "store_type"), BROKEN_STORES)
async def test_a_broken_store_is_refused(case: Any, store_type: Any, path: Any) -> None:
    with pytest.raises(REFUSED):
        await CASES[case](lambda: store_type(str(path), File(str(path), 5.0)))


@pytest.mark.parametrize("case", promises.STORE[2:4], ids=conformance.name)
async def test_counts_and_conflicts_of_one_process_are_refused(case: Any) -> None:
    with pytest.raises(REFUSED):
        await case(lambda: in_file(":memory:"))


@cases(("case", "reader"), BROKEN_READERS)
async def test_a_broken_reader_is_refused(case: Any, reader: Any) -> None:
    with pytest.raises(REFUSED):
        await CASES[case](SampleFile(reader=reader, values=[OWN], text=QUESTION))


@pytest.mark.parametrize("case", conformance.HOST, ids=conformance.name)
async def test_an_adapter_that_does_nothing_is_refused(case: Any) -> None:
    with pytest.raises(AssertionError, match="broken promise"):
        await case(drive_without_heedful)
