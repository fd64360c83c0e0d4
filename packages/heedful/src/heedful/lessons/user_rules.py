"""The rules that a user gives an agent, in his own words. Pure.

A sentence with a plain marker is a rule: "never …", "use … not …". The table of markers
below is a small grammar of such sentences in English. A rule is told at the start of a
session, and before a call that it names: a program, an option, a path or another word
that looks like one.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from heedful.lessons.commands import release_command
from heedful.lessons.origin import Origin
from heedful.lessons.scope import MAX_READ_CHARS, State, short_digest
from heedful.lessons.shell import split_words
from heedful.lessons.words import INDEX_STOP_WORDS, compiled
from heedful.sanitize import delimit, delimiter, sanitize
from heedful.validation import MAX_SHOWN_ITEMS, MAX_SHOWN_LINE_CHARS, Fields

# The error type of the lessons that are rules of a user.
RULE_TYPE = "user rule"
# A message with more sentences that may be rules is a document.
MAX_MESSAGE_RULES = 5
RULES_HEADING = "What the user said earlier, and still holds:"
NAMED_HEADING = "The user said about such calls:"

# The verbs of acting in a rule; the group leaves out their endings.
_ACTING = (
    r"(run|us|touch|edit|commit|push|build|install|writ|add|delet|chang)(?:e|\w?ing)?"
)
# The verbs that are also commands of programs: `git push`.
_COMMAND_VERBS = frozenset("commit push build install add".split())
# The markers of a rule, in English. `refusal` is how a correction begins, `before` is
# what else may stand before a rule, `rule` is how a rule begins, and `names` are words
# after which a program stands. What a correction `states` holds in general, unless it
# has a word of the `moment`: of the speaker, or of what was just said.
_MARKERS = {
    "refusal": "nope|no|wrong|not quite|actually|that['’]?s (?:wrong|not right)",
    "states": "is|are|must|should|never",
    "moment": r"i|m[ey]|you\w*|its?|this|that|th[eo]se|now|today|yet|all|both"
    r"|\w+thing|mind",
    "before": "please|remember|we|i (?:already )?(?:told you|said)"
    r"|(?:in|for) this \w+",
    "rule": "never(?! mind)|always|from now on"
    rf"|(?:don['’]?t|do not|stop|you keep) {_ACTING}"
    r"|use (?!an? |the ).*\b(?:not|never|instead of)|(?:tests )?run\b.*, (?:never|not)"
    r"|(?<=said )no(?= \w)|we use(?= [^\s,;]+(?: here)?\W*\Z)",
    "names": r"us(?:e|ing)|run(?:ning)?|(?:(?<!do )not )?with"
    r"|(?<!do )not(?! allowed)|(?:(?<=said )|\A)no|instead of|or|, never",
}

# A pronoun after a marker means what the agent does now, unless the rule names
# something: "don't change anything".
_PRONOUNS = r"it|this|that|them|\w+thing"
# What stands after a program in a rule: "npm is forbidden".
_FORBIDS = r"is (?:\w+ )?(?:forbidden|not allowed)(?=(?: here)?(?:[,.!]|\Z))"
_RULE_PATTERN = (
    rf"(?i)(?:(?:{_MARKERS['refusal']}|{_MARKERS['before']})\b[\s,:!—–-]*)*"
    rf"(?:{_MARKERS['rule']}|(?!(?:{_PRONOUNS})\b)[^\s,:'’]+ {_FORBIDS})"
    rf"(?!\w)(?P<momentary> (?:{_PRONOUNS})\b)?"
)
# "No, you must never …" is about the agent, but not about the moment.
_REFUSAL_PATTERN = (
    rf"(?i)\s*(?:(?:{_MARKERS['refusal']})\s*[,.:!—–-]\s*)+"
    r"(?:you (?:\w+ ){0,2}(?=(?:always|never)\b))?"
)
_GENERAL_PATTERN = rf"(?i)\b(?:{_MARKERS['states']})\b"
# What begins with a definite article is about the matter in hand, and so is a figure.
_MOMENT_PATTERN = rf"(?i)\b(?:{_MARKERS['moment']})\b|[\d?]|^the(?:re)?\b"
_CODE_BLOCK_PATTERN = r"(?s)```.*?(?:```|\Z)"
# A dot in a path or a number ends no sentence.
_RULE_END_PATTERN = r"(?<=[.!?;])\s+|\n+"
_BACKTICK_PATTERN = r"`([^`\n]+)`"
_RULE_WORD_PATTERN = r"(?<![^\s`'\"’,;:!?()“”])[^\s`'\"’,;:!?()“”]+(?!['’])"
_VERB_PATTERN = rf"(?i)\b{_ACTING}\b"
# A program after a word that names one, or before one that forbids it, with a verb that
# it takes: "use the git push".
_NAMED_PATTERN = (
    rf"(?i)(?:(?<!\w)|(?=,))(?:{_MARKERS['names']}|\A(?=\S+ {_FORBIDS}))"
    r"(?=(?:\s+|\A)(?:(?:the|bare)\s+)?"
    rf"(?P<name>(?!(?:{_MARKERS['names']})\b)"
    rf"{_RULE_WORD_PATTERN})(?:\s+(?P<verb>{'|'.join(sorted(_COMMAND_VERBS))})\b)?)"
)
# A word that looks like code: an option, a path, a file, a name with signs or capitals.
_CODE_NAME_PATTERN = (
    r"--?\w.*|\*?\.\w.*|\w[^\s]*[/._=@\\]\w?.*|[A-Z][A-Z0-9_]+|\w*[a-z][A-Z]\w*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRule:
    """A rule that a user has stated, as it is stored.

    `id`, `state` and `trust` are those of its lesson. The text of a rule that waits in
    quarantine is empty; `entry` is its id there. The user said it `seen` times, last at
    the time `last_said`, in seconds since 1970. It `ended` older rules.
    """

    text: str
    id: int = 0
    state: State = "unverified"
    trust: Origin = "user"
    seen: int = 1
    last_said: float = 0.0
    entry: int = 0
    ended: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest by which a session remembers that it was told the rule."""
        return short_digest(self.text.lower())

    @property
    def in_force(self) -> bool:
        """True if agents are told the rule."""
        return self.state in ("unverified", "verified")

    @property
    def release(self) -> str:
        """The command that releases the rule from quarantine; "" if it is not there."""
        return release_command([self.entry])

    @property
    def when_told(self) -> str:
        """When agents are told the rule, in words."""
        names = [" ".join(name) for name in names_in(self.text)]
        if not names:
            return "told at the start only"
        return f"told at the start, and before a call with {' or '.join(names)}"

    def named_in(self, tool: str, arguments: Fields | str) -> set[str]:
        """Return the names in the rule that stand in a call of `tool`.

        A name may be the tool, a program, an option, or a file or a part of its path.
        One of several words, such as "git push", stands there if all its words do.
        """
        names = names_in(self.text)
        words = _words_of_call(tool, arguments) if names else set[str]()
        return {
            " ".join(name)
            for name in names
            if all(_has_word(words, _folded(word)) for word in name)
        }

    def supersedes(self, older_text: str) -> bool:
        """Return True if this rule ends an older one, because both are about one thing.

        They are if one names all that the other names, and if they have a verb in
        common or one has none. So "never edit x.py" does not end "run x.py with uv".
        """
        verbs = _verbs_in(self.text)
        older_verbs = _verbs_in(older_text)
        if verbs and older_verbs and verbs.isdisjoint(older_verbs):
            return False

        names = _subjects(self.text)
        older_names = _subjects(older_text)
        if not (names and older_names):
            return False
        return names <= older_names or older_names <= names


