r"""Rules that a team shares in a file of its repository: how the file is written. Pure.

One line is one rule, and lines are sorted by a digest of what they say, without ids and
times. So two branches that each add a rule put it in different places nearly always,
and git merges them. If the place is the same, git's own driver `union` takes the lines
of both sides; because a rule is one line, no rule is mixed with another. The fields of
a rule are separated by bars; `\|` is a bar in a text, `\n` the end of a line, `\\` a
backslash.

Anyone may have written such a file: it is read strictly, and says nothing by itself.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from heedful.errors import InvalidInput, LineError
from heedful.lessons import render
from heedful.lessons.lesson import Signature
from heedful.lessons.lesson_check import call_words
from heedful.lessons.mistake import Fix, Mistake
from heedful.lessons.origin import ORIGINS, Origin, lowest_origin, read_origin
from heedful.lessons.scope import digest_of
from heedful.lessons.signature import signature
from heedful.redact import redact
from heedful.sanitize import sanitize

# The file in a repository, and the attributes that tell git how to merge it.
SHARED_FILE = ".heedful/rules.md"
ATTRIBUTES_FILE = ".heedful/.gitattributes"
ATTRIBUTES_LINE = "rules.md text eol=lf merge=union\n"
MAX_SHARED_FILE_BYTES = 256 * 1024
# A longer rule is left out: nobody reads it in a review.
MAX_RULE_CHARS = 2_000
RULES_HEADER = """\
# Rules of this repository for coding agents

