"""Whose words an event of a run has, and what an agent repeats of others. Pure.

`Origins` names the sources of an event: the user, programs, tools or the network. With
`find_quoted`, it says which words of the agent were in results or prompts before, so
that what is learnt from these words gets no more trust than their sources have. What
was not kept is not known: `gap_of` and `Origins.unseen`.
"""

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Any

from heedful.episodes.course import (
    RESULT_EVENTS,
    SURROUNDING_EVENTS,
    Course,
    call_failed,
    event_text,
    given_to,
    named_arguments,
)
from heedful.episodes.episode import (
    EXPANDED_PROMPT_CODE,
    MODEL_WORD_EVENTS,
    Event,
)
from heedful.lessons.action import command_of
from heedful.lessons.scope import SERVER_PREFIX, is_tool_of
from heedful.lessons.shell import ADDRESS_PATTERN
from heedful.lessons.trust import (
    MIN_QUOTATION_WORDS,
    MIN_QUOTED_WORD_CHARS,
    NETWORK_SOURCE,
    SHELL_TOOLS,
    find_quotations,
    quotations,
    sources_of,
)
from heedful.redact import has_mark
from heedful.sanitize import CUT_MARK_PATTERN, plain_text

# A longer message holds more than its author typed, as does one of several lines. Of
# what people wrote to coding agents, 81 % has one line of at most 300 characters.
MAX_TYPED_CHARS = 300
# What an agent may replace by the content of a file or a folder: "@docs/", "@Makefile",
# '@"my page.md"'.
_FILE_REFERENCE_PATTERN = re.compile(
    r"""(?<![\w.-])@(?:"[^"]*"|'[^']*'|(?:\\.|[^\s\\])+)"""
)
MIN_PIECE_CHARS = 3  # letters and digits of a word of a command that may be quoted
# A word of a command, --all or main.py in "rm --all 'main.py'", and a part of it,
# "pads" in "x=pads".
_WORD_PATTERN = re.compile(r"[^\s\"'`\\]+")
_PIECE_PART_PATTERN = re.compile(r"[^=:,;@/(){}\[\]<>&|.]+")
_SIGN_PATTERN = re.compile(r"[\W_]+")
# Words that are in few texts: those with two parts, or with letters and digits.
_RARE_NAME_PATTERN = re.compile(r"[^\W_][\W_]+[^\W_]|[^\W\d_]\d|\d[^\W\d_]")
# A name of a file or a folder in an argument, without the folders that it is in, and
# one that says what sort of file it is: "page.txt".
_FILE_NAME_PATTERN = re.compile(r"[^\s\"'`\\=:,;@(){}\[\]<>&|/]+")
_FILE_ENDING_PATTERN = re.compile(r"\w\.[A-Za-z]\w*\Z")
# A file that a command writes: "> page", "-o page", "--output=page", "tee -a page".
_WRITTEN_FILE_PATTERN = re.compile(
    r"""(?:(?<![-=])>[>|]?\s*|\s-[oO]\s*|\s--output(?:-[a-z]+)?[\s=]\s*
    |\btee\s(?:\s*-\w+\s)*\s*)["']?([^\s"'`\\;|&<>()]+)""",
    re.VERBOSE,
)
# The file into which an agent put a result that was too large to show, as the result
# then says: "Full output saved to: page", "persistedOutputPath": "page".
_SAVED_FILE_PATTERN = re.compile(
    r"""\b(?:saved|written|stored|persisted)(?:\s(?:to|in|at|as)|outputpath)\b
    ["'`]?:?\s*["'`]?([^\s"'`;|&<>()]+)""",
    re.VERBOSE | re.IGNORECASE,
)
_DEVICE_NAMES = frozenset(("null", "stdout", "stderr", "tty"))
# What ends a command or a line in an argument, whose ends of lines are visible.
_ARGUMENT_END_PATTERN = re.compile(r"\\[nt]|[;|&]+")
# The code of an event about a file of instructions that was not kept.
UNREAD_CODE = "unread instructions"
# The source of what was said in a session before its first stored event.
EARLIER_TURNS_SOURCE = "earlier:turns"
MIN_LINE_WORDS = 3  # of a line of an argument that may be quoted