def read_rules(message: str) -> tuple[str, ...]:
    """Return the sentences of a user's message that are rules, in their order.

    A correction, a sentence that refuses an answer, comes first. Code between fences is
    skipped. A message with more than `MAX_MESSAGE_RULES` is a document, and has none.

    >>> read_rules("No, we use pnpm, never npm. Thanks!")
    ('No, we use pnpm, never npm.',)
    >>> read_rules("Don't worry.")
    ()
    """
    # The notices of an agent begin with a tag.
    if message.lstrip().startswith("<"):
        return ()
    text = compiled(_CODE_BLOCK_PATTERN).sub("\n", message)
    correction = read_correction(text)
    rules = dict.fromkeys(filter(None, [correction]))
    for sentence in compiled(_RULE_END_PATTERN).split(text):
        rule = sentence.strip().removeprefix("- ")
        # The correction is in the list already.
        if rule not in correction and _is_rule(rule):
            rules[rule] = None
    return tuple(rules) if len(rules) <= MAX_MESSAGE_RULES else ()


def _is_rule(sentence: str) -> bool:
    """Return True if a sentence is short and begins as a rule, such as "never" does.

    Questions and quotations are no rules. Nor is "don't do that", which is said only
    for the moment, unless the sentence names a program, a path or the like.
    """
    is_asked_or_quoted = sentence.endswith("?") or sentence.startswith(">")
    if is_asked_or_quoted or len(sentence) > MAX_SHOWN_LINE_CHARS:
        return False
    match = compiled(_RULE_PATTERN).match(sentence)
    if match is None:
        return False
    return not match["momentary"] or bool(names_in(sentence))