> Written by `heedful rules share`, one rule a line. Each was released, written or
> verified by somebody. Nobody signs this file: who reviews a change to it answers for
> its rules, and the trust that a rule states is that of its reviewer. Hooks follow it
> only after `heedful rules accept`, which shows what changed. You may add and remove
> lines.
"""
_RULE_START = "- "
_FIELD_SEPARATOR = " | "
# The names of fields in the file, by the names of the attributes.
RULE_FIELDS: Mapping[str, str] = {
    "fix": "fix",
    "scope": "scope",
    "tool": "tool",
    "error": "error",
    "check": "not in calls",
    "trust": "trust",
}
DAMAGED_RULES_FIX = "correct the line, or remove it"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRule:
    """A rule that a team shares.

    `text` says what is to be done or what failed, and `fix` what put that right.
    `scope` are the files that it is about, relative to the repository; () is all of it.
    `error` is the pattern of the error that it is about, and `tool` the tool that
    fails. `check` are words that no call of an agent may have in a row. `trust` is that
    of the reviewer. Raises InvalidInput for a text that a file cannot have.
    """

    text: str
    fix: str
    scope: tuple[str, ...]
    tool: str
    error: str
    check: str
    trust: Origin

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise InvalidInput("text", self.text, "the words of a rule")
        if self.trust not in ORIGINS:
            raise InvalidInput("trust", self.trust, f"one of {', '.join(ORIGINS)}")
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, str) and value != _printable(value):
                allowed = "without blanks at its ends and without hidden characters"
                raise InvalidInput(item.name, value, allowed)
        if self.check != " ".join(call_words(self.check)):
            allowed = "words as a command has them, separated by blanks"
            raise InvalidInput("check", self.check, allowed)
        for path in self.scope:
            is_inside = path == path.strip() and path.isprintable() and path
            if not is_inside or "," in path or path[0] in "/\\~" or ".." in path:
                allowed = "paths in the repository, without commas"
                raise InvalidInput("scope", path, allowed)

    @property
    def digest(self) -> str:
        """The digest of what the rule says, whoever is trusted with it."""
        parts = (self.text, self.fix, *self.scope, self.tool, self.error, self.check)
        return digest_of("shared rule", "\0".join(parts))

    @property
    def mistake(self) -> Mistake | None:
        """What the rule says went wrong, as a record; None if it names no fix."""
        if not self.fix:
            return None
        fix = Fix(kind="command", words=self.fix, origin="user")
        return Mistake(words=self.text, fix=fix)

    @property
    def lesson_text(self) -> str:
        """The rule as the text of a lesson."""
        return render.lesson(self.mistake) if self.mistake else self.text

    @property
    def signature(self) -> Signature:
        """The signature by which the lesson of the rule is found."""
        if not self.error:
            return signature(self.tool, self.text)
        return Signature.of(self.tool, self.error)

    @property
    def line(self) -> str:
        """The rule as a line of the file, without its end."""
        texts = [self.text]
        for attribute, field in RULE_FIELDS.items():
            value = getattr(self, attribute)
            if value:
                text = value if isinstance(value, str) else ", ".join(value)
                texts.append(f"{field}: {text}")
        return _RULE_START + _FIELD_SEPARATOR.join(map(_escape, texts))


def rule_of(
    text: str,
    *,
    fix: str = "",
    scope: Sequence[str] = (),
    tool: str = "",
    error: str = "",
    check: str = "",
    trust: Origin = "user",
) -> SharedRule:
    """Return a rule without hidden characters; the arguments are its fields.

    Raises InvalidInput.
    """
    return SharedRule(
        text=_printable(text),
        fix=_printable(fix),
        scope=tuple(scope),
        tool=_printable(tool),
        error=_printable(error),
        check=_printable(check),
        trust=trust,
    )


def _printable(text: str) -> str:
    """Return a text as a file can have it: without hidden characters."""
    return sanitize(text.replace("\r", "")).strip()


def write_rules(rules: Iterable[SharedRule]) -> str:
    """Return the text of a file with these rules, each of them once."""
    lines = [rule.line for rule in _distinct(rules)]
    return "\n\n".join([RULES_HEADER.rstrip(), *lines]) + "\n"


def _distinct(rules: Iterable[SharedRule]) -> tuple[SharedRule, ...]:
    """Return each rule once, in the order of the file.

    A rule that is stated with two levels of trust has the lower one.
    """
    by_digest: dict[str, SharedRule] = {}
    for rule in rules:
        stated = by_digest.get(rule.digest, rule)
        trust = lowest_origin((stated.trust, rule.trust))
        by_digest[rule.digest] = replace(rule, trust=trust)
    return tuple(by_digest[digest] for digest in sorted(by_digest))


def read_rules(content: bytes, name: str = SHARED_FILE) -> tuple[SharedRule, ...]:
    """Return the rules of a file, each of them once; the order does not matter.

    Lines that begin with `#` or `>` are remarks. Raises LineError, with the `name` of
    the file, for any other line that is no rule.
    """
    if len(content) > MAX_SHARED_FILE_BYTES:
        reason = f"it has more than {MAX_SHARED_FILE_BYTES} bytes; shorten it"
        raise LineError(name, 0, reason)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise LineError(name, number, "it is not UTF-8; write it again") from error

    lines = {number: line.rstrip() for number, line in enumerate(text.split("\n"), 1)}
    return _distinct(
        _read_line(line, name, number)
        for number, line in lines.items()
        if line and line[0] not in "#>"
    )


def _read_line(line: str, name: str, number: int) -> SharedRule:
    """Return the rule in a line. Raises LineError."""

    def damage(reason: str) -> LineError:
        """Return the error that says what is wrong with the line, and what to do."""
        return LineError(name, number, f"{reason}; {DAMAGED_RULES_FIX}")

    if not line.startswith(_RULE_START):
        raise damage('a rule begins with "- ", and a remark with "> "')
    if len(line) > MAX_RULE_CHARS:
        raise damage(f"the rule has more than {MAX_RULE_CHARS} characters")
    if redact(line) != line:
        raise damage("the rule has a secret")

    fields = line.removeprefix(_RULE_START).split(_FIELD_SEPARATOR)
    text, *others = map(_unescape, fields)
    values: dict[str, str] = {}
    for other in others:
        field, _, value = other.partition(": ")
        if not value or field not in RULE_FIELDS.values() or field in values:
            names = ", ".join(f"{name}: …" for name in RULE_FIELDS.values())
            raise damage(f"a field after a bar is one of {names}, each once")
        values[field] = value.strip()

    try:
        return SharedRule(
            text=text.strip(),
            fix=values.get("fix", ""),
            scope=tuple(filter(None, values.get("scope", "").split(", "))),
            tool=values.get("tool", ""),
            error=values.get("error", ""),
            check=values.get(RULE_FIELDS["check"], ""),
            trust=read_origin(values.get("trust", "user"), "trust"),
        )
    except InvalidInput as error:
        raise damage(str(error)) from error


def _escape(text: str) -> str:
    """Return a field as a line has it."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "\\n")


def _unescape(field: str) -> str:
    """Return the text of a field in a line."""
    return re.sub(r"\\([\\|n])", lambda escape: escape[1].replace("n", "\n"), field)