class Origins:
    """Whose words the events of a run have.

    What a call writes into a file has the sources of the call, and so has a result that
    the agent saved. So has the result of each later call that names the file.
    `foreign` are texts that the agent had from elsewhere, by their sources; None stands
    for a text that is not known. An entry of an MCP server (`server:docs@1a2b`) among
    these sources is one of all that the server says.
    """

    def __init__(self, run: Course, foreign: Mapping[str, str | None] = {}) -> None:
        self.run = run
        self._foreign: list[tuple[str, frozenset[str]]] = []
        self._unread: set[str] = set()
        self._entries: set[str] = set()
        for source, text in foreign.items():
            if source.startswith(SERVER_PREFIX):
                self._entries.add(source)
            elif text is None:
                self._unread.add(source)
            else:
                self._foreign.append((text, frozenset({source})))

        # The sources of the calls that wrote a file, by the name of the file.
        self._writers: dict[str, frozenset[str]] = {}
        self._of_calls: dict[int, frozenset[str]] = {}
        self._of_events: list[frozenset[str]] = []
        for position, event in enumerate(run.events):
            if event.type == "tool_call" or _is_earlier_call(event):
                self._of_calls[position] = self._call_sources(position)
            sources = self._event_sources(position)
            self._of_events.append(sources)
            if sources - {"user"}:
                self._note_saved(event_text(event), sources)

    def _call_sources(self, call: int) -> frozenset[str]:
        """Return the sources of a call's result, and note the files that it writes."""
        event = self.run.events[call]
        call_event = replace(event, type="tool_call")
        text = "\n".join(named_arguments(call_event).values())
        names = _FILE_NAME_PATTERN.findall(text)
        written = {
            file.rpartition("/")[2] for file in _WRITTEN_FILE_PATTERN.findall(text)
        }
        written -= _DEVICE_NAMES

        sources = self._tool_sources(event.tool, event)
        is_fetch = NETWORK_SOURCE in sources and ADDRESS_PATTERN.search(text)
        read = self._writers.keys() & names
        for name in read:
            sources |= self._writers[name]

        # "wget ADDRESS" and "cp" write a file that they only name.
        is_copy = event.tool.casefold() in SHELL_TOOLS and (
            read or any(names.count(name) > 1 for name in written)
        )
        if is_fetch or is_copy:
            written.update(filter(_FILE_ENDING_PATTERN.search, names))
        self._note_written(written, sources)
        return sources

    def _note_saved(self, text: str, sources: frozenset[str]) -> None:
        """Note the file in which a result was saved, and its folder."""
        for file in _SAVED_FILE_PATTERN.findall(text):
            *_, folder, name = ["", *_FILE_NAME_PATTERN.findall(file.rstrip("."))]
            self._note_written({folder, name} - {""}, sources)

    def _note_written(self, names: Set[str], sources: frozenset[str]) -> None:
        """Note that files have words of these sources."""
        for name in names:
            self._writers[name] = self._writers.get(name, frozenset()) | sources

    def _event_sources(self, position: int) -> frozenset[str]:
        """Return the sources of the words of an event itself."""
        event = self.run.events[position]
        if event.origin == "external":
            return frozenset({NETWORK_SOURCE})
        if event.origin and position in self._of_calls:
            return self._of_calls[position]
        if event.origin or event.type in RESULT_EVENTS:
            return self._result_sources(position)

        if event.type in MODEL_WORD_EVENTS:
            return frozenset()
        if event.type in SURROUNDING_EVENTS:
            return frozenset({"user"})
        return frozenset({NETWORK_SOURCE})

    def _result_sources(self, position: int) -> frozenset[str]:
        """Return the sources of a tool's words, by the call that they belong to."""
        event = self.run.events[position]
        call = self.run.act[position]
        if call is None:
            return self._tool_sources(event.tool, None)

        sources = self._of_calls[call]
        if event.tool and event.tool != self.run.events[call].tool:
            sources |= self._tool_sources(event.tool, self.run.events[call])
        return sources

    def _tool_sources(self, tool: str, call: Event | None) -> frozenset[str]:
        """Return the sources of a tool, with the entries of its server."""
        name = tool or (call.tool if call else "")
        entries = {entry for entry in self._entries if is_tool_of(name, entry)}
        return _tool_sources(tool, call) | entries

    def at(self, position: int) -> frozenset[str]:
        """Return the sources of an event: the user, programs and tools, or the network.

        The words of a model have none. The event after a gap also has those of the
        omitted events.
        """
        if position == gap_of(self.run):
            return frozenset({NETWORK_SOURCE})
        return self._of_events[position]

    def quoted(self, texts: Iterable[str]) -> dict[str, dict[str, int]]:
        """Map each text that quotes tools and documents to their sources."""
        positions: list[int] = []
        others: list[tuple[str, frozenset[str]]] = []
        for position, event in enumerate(self.run.events):
            sources = self._of_events[position] - {"user"}
            if sources:
                positions.append(position)
                others.append((event_text(event), sources))

        quoted: dict[str, dict[str, int]] = {}
        for text, found_sources in quotations(texts, others).items():
            quoted[text] = {source: positions[n] for source, n in found_sources.items()}
        return quoted

    def quoted_foreign(self, texts: Iterable[str]) -> dict[str, dict[str, int]]:
        """Map each text that quotes foreign texts to their sources."""
        return quotations(texts, self._foreign)

    def unread_files(self) -> set[str]:
        """Return the sources of the foreign files whose words are not known."""
        return self._unread - {EARLIER_TURNS_SOURCE}

    def of_foreign(
        self, steps: Set[int], edits: Set[int], words: Mapping[str, int]
    ) -> set[str]:
        """Return the sources of the foreign texts that a remedy may repeat.

        It may repeat any text that is not known, and of the others those it quotes.
        The remedy is the `edits`, or else the last of the `steps` if it worked. `words`
        maps what the agent said to a step. What the first step, which failed, says is
        no part of the remedy: instructions for a project may name that call.
        """
        remedy = edits or {max(steps)}
        is_alone = not (self._foreign or self._unread)
        if is_alone or any(call_failed(self.run, step) for step in remedy):
            return set()
        failed = min(steps)
        call_texts = {*words_of(self.run, [failed]), *lines_of(self.run, failed)}
        advice = {text for text, step in words.items() if step in remedy}
        found_sources = self.quoted_foreign(advice - call_texts).values()
        return self._unread.union(*found_sources)

    def unseen(self) -> list[tuple[int, frozenset[str]]]:
        """Return the positions and sources of texts that were kept without a part.

        Nobody can say whether words of an agent stood in the part that was cut or
        redacted, or in a result that never came. A prompt counts if it is `pasted`.
        """
        texts = [
            (position, sources, event_text(self.run.events[position]))
            for position, sources in enumerate(self._of_events)
            if sources - {"user"}
        ]
        texts += [
            (position, frozenset({NETWORK_SOURCE}), prompt)
            for position, prompt in pasted(self.run)
        ]
        unseen = [
            (position, sources)
            for position, sources, text in texts
            if _lacks_part(text)
        ]
        unseen += [
            (call, sources)
            for call, sources in self._of_calls.items()
            if self._lacks_result(call)
        ]
        return unseen

    def _lacks_result(self, call: int) -> bool:
        """Return True for a call of the run whose result was not kept."""
        is_call = self.run.events[call].type == "tool_call"
        return is_call and self.run.result[call] is None

    def first(self, words: Iterable[str]) -> dict[str, tuple[int, frozenset[str]]]:
        """Map each word to the first text that has it: its position and its sources.

        The task has the position -1. Words of the agent have no sources.
        """
        run = self.run
        places: list[tuple[int, frozenset[str]]] = [(-1, frozenset({"user"}))]
        texts = [f"{run.episode.task}\n{run.episode.goal}"]
        for position, event in enumerate(run.events):
            places.append((position, self._of_events[position]))
            texts.append(event_text(event))

        first_at = find_quotations(words, texts, min_chars=MIN_PIECE_CHARS)
        return {word: places[n] for word, n in first_at.items()}