def read_correction(message: str) -> str:
    """Return the rule with which a user's message refuses an answer; "" without one.

    The message begins with a refusal, such as "No", and then says what holds always.
    A sentence about the user himself, or about this answer only, is no rule.

    >>> read_correction("That's wrong: ACME is billed in euros. Do it again.")
    "That's wrong: ACME is billed in euros."
    >>> read_correction("No, my address is Elm Street.")
    ''
    """
    refusal = compiled(_REFUSAL_PATTERN).match(message)
    if refusal is None:
        return ""
    statement, *_ = compiled(_RULE_END_PATTERN).split(message[refusal.end() :])
    # A verb such as "must" or "is" says what holds in general; a word such as "my" or
    # "now" is about the speaker or the moment.
    begins_as_rule = compiled(_RULE_PATTERN).match(statement)
    is_general = begins_as_rule or compiled(_GENERAL_PATTERN).search(statement)
    if not is_general or compiled(_MOMENT_PATTERN).search(statement):
        return ""
    correction = f"{refusal[0]}{statement}".strip()
    return correction if len(correction) <= MAX_SHOWN_LINE_CHARS else ""


def names_in(rule: str) -> tuple[tuple[str, ...], ...]:
    """Return the names in a rule, such as of programs or paths, each as its words.

    A call is about the rule if it has one of them. Those between backticks come first.

    >>> names_in("never use git push, and not `rm -rf`")
    (('rm', '-rf'), ('git', 'push'))
    """
    names = {
        tuple(quoted.split()): None
        for quoted in compiled(_BACKTICK_PATTERN).findall(rule)
    }
    # A comma stands for each of these, so that no name reaches across it.
    names.update(dict.fromkeys(_bare_names(compiled(_BACKTICK_PATTERN).sub(",", rule))))
    return tuple(name for name in names if name)


def _bare_names(rule: str) -> Iterator[tuple[str, ...]]:
    """Yield the names in a rule that has no text between backticks, each as its words.

    The first search finds what stands after a word such as "use", with a verb that it
    takes ("git", "push"). The second finds words that look like code, such as an option
    or a path; what the first has yielded is not yielded again.
    """
    yielded_starts = set[int]()  # where the words of these names begin
    for match in compiled(_NAMED_PATTERN).finditer(rule):
        name = match["name"].rstrip(".")
        if name.lower() not in INDEX_STOP_WORDS:
            yielded_starts.update((match.start("name"), match.start("verb")))
            yield (name, match["verb"]) if match["verb"] else (name,)
    for match in compiled(_RULE_WORD_PATTERN).finditer(rule):
        word = match[0].rstrip(".")
        is_name = word in _COMMAND_VERBS or compiled(_CODE_NAME_PATTERN).fullmatch(word)
        if is_name and match.start() not in yielded_starts:
            yield (word,)


