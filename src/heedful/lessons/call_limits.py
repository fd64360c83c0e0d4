"""What a rule of a user forbids a call of the agent to do, where words show it. Pure.

`limits_of` reads it from the words of the rule: a command ("never npm", "do not use git
push --force"), files ("do not touch generated files"), a name in what is written ("do
not use `console.log`"), or one command that must come before another ("always run make
fmt before you commit"). A rule that cannot be read with certainty limits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from heedful.lessons.action import MEND_HEADING, command_of
from heedful.lessons.preconditions import Surroundings, arguments_of, path_of
from heedful.lessons.shell import read_command

LimitKind = Literal["command", "path", "text", "order"]
# The arguments by which an edit writes text.
WRITTEN_ARGUMENTS = (
    "new_string",
    "new_str",
    "new_source",
    "content",
    "file_text",
    "patch",
    "edits",
)
REPLACED_ARGUMENTS = ("old_string", "old_str")
MAX_LIMIT_WORDS = 6
MAX_LIMIT_TEXT_CHARS = 400
MAX_SCANNED_CHARS = 20_000
# What is forbidden: the words after a negation, up to the end of the clause. After
# "not" and "instead of" only one name is.
_FORBIDDEN_PATTERN = re.compile(
    r"\b(?:(?P<order>never|do not|don['’]?t|must not|should not|stop|avoid)(?: ever)?"
    r"|not|instead of|rather than|over)\s+(?P<words>[^,;:!]+?)"
    r"(?=\.?$|[,;:!]|\s(?:but|use|because|since|and|unless|until|when|before|after)\b)",
    re.IGNORECASE,
)
_MARKED_PATTERN = re.compile(r"[`\"“]([^`\"”\n]{2,80})[`\"”]")
_QUOTED_COMMAND_PATTERN = re.compile(r"`([^`\n]+)`")
# The files that an edit in a lesson changes, and the lines that it adds and removes.
EDITED_FILE_PATTERN = re.compile(r"(?m)^(?:edit|\*\*\* \w+ File:) (.+?):?$")
_ADDED_LINE_PATTERN = re.compile(r"(?m)^\+(.*)")
_REMOVED_LINE_PATTERN = re.compile(r"(?m)^-(.*)")
_TERM_PATTERN = re.compile(r"[@\w./*+=~-]*[\w*/](?:\(\))?")
# Words that name no thing.
_FUNCTION_WORDS = frozenset(
    "a an the any all every our your my with by in on to of for from into directly "
    "ever again manually please under inside using anything here".split()
)
# Verbs before the name of a program, and verbs that change a file.
_RUN_VERBS = frozenset(
    "use using run running call calling invoke execute executing type".split()
)
_CHANGE_VERBS = frozenset(
    "touch touching edit editing change changing modify modifying write writing delete "
    "deleting remove removing update updating rename overwrite".split()
)
_FILE_NOUNS = frozenset(
    "file files folder folders directory directories dir dirs".split()
)
# "run make fmt before you commit", "never commit without running make fmt".
_ORDER_PATTERN = re.compile(
    r"\b(?:run|execute|call|do)\s+(?P<first>[^,;]+?)\s+before\s+(?:you |we |every "
    r"|each |any |a |the |doing |making )*(?:run(?:ning)? |call(?:ing)? )?"
    r"(?P<then>[\w`-]+)",
    re.IGNORECASE,
)
_WITHOUT_PATTERN = re.compile(
    r"\bnever\s+(?P<then>[\w-]+)\s+(?:\w+\s+)?without\s+(?:first )?(?:running|calling)"
    r"\s+(?P<first>[^,;]+)",
    re.IGNORECASE,
)
# A name in code: "console.log", "os.Getwd", "exec_command", "console.log()".
_IDENTIFIER_PATTERN = re.compile(r"\w+(?:[._:]+\w+)+(?:\(\))?|\w+\(\)")
# What a rule about files, or about a name in code, has in its words.
_FILE_SIGN_PATTERN = re.compile(r"[/*`._(]|\b(?:file|folder|dir)", re.IGNORECASE)
_LINE_WORD_PATTERN = re.compile(r"\w{2,}")
# "we use pnpm": what the rule prefers.
_WANTED_PATTERN = re.compile(
    r"(?<!not )(?<!n't )(?<!n’t )(?<!never )\b(?:use|uses|prefer) (\S+)", re.IGNORECASE
)
_SAYING_END_PATTERN = re.compile(r"(?<=[.!;?])\s+|\n+")
# Words that a user passes on: behind a colon, or in quotation marks.
_PASSED_ON_PATTERN = re.compile(
    r'\A((?:\S+\s+){2,}\S+):\s.*|["“„«][^"“”„»]*\s[^"“”„»]*["”»]', re.DOTALL
)
# Programs that run another one.
_RUNNERS = frozenset("sudo env command time nice exec".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimit:
    """What a call must not do.

    A "command" begins with the first of the `words`, a program or its sub-command, and
    has the others; a word may name a long flag of the command, wherever it stands: of
    "force push", the command `git push --force` has both words. A "path" has all the
    words, and a written "text" has the first. An "order" forbids a command with the
    first word before one that begins with `first`. A command of the program `instead`,
    which the rule prefers, breaks no limit.
    """

    kind: LimitKind
    words: tuple[str, ...]
    first: tuple[str, ...] = ()
    instead: str = ""

    def __str__(self) -> str:
        name = f"`{' '.join(self.words)}`"
        if self.kind == "order":
            return f"{name} before `{' '.join(self.first)}`"
        return f"an edit of {name}" if self.kind == "path" else name

    def breaks(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        earlier: Iterable[str] | None = (),
        folder: str = "",
    ) -> bool:
        """Return True if a call does what is forbidden.

        `earlier` are the commands of the session before it: one that an "order" demands
        may be among them, and they show which long flag a short one stands for. With
        None, return True if the call is forbidden after some of them. Paths are those
        in the `folder` of the repository.
        """
        fields = arguments_of(arguments)
        command = command_of(fields)[:MAX_SCANNED_CHARS]
        if self.kind == "path":
            return not command and self._is_in_path(fields, folder)
        if self.kind == "text":
            return self._is_written(fields)
        if not command:
            return False

        commands = _commands(command)
        before = list[tuple[str, ...]]()
        for line in earlier or ():
            before += _commands(line[:MAX_SCANNED_CHARS])
        known = None if earlier is None else before
        places = [n for n, words in enumerate(commands) if self._fits(words, known)]
        if self.kind == "command" or not places:
            return bool(places)
        before += commands[: places[0]]
        return not any(_begins(words, self.first) for words in before)

    def is_broken_in(self, text: str) -> bool:
        """Return True if a text tells of a call that does what is forbidden.

        Of a lesson, that is what put the failure right.
        """
        advice = text.rpartition(MEND_HEADING[1:])[2]
        if self.kind == "command":
            commands = _QUOTED_COMMAND_PATTERN.findall(advice)
            return any(self.breaks("", command) for command in commands)
        added = "\n".join(_ADDED_LINE_PATTERN.findall(advice))
        removed = "\n".join(_REMOVED_LINE_PATTERN.findall(advice))
        texts = {"new_string": added, "old_string": removed}
        paths = EDITED_FILE_PATTERN.findall(advice)
        return any(self.breaks("", {**texts, "file_path": path}) for path in paths)

    def is_like(self, other: CallLimit) -> bool:
        """Return True if both limit the same, whatever is preferred."""
        return replace(self, instead="") == replace(other, instead="")

    def permits(self, message: str) -> bool:
        """Return True if a message of the user allows what is forbidden here.

        What the user passes on allows nothing: 'Translate to German: "Use npm."'.
        """
        pattern = re.compile(self._permission_regex(), re.IGNORECASE)
        for sentence in sentences_of(message):
            sentence = _PASSED_ON_PATTERN.sub(r"\1", sentence)
            is_question = sentence.rstrip().endswith("?")
            if not is_question and pattern.search(sentence):
                return not any(map(self.is_like, limits_of(sentence)))
        return False

    def _permission_regex(self) -> str:
        """Return the pattern of a sentence that allows what is forbidden here."""
        orders = [self.words]
        if self.kind == "command" and len(self.words) == 2:
            # "push --force" is about a "force push", too.
            orders.append(self.words[::-1])
        names = [r"\b[^.!?;]*?".join(map(re.escape, words)) for words in orders]
        name = rf"(?<![\w@./-])(?:{'|'.join(names)})(?![\w@/-])"
        if self.kind == "path":
            return rf"\b(?:{'|'.join(sorted(_CHANGE_VERBS))})\b[^.!?;]*{name}"
        if self.kind == "order":
            first = re.escape(" ".join(self.first))
            return (
                r"\b(?:without|skip|no need|not need|n['’]t (?:need to )?run)\b"
                rf"[^.!?;]*{first}"
                rf"|{name}(?: \w+){{0,2}} (?:anyway|now|as it is|right away)\b"
            )
        return (
            rf"\b(?:use|using|run|running|call|try|with) (?:the )?`?{name}"
            rf"|{name}`? (?:is|are) (?:ok|okay|fine|allowed|good)\b"
            r"|\b(?:ok|okay|yes|fine|allowed|may|can|go ahead)\b[\s,]+"
            rf"(?:\w+ ){{0,3}}`?{name}"
        )

    def is_named_in(self, message: str) -> bool:
        """Return True if a message speaks of what is limited."""
        name = re.escape(" ".join(self.first) or self.words[0])
        pattern = rf"(?<![\w@./-]){name}(?![\w@/-])"
        return re.search(pattern, message, re.IGNORECASE) is not None

    def _fits(
        self, words: Sequence[str], earlier: Sequence[Sequence[str]] | None
    ) -> bool:
        """Return True if the words of a command are those that are limited.

        `earlier` is as in `breaks`, but has the words of each simple command.
        """
        is_flag = self.instead.startswith("-")
        if words[0] == self.instead or (is_flag and self.instead in words):
            return False
        heads = _heads(words)
        if self.kind == "order":
            return any(_is_form(head, self.words[0]) for head in heads)
        others = {*words, *(word.partition("=")[0] for word in words)}
        named = [
            word
            for word in self.words
            if word in others or not _has_flag(words, word, earlier)
        ]
        # "never use Docker" is about the program `docker`.
        if not named or named[0].lower() not in [head.lower() for head in heads]:
            return False
        return all(word in others for word in named[1:])

    def _is_in_path(self, fields: Mapping[str, Any], folder: str) -> bool:
        """Return True if an edit is about a path that has the words."""
        path = Surroundings(folder).relative(path_of(fields))
        if not path or not any(name in fields for name in WRITTEN_ARGUMENTS):
            return False
        name = self.words[0].strip("*")
        if "/" in name or "." in name:
            is_folder = name.endswith("/")
            end = "" if is_folder else r"(?:/|$)"
            start = "" if self.words[0].startswith("*") else r"(?:^|/)"
            return re.search(start + re.escape(name) + end, path) is not None
        parts = {part for part in re.split(r"[^a-z0-9]+", path.lower()) if part}
        return parts.issuperset(self.words)

    def _is_written(self, fields: Mapping[str, Any]) -> bool:
        """Return True if an edit writes the name where it was not before."""
        name = re.escape(self.words[0])
        pattern = re.compile(rf"(?<![\w.-]){name}(?![\w-])")
        counts = []
        for names in (WRITTEN_ARGUMENTS, REPLACED_ARGUMENTS):
            text = " ".join(str(fields[name]) for name in names if name in fields)
            counts.append(len(pattern.findall(text[:MAX_SCANNED_CHARS])))
        return counts[0] > counts[1]


def may_limit(text: str, arguments: Mapping[str, Any] | str) -> bool:
    """Return False if no limit in the words of a rule can be about a call.

    This is much faster than to read the limits.
    """
    fields = arguments_of(arguments)
    command = command_of(fields)[:MAX_SCANNED_CHARS]
    if not command:
        is_edit = any(name in fields for name in WRITTEN_ARGUMENTS)
        return is_edit and _FILE_SIGN_PATTERN.search(text) is not None
    words = {*_LINE_WORD_PATTERN.findall(command.lower())}
    return any(word in text.lower() for word in words)


# In which project a rule holds, and for how long.
_REACH_PATTERN = re.compile(
    r"\s+(?:(?:in|to|for|from|on)\s+(?:this|the|our|my)\s+"
    r"(?:repository|repo|project|codebase|workspace|folder|session|task)"
    r"|for now|for the moment|for once|right now|today|this (?:time|session))"
    r"(?![\w.-])",
    re.IGNORECASE,
)


def sentences_of(message: str) -> list[str]:
    """Return the sentences and lines of a message.

    >>> sentences_of("Use npm. Thanks!")
    ['Use npm.', 'Thanks!']
    """
    return _SAYING_END_PATTERN.split(message)


def limits_of(text: str) -> tuple[CallLimit, ...]:
    """Return what a rule forbids calls to do, as far as its words show it.

    >>> [str(limit) for limit in limits_of("use pnpm, never npm or yarn")]
    ['`npm`', '`yarn`']
    """
    # Where a rule holds is no word of a call.
    text = _REACH_PATTERN.sub("", text[:MAX_LIMIT_TEXT_CHARS])
    for pattern in (_ORDER_PATTERN, _WITHOUT_PATTERN):
        order = pattern.search(text)
        if order is not None:
            limit = _order_limit(order["first"], order["then"])
            return () if limit is None else (limit,)

    wanted = _WANTED_PATTERN.search(text)
    instead = wanted[1].strip("`.,;:!") if wanted else ""
    limits: dict[CallLimit, None] = {}
    for forbidden in _FORBIDDEN_PATTERN.finditer(text):
        is_order = forbidden["order"] is not None
        phrase = forbidden["words"].strip()
        verb = ""
        for part in re.split(r"\s+(?:or|nor)\s+", phrase):
            words = part.split()
            # "do not use npm or yarn": the verb is for both.
            if words[0].lower() in _RUN_VERBS | _CHANGE_VERBS:
                verb = words[0]
            elif verb:
                part = f"{verb} {part}"
            limit = _forbidden_limit(part, is_order)
            if limit is not None and instead not in limit.words:
                limits[replace(limit, instead=instead)] = None
    return tuple(limits)


def _order_limit(first: str, then: str) -> CallLimit | None:
    """Return the limit that a command comes before another one."""
    quoted = _MARKED_PATTERN.search(first)
    words = (quoted[1] if quoted else first).split()
    is_named = all(re.fullmatch(r"[\w./:@=-]+", word) for word in words)
    if not words or not is_named or len(words) > MAX_LIMIT_WORDS:
        return None
    # "run all tests" and "run the linter" name no command.
    is_noun = words[0].lower() in _FUNCTION_WORDS or words[-1].lower().endswith("s")
    is_plain = len(words) == 1 and words[0].isalpha()
    if quoted is None and (is_noun or is_plain):
        return None
    return CallLimit(
        kind="order", words=(_stem(then.strip("`").lower()),), first=tuple(words)
    )


def _forbidden_limit(phrase: str, is_order: bool) -> CallLimit | None:
    """Return the limit of a phrase after a negation."""
    quoted = _MARKED_PATTERN.search(phrase)
    verb, _, rest = phrase.strip().partition(" ")
    verb = verb.lower().strip("`")
    if verb in _CHANGE_VERBS:
        return _path_limit(rest)

    has_verb = verb in _RUN_VERBS
    name = rest if has_verb else phrase
    if quoted is not None:
        name = quoted[1]
    words = [word for word in name.split() if word.lower() not in _FUNCTION_WORDS]
    is_named = all(_TERM_PATTERN.fullmatch(word.strip("`'\"")) for word in words)
    if not words or not is_named or len(words) > MAX_LIMIT_WORDS:
        return None
    if not is_order and len(name.split()) > 1 and quoted is None:
        return None

    words = [word.strip("`'\"") for word in words]
    is_code = len(words) == 1 and _IDENTIFIER_PATTERN.fullmatch(words[0])
    if is_code and "/" not in words[0]:
        return CallLimit(kind="text", words=(words[0].removesuffix("()"),))
    return CallLimit(kind="command", words=tuple(words))


def _path_limit(thing: str) -> CallLimit | None:
    """Return the limit of edits of files, by a path or by the words before "files"."""
    words = [word.strip("`'\".") for word in thing.split()]
    for word in words:
        if "/" in word or re.search(r"\w\.\w", word) or word.startswith("*."):
            return CallLimit(kind="path", words=(word,))
    nouns = [n for n, word in enumerate(words) if word.lower() in _FILE_NOUNS]
    if not nouns:
        return None
    names = [
        word.lower()
        for word in words[: nouns[0]]
        if word.lower() not in _FUNCTION_WORDS and word.isalnum()
    ]
    return CallLimit(kind="path", words=tuple(names)) if names else None


@lru_cache(maxsize=64)
def _commands(line: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each simple command, its program without folders."""
    commands = []
    for words in read_command(line).commands:
        while len(words) > 1 and words[0] in _RUNNERS:
            words = words[1:]
        commands.append((words[0].rpartition("/")[2], *words[1:]))
    return tuple(commands)


