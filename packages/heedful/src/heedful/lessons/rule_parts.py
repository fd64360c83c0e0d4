"""What a rule of a user forbids and wants. Pure.

`parts_of` divides a rule into clauses, and each clause at the words that begin what is
forbidden or wanted, such as “never” and “use”. What stands between is read for names:
words that look like code, and plain words where the clause expects a name, as after
“with”. The table `user_rules.toml` says which words do what.

A part with a condition that no call shows, such as “before lunch”, is left out, so the
rule is told at the start only.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import dropwhile, pairwise
from typing import Literal

from heedful.knowledge import KnowledgeTable
from heedful.lessons.user_rules import PartDeed, RulePart, RuleParts
from heedful.lessons.words import INDEX_STOP_WORDS

# What a rule says about a part: "" as long as it has not said it.
Direction = Literal["forbidden", "wanted", ""]
# A text of a rule, and the group of the table that has it.
Token = tuple[str, str]

RULE_TABLE = KnowledgeTable("lessons/user_rules")
# The groups of the table in the order in which they are tried.
_GROUPS = (
    "clause",
    "ask",
    "condition",
    "during",
    "ban",
    "no_edit",
    "than",
    "forbid",
    "want",
    "only",
    "through",
    "outside",
    "inside",
    "join",
    "pronoun",
    "action",
    "edit",
    "add",
    "verb",
    "determiner",
    "code_noun",
    "noun",
)
_DIRECTIONS: dict[str, Direction] = {
    "forbid": "forbidden",
    "than": "forbidden",
    "want": "wanted",
    "only": "wanted",
}
_DEED_OF_KIND: dict[str, PartDeed] = {"edit": "edit", "add": "add", "through": "use"}
# What may be a name, or begin one.
_NAME_KINDS = frozenset({"word", "action", "code", "quoted"})
_CONDITIONS = ("condition", "during")
_DIVIDERS = frozenset({*_DIRECTIONS, "ban", "no_edit"})
# What goes on with the name of a command: "git add", "docker run".
_COMMAND_WORDS = frozenset({"word", "action", "edit", "add", "verb"})
# What a list of names has, after a comma.
_LIST = _COMMAND_WORDS | {"end", "code", "quoted", "join"}
_QUOTED_PATTERN = r"`[^`\n]+`|“[^”\n]+”|\"[^\"\n]+\"|(?<!\w)'[^'\n]+'(?!\w)"
_QUOTES = "`'\"“”"
_END_PATTERN = r"[,;:()—–]|\s-\s|[.!?](?=\s|\Z)"
_PLAIN_WORD_PATTERN = r"[\w$@](?:[\w.+@:-]*[\w+])?"


@cache
def parts_of(rule: str) -> RuleParts:
    """Return what a rule forbids and what it wants.

    >>> parts = parts_of("No, we use pnpm, never npm")
    >>> [str(part) for part in parts.forbidden], [str(part) for part in parts.wanted]
    (['npm'], ['pnpm'])
    """
    forbidden: list[RulePart] = []
    wanted: list[RulePart] = []
    # Of clauses that say nothing of them: what a pronoun, or "never", refers to.
    open_parts: list[RulePart] = []
    lone_parts: list[RulePart] = []
    listed: Direction = ""
    is_conditional = False
    for tokens in _clauses(rule):
        clause = _read_clause(tokens, open_parts)
        parts = clause.parts
        # "never npm, yarn or bun"
        if listed and clause.has_names_only and clause.begins_list:
            parts = [(listed, part) for _, part in parts]
        if clause.is_opposite:  # "…, but never npm"
            is_conditional = False
        if clause.has_condition:
            is_conditional = True
        if parts:
            listed = parts[-1][0]
            open_parts = [part for direction, part in parts if not direction]
            # "pnpm, never npm"
            if listed == "forbidden":
                wanted += lone_parts
            lone_parts = open_parts if clause.has_names_only else []
        wanted += [part for direction, part in parts if direction == "wanted"]
        if not is_conditional:
            forbidden += [part for direction, part in parts if direction == "forbidden"]
        # "If you need packages, never use npm"
        if parts or not clause.has_condition:
            is_conditional = False
    return RuleParts(tuple(forbidden), tuple(wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clause:
    """What a clause says: its parts, each with its direction.

    It `begins_list` if a name follows a comma, and `is_opposite` if it begins with
    "but".
    """

    parts: Sequence[tuple[Direction, RulePart]]
    has_names_only: bool
    begins_list: bool
    is_opposite: bool
    has_condition: bool


def _read_clause(tokens: Sequence[Token], earlier: Sequence[RulePart]) -> _Clause:
    """Return what a clause says; a pronoun in it stands for `earlier` parts."""
    kinds = [kind for kind, _ in tokens]
    begins_list = kinds[0] == "end" and not _NAME_KINDS.isdisjoint(kinds[1:2])
    if kinds[0] == "end":
        tokens = tokens[1:]
    main, *rest = _divided(tokens, ("ask", *_CONDITIONS))
    main, *places = _divided(main, ("outside",))
    parts = _parts_in(main, earlier)
    condition = rest[0] if rest and rest[0][0][0] in _CONDITIONS else []
    # "no --force when you push"
    command = _command_in(condition)
    if command and all(_are_options(part.words) for _, part in parts):
        parts = [(d, replace(p, words=(*command, *p.words))) for d, p in parts]
        condition = []
    for (_, place), *_ in (segment[-1:] for segment in places):
        outside = place.strip(_QUOTES)
        parts = [(d, replace(part, outside=outside)) for d, part in parts]
    return _Clause(
        parts=parts,
        has_names_only=_LIST.issuperset(kinds),
        begins_list=begins_list,
        is_opposite="clause" in kinds,
        has_condition=bool(condition),
    )


def _command_in(condition: Sequence[Token]) -> tuple[str, ...]:
    """Return the command that a condition names: "when you run go test".

    There is none if the condition says more, such as "when the tests fail".
    """
    if [kind for kind, _ in condition[:1]] != ["during"]:
        return ()
    tokens = [token for token in condition[1:] if token[0] not in ("common", "want")]
    names = [part.words for part in _names_in(tokens, ())]
    return names[0] if len(names) == 1 else ()


@cache
def _scanner() -> re.Pattern[str]:
    """Return the pattern that divides a rule; the group says what a text is."""
    groups = "|".join(
        rf"(?P<{group}>(?<![\w./-]){RULE_TABLE.pattern(group).pattern}(?![\w(/-]|\.\w))"
        for group in _GROUPS
    )
    code = RULE_TABLE.pattern("code").pattern
    common = "|".join(INDEX_STOP_WORDS)
    return re.compile(
        rf"(?i)(?P<quoted>{_QUOTED_PATTERN})|{groups}"
        rf"|(?P<code>(?<!\w){code})|(?P<common>(?<![\w./-])(?:{common})(?![\w(/-]|\.\w))"
        rf"|(?P<end>{_END_PATTERN})|(?P<word>{_PLAIN_WORD_PATTERN})"
    )


def _clauses(rule: str) -> list[list[Token]]:
    """Return the texts of each clause of a rule."""
    # As in: "use --force (-f)".
    rule = re.sub(r"\((?:or )?(-[\w-]+)\)", r"/ \1", rule)
    clauses: list[list[Token]] = [[]]
    for match in _scanner().finditer(rule):
        kind = match.lastgroup or ""
        is_in_name = bool(clauses[-1]) and clauses[-1][-1][0] in ("word", "quoted")
        if is_in_name and RULE_TABLE.pattern("subcommand").fullmatch(match[0].lower()):
            kind = "word"  # "docker run"
        if kind in ("end", "clause"):
            clauses.append([])
        if kind != "end" or match[0] == ",":
            clauses[-1].append((kind, match[0]))
    return list(filter(None, clauses))


def _divided(tokens: Sequence[Token], kinds: Collection[str]) -> list[list[Token]]:
    """Return texts divided before each one of these kinds."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token[0] in kinds:
            parts.append([])
        parts[-1].append(token)
    return parts