def _subjects(rule: str) -> set[tuple[str, str]]:
    """Return what a rule is about: each name in it, with the word that follows.

    The word may be a command of the program, as in "never run terraform destroy". It is
    "" if none follows, or one such as "and" that only joins words. A name that is a
    verb, such as "commit", is left out.
    """
    subjects = set[tuple[str, str]]()
    for name in names_in(rule):
        if _COMMAND_VERBS.issuperset(name):
            continue
        text = " ".join(name)
        match = re.search(rf"{re.escape(text)}`?\s+(\w[\w-]*)", rule)
        next_word = match[1].lower() if match else ""
        subjects.add((text.lower(), "" if next_word in INDEX_STOP_WORDS else next_word))
    return subjects


def _verbs_in(rule: str) -> set[str]:
    """Return the verbs of acting in a rule; to run a program is to use it."""
    verbs = {match[1].lower() for match in compiled(_VERB_PATTERN).finditer(rule)}
    return {"us" if verb == "run" else verb for verb in verbs}


def _words_of_call(tool: str, arguments: Fields | str) -> set[str]:
    """Return the words of a call with which the names in a rule are compared.

    These are the tool and the parts of its name, the words of the arguments, and of a
    path, each folder, the file and its ending. An argument of several lines is mostly
    the content of a file, so it counts only if it is the command.
    """
    fields = {"command": arguments} if isinstance(arguments, str) else arguments
    words = {_folded(tool), *map(_folded, re.split(r"[\W_]+", tool))}
    for name, value in fields.items():
        text = str(value)[:MAX_READ_CHARS]
        if "\n" in text and name != "command":
            continue
        for word in split_words(text):
            path = word.strip("/").split("/")
            # Of "--tag=1", also the option alone.
            words.update(map(_folded, (word, word.partition("=")[0], *path)))
            # The endings of a file: ".tar.gz" and ".gz" of "data.tar.gz".
            stem, dot, ending = path[-1].partition(".")
            words.add(_folded(f"{dot}{ending}"))
            words.add(_folded(f".{ending.rpartition('.')[2]}" if stem else word))
    return words - {""}


def _has_word(words: Set[str], name: str) -> bool:
    """Return True if a name is one of these words, or a part of a path among them."""
    if name in words:
        return True
    return "/" in name and any(f"/{name}/" in f"/{word}/" for word in words)


def _folded(word: str) -> str:
    """Return a word as names are compared: without case, slashes and asterisks."""
    return word.casefold().strip("/*")


def rules_text(rules: Sequence[StatedRule], heading: str = RULES_HEADING) -> str:
    """Return rules as a text for an agent, after a heading; "" without rules.

    They stand between random delimiters, which no rule can imitate. These are at most
    `MAX_SHOWN_ITEMS` rules.
    """
    lines = [f"- {stated.text}" for stated in rules[:MAX_SHOWN_ITEMS]]
    if not lines:
        return ""
    texts = {"rules": sanitize("\n".join(lines))}
    return "\n".join([heading, *delimit(delimiter("user", texts), texts)])


def stored_lines(rules: Sequence[StatedRule]) -> list[str]:
    """Return the lines that tell a person which of his rules were stored.

    Each says when agents are told the rule, and by which command it is removed; further
    lines name the older rules that it ends.
    """
    lines = []
    for stated in rules:
        lines.append(
            f"heedful keeps your rule “{sanitize(stated.text)}” ({stated.when_told}); "
            f"remove it: heedful rules retire {stated.id} --by NAME"
        )
        lines += [f"It ends your rule “{sanitize(text)}”." for text in stated.ended]
    return lines