def _is_earlier_call(event: Event) -> bool:
    """Return True for a call, with its result, that was made before the run began."""
    is_call = event.type == "system_event" and event.arguments is not None
    return is_call and event.origin == "tool"


def gap_of(run: Course) -> int | None:
    """Return the position of the event after the omitted ones, None if none are.

    They stood between the first and the last half of a long run.
    """
    return len(run.events) // 2 if run.episode.omitted else None


def _tool_sources(tool: str, call: Event | None) -> frozenset[str]:
    """Return the sources of the words of a tool, by its call if it is known."""
    arguments: Mapping[str, Any] | str = ""
    texts: list[str] = []
    if call is not None:
        tool = tool or call.tool
        arguments = given_to(call)
    if isinstance(arguments, Mapping):
        texts = list(map(str, arguments.values()))
    return sources_of(tool, command_of(arguments), texts)


def _lacks_part(text: str) -> bool:
    """Return True if a part of a text was redacted or cut."""
    return has_mark(text) or CUT_MARK_PATTERN.search(text) is not None


def unseen_pasted(run: Course) -> list[int]:
    """Return the positions of pasted prompts of which a part was not kept.

    Prompts of a system are often so long that they are cut; they count if redacted.
    """
    return [
        position
        for position, text in pasted(run)
        if _lacks_part(text)
        and (
            has_mark(text)
            or position < 0
            or run.events[position].type == "user_message"
        )
    ]


def find_quoted(run: Course, texts: Iterable[str]) -> dict[str, int]:
    """Map each text that quotes what was `pasted` to the position of the prompt."""
    prompts = pasted(run)
    quoted = find_quotations(texts, (prompt for _, prompt in prompts))
    return {text: prompts[number][0] for text, number in quoted.items()}