def _parts_in(
    clause: Sequence[Token], earlier: Sequence[RulePart]
) -> list[tuple[Direction, RulePart]]:
    """Return the parts of a clause, each with its direction.

    A pronoun stands for the parts of `earlier` clauses.
    """
    parts: list[tuple[Direction, RulePart]] = []
    direction: Direction = ""
    is_fresh = False
    segments = _divided(clause, _DIVIDERS)
    for (kind, text), *tokens in filter(None, segments):
        if kind in ("ban", "no_edit"):
            parts = [("forbidden", _banned(part, kind)) for _, part in parts]
            continue
        # "never use" forbids.
        if kind in _DIRECTIONS and not (kind == "want" and is_fresh):
            direction = _DIRECTIONS[kind]
        elif kind not in _DIRECTIONS:
            tokens = [(kind, text), *tokens]
        names = _names_in(tokens, earlier)
        is_fresh = direction == "forbidden" and not names
        parts += [(direction, part) for part in names]
    return parts


def _banned(part: RulePart, kind: str) -> RulePart:
    """Return a part that is forbidden; a file may be forbidden to edit only."""
    is_kept = kind == "no_edit" and len(part.words) == 1
    return replace(part, deed="edit") if is_kept else part


def _names_in(tokens: Sequence[Token], earlier: Sequence[RulePart]) -> list[RulePart]:
    """Return the names in what follows a word such as "never" or "use".

    A pronoun stands for the parts of `earlier` clauses.
    """
    parts: list[RulePart] = []
    deed: PartDeed = "use"
    expects = True
    is_place = False
    phrases = [*_phrases(tokens), ("end", ["."])]
    for (kind, words), (following, _) in pairwise(phrases):
        if kind in _NAME_KINDS:
            is_of_code = deed == "add" and following == "code_noun"
            name = _name_of(
                kind,
                words,
                deed,
                expects=expects or is_of_code,
                is_place=is_place,
                has_parts=bool(parts),
            )
            parts = _with_name(parts, name, deed, earlier)
            # "pass --force to git push"
            expects = bool(name) and _are_options(name)
        elif kind == "pronoun":
            parts += [replace(part, deed=deed) for part in earlier]
        elif kind == "join":
            expects = bool(parts)
        elif kind == "through":
            expects = True
        elif not is_place and kind not in ("determiner", "inside"):
            expects = False
        deed = _DEED_OF_KIND.get(kind, deed)
        is_place = kind == "inside" or (is_place and kind == "determiner")
    return parts