def _heads(words: Sequence[str]) -> list[str]:
    """Return the program of a command, and its first word that is no flag."""
    return [words[0], *[word for word in words[1:] if word[:1] != "-"][:1]]


def _has_flag(
    words: Sequence[str], name: str, earlier: Sequence[Sequence[str]] | None
) -> bool:
    """Return True if a command has the long flag of a name, or its short form.

    A short flag is the long one with its letter if the program had that one in an
    `earlier` command; None stands for all commands. A plain name is also that of the
    flags that begin with it: "force" of `--force-with-lease`.
    """
    bare = name.lower().lstrip("-")
    is_plain = not name.startswith("-")
    letters = set[str]()
    for word in words[1:]:
        flag = word.partition("=")[0]
        if flag == f"--{bare}" or (is_plain and word.startswith(f"--{bare}-")):
            return True
        if re.fullmatch("-[a-zA-Z]+", word):
            letters.update(word[1:])
    if len(bare) < 2 or bare[0] not in letters:
        return False
    if earlier is None:
        return True
    heads = _heads(words)
    same = [command for command in earlier if _heads(command) == heads]
    return any(_has_flag(command, name, ()) for command in same)


def _begins(words: Sequence[str], first: Sequence[str]) -> bool:
    """Return True if a command begins with the words of another."""
    return tuple(words[: len(first)]) == tuple(first)


def _stem(word: str) -> str:
    """Return a verb without its ending: "commit" of "committing"."""
    if word.endswith("ing") and len(word) > 5:
        word = word[:-3]
        if word[-1] == word[-2]:
            word = word[:-1]
    return word


def _is_form(word: str, stem: str) -> bool:
    """Return True if a word of a command is a verb: "release" for "releas"."""
    return word in (stem, f"{stem}e")