def pasted(run: Course) -> list[tuple[int, str]]:
    """Return the prompts that may hold more than a typed line, with their positions.

    Nobody knows who wrote the rest, so trust in the user does not cover it. A prompt is
    the task or the goal (position -1), or a message of a user or of the system around
    the agent. Words with an origin have sources of their own.
    """
    is_typed = gives_typed_lines(run.events)
    prompts = [(-1, run.episode.task), (-1, run.episode.goal)]
    for position, event in enumerate(run.events):
        if event.type in SURROUNDING_EVENTS and not event.origin:
            prompts.append((position, event.content))

    return [
        (position, text)
        for position, text in prompts
        if text and (not is_typed or may_be_pasted(text))
    ]


def gives_typed_lines(events: Iterable[Event]) -> bool:
    """Return whether the prompts of a run are what its user typed, as far as is known.

    All prompts of a run come from one agent.
    """
    return all(event.code != EXPANDED_PROMPT_CODE for event in events)


def may_be_pasted(text: str) -> bool:
    """Return True if a text holds more than a line that a person types.

    An agent's machinery writes as the user, too: what a command printed, a notice.

    >>> may_be_pasted("never use npm"), may_be_pasted("Read this: # Use npm")
    (False, False)
    >>> may_be_pasted("Read this:\\n# Use npm")
    True
    """
    is_machine = text.lstrip().startswith(("<", "[", "{"))
    is_line = len(text) <= MAX_TYPED_CHARS and len(text.strip().splitlines()) <= 1
    return is_machine or not is_line


def typed_part(text: str) -> str:
    """Return a line of a user up to the first file that it refers to.

    An agent may have put the content of the file after it.

    >>> typed_part("never edit @gen/api.ts Always push with force")
    'never edit @gen/api.ts'
    """
    reference = _FILE_REFERENCE_PATTERN.search(text)
    return text[: reference.end()] if reference else text


def words_of(run: Course, places: Iterable[int]) -> list[str]:
    """Return what an agent says at the positions `places`.

    First its messages that are long enough to be quoted, then the arguments of its
    calls.
    """
    messages: list[str] = []
    arguments: list[str] = []
    for position in sorted(set(places)):
        event = run.events[position]
        if event.type == "llm_response":
            if len(event.content.split()) >= MIN_QUOTATION_WORDS:
                messages.append(event.content)
        elif event.type == "tool_call":
            arguments += named_arguments(event).values()

    return [*messages, *arguments]


def lines_of(run: Course, call: int) -> list[str]:
    """Return the lines and the single commands in the arguments of a call.

    Shorter ones than `MIN_LINE_WORDS` words are in many texts.
    """
    lines = [
        line
        for text in named_arguments(run.events[call]).values()
        for line in _ARGUMENT_END_PATTERN.split(text)
    ]
    return [line for line in lines if len(line.split()) >= MIN_LINE_WORDS]


def new_words_of(run: Course, places: Iterable[int]) -> list[str]:
    """Return the words that the first call at `places` lacks and a later one has."""
    first_words: list[str] | None = None
    new_words: list[str] = []
    for position in sorted(set(places)):
        event = run.events[position]
        if event.type != "tool_call":
            continue

        words = call_words_of(event)
        if first_words is None:
            first_words = words
        new_words += [word for word in words if word not in first_words]

    return new_words


def call_words_of(call: Event) -> list[str]:
    """Return the words of a call's arguments that may be quoted."""
    return pieces_of("\n".join(named_arguments(call).values()))


def names_of(words: Iterable[str]) -> list[str]:
    """Return those of the words that are names: "pads-2", "a.test", not "pads"."""
    return list(filter(_RARE_NAME_PATTERN.search, words))


def rare_words_of(words: Iterable[str]) -> list[str]:
    """Return those of the words that are long, or names."""
    words = list(words)
    long_words = [word for word in words if len(word) >= MIN_QUOTED_WORD_CHARS]
    return [*long_words, *names_of(words)]


def pieces_of(text: str) -> list[str]:
    """Return the words of a text that may be quoted, each whole and in its parts.

    >>> pieces_of("npm i --registry=a.test/npm")
    ['npm', '--registry=a.test/npm', '--registry', 'test']
    """
    pieces: list[str] = []
    for word in _WORD_PATTERN.findall(plain_text(text)):
        pieces += [word, *_PIECE_PART_PATTERN.findall(word)]
    return [piece for piece in dict.fromkeys(pieces) if _has_letters(piece)]


def _has_letters(piece: str) -> bool:
    """Return True if a piece is long without its signs: "2>&1" is in many commands."""
    return len(_SIGN_PATTERN.sub("", piece)) >= MIN_PIECE_CHARS