def _name_of(
    kind: str,
    words: list[str],
    deed: PartDeed,
    *,
    expects: bool,
    is_place: bool,
    has_parts: bool,
) -> list[str]:
    """Return the words of a name; none if they are a place, or plain and no name."""
    # "never delete commits" is about no file.
    if kind == "action" and deed != "use":
        return []
    # "in this repo", and "src/" in "never add prints to src/"
    is_of_place = is_place and (has_parts or (deed == "use" and kind == "word"))
    is_added_to = deed == "add" and has_parts and "/" in words[0]
    if is_of_place or is_added_to:
        return []
    if kind != "word":
        return words
    if is_place:
        # "in English" is no folder.
        return [f"{words[0]}/"] if words[0].islower() else []
    return words if expects else list(dropwhile(_is_plain, words))


def _is_plain(word: str) -> bool:
    """Return True if a word has letters and hyphens only."""
    return re.fullmatch(r"\w[\w-]*", word) is not None


def _phrases(tokens: Sequence[Token]) -> list[tuple[str, list[str]]]:
    """Return the words of each name, or of what may be one, and all other texts.

    Each has the kind of its first text.
    """
    phrases: list[tuple[str, list[str]]] = []
    for kind, text in tokens:
        words = text.strip(_QUOTES).split() or [text]
        is_code = kind in ("code", "quoted")
        is_option = is_code and _are_options(words)
        if kind == "action":
            words = (_meaning_of(text) or text).split()
        # "git commit with --no-verify"
        if is_option and [k for k, _ in phrases[-2:]][1:] == ["through"]:
            phrases.pop()
        last_kind, name = phrases[-1] if phrases else ("", [])
        # "git add", but not "git adds"
        goes_on = is_code or (
            kind in _COMMAND_WORDS and (kind == "word" or not text.endswith("s"))
        )
        is_name = last_kind in _NAME_KINDS
        if is_name and (is_option or (goes_on and _is_program(name[0]))):
            name += [text] if kind == "action" else words
        else:
            phrases.append((kind, words))
    return phrases


def _meaning_of(action: str) -> str:
    """Return the command that a verb means: "git push"."""
    row = RULE_TABLE.find("action", action.lower())
    return row.meaning if row else ""


def _with_name(
    parts: list[RulePart], name: list[str], deed: PartDeed, earlier: Sequence[RulePart]
) -> list[RulePart]:
    """Return parts with one more name; an option belongs to the command before it.

    That may be one of the `earlier` parts: "rsync is fine, but never with --delete".
    """
    if not name:
        return parts
    is_option = _are_options(name)
    before = parts
    if is_option and not parts:
        before = [*earlier]
    words = tuple(name) if deed == "use" or is_option else tuple(name[:1])
    part = RulePart(words=words, deed=deed)
    if not before:
        return [part]
    *others, last = before
    if _are_options(last.words):  # "--force with git push"
        return [*others, replace(part, words=(*words, *last.words))]
    if not is_option:
        return [*before, part]
    command = [word for word in last.words if not word.startswith("-")]
    # "curl -k or --insecure"
    if len(command) < len(last.words):
        others = before
    return [*others, replace(last, words=(*command, *words))]


def _are_options(words: Sequence[str]) -> bool:
    return all(word.startswith("-") for word in words)


def _is_program(word: str) -> bool:
    """Return True if a word may be a program: it is no option and no name in code."""
    return re.fullmatch(r"(?!-)[\w./@+-]*\w", word) is not None and not re.search(
        r"\.(?!py\b|sh\b|js\b|rb\b|pl\b)\w+\Z", word
    )
