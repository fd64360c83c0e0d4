"""Rules that a user gives an agent for more than one task. Pure.

`read_rules` finds them in a message by its grammar: an order with "always" or "never",
a general prohibition ("do not touch generated files"), a choice between two tools ("we
use pnpm, not npm"), and where things are. It would rather find nothing than a task: an
order about this file, the next step or the product is no rule. What a call of an agent
can be held to is the matter of `lessons/call_limits.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from heedful.lessons.call_limits import CallLimit, limits_of
from heedful.lessons.lesson import Signature, digest_of, short_digest
from heedful.lessons.stated_rule import RULE_TYPES, RuleReach

# A longer message is a task or a pasted text, and a longer sentence describes.
MAX_RULE_MESSAGE_CHARS = 400
MAX_USER_RULE_CHARS = 240
MAX_MESSAGE_RULES = 5


def _pattern(regex: str) -> re.Pattern[str]:
    """Return a pattern for texts in any case; its line breaks do not count."""
    return re.compile("".join(regex.split("\n")), re.IGNORECASE)


_CODE_BLOCK_PATTERN = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# A message that an agent's own commands or notices wrote begins with a tag or bracket.
MACHINE_PATTERN = re.compile(r"\s*[<\[{]")
# A dot in a path or a number does not end a sentence.
_RULE_END_PATTERN = re.compile(r"(?<=[.!;])\s+|(?<=\?)\s*")
# What may stand before a rule: "no, ", "please ", "- ", "ok and ".
_OPENING_PATTERN = _pattern(
    r"""(?:[-*•\d.)\s]+|
(?:no|nope|right|ok|okay|please|and|also|but|so|well|hey|wait|stop(?=[,.!])|
remember(?! to)|note|important|reminder|rule|actually|again|btw|yes|sorry|hm+)\b
[\s,:.!—-]*)*"""
)
# A correction of what the agent believed.
_OBJECTION_PATTERN = _pattern(r"\s*(?:no|nope|wrong|actually|not)\b")
# How far a rule reaches, said before it.
_EXTENT_REGEX = r"""(?:(?:for now|for the moment|from now on|today|here|
in this (?:session|project|repo|repository)|
in (?:all|every|any)[\w ]{0,20} (?:projects?|repos?)),? )"""
# Clauses begin at the start of a sentence, or after one of these.
_START_REGEX = rf"(?:(?:^|[,:;(—–-] ){_EXTENT_REGEX}?)"
_CLAUSE_REGEX = rf"(?:(?:^|[,:;(—–-] |\b(?:and|but) ){_EXTENT_REGEX}?)"
# "we" is the users, or their product: only what people do is a rule.
_YOU_REGEX = r"""(?:you(?: (?:must|should|have to|need to|are to))?|
we(?: (?:must|should|have to|need to))?
(?= (?:always|never) (?:use|run|prefer|install|commit|push)\b))"""
# A question, or what the product shall do in some case: "if it fails, always exit".
_CASE_PATTERN = _pattern(
    r"""(?:can|could|would|will|should|shall) (?:you|we|i)\b|how\b|why\b|what\b|
(?:if|when|once|where|unless|while) (?!you\b|we\b|i\b)|.*\bif\b.*\bthen\b"""
)
# "always run make fmt", "you must never push", "never npm".
_HABIT_PATTERN = _pattern(
    rf"""{_START_REGEX}(?:please |{_YOU_REGEX} |(?:make|be) sure (?:to|you) )?
(?:always|never) (?P<verb>[`\w./-]+)(?P<object>.*)"""
)
# "from now on use tabs", "going forward, run the tests first".
_FROM_NOW_PATTERN = _pattern(
    r"""\b(?:from now on|going forward|from here on|as a (?:general )?rule|
in (?:the )?future,? (?:please|do|don['’]t|always|never|use|run|only))\b"""
)
# "let's use US English everywhere", "use strong types wherever we can".
_EVERYWHERE_PATTERN = _pattern(
    rf"""{_CLAUSE_REGEX}(?:please |(?:let['’]?s )?(?:make|be) sure (?=you|we)|
(?:you|we) (?:must|should) (?=be using|use|write|run|prefer)|use |prefer )+
[\w'’ ]+\b(?:everywhere|(?:wherever|whenever) (?:you|we)\b)"""
)
# "do not touch generated files", "avoid adding comments", "stop using npm".
_BAN_PATTERN = _pattern(
    rf"""{_CLAUSE_REGEX}(?:please )?
(?:you (?:must|should) not|(?:do not|don['’]?t)(?: ever)?|avoid|stop)
 (?P<verb>[`\w-]+)(?P<object>.*)"""
)
_TOOL_REGEX = r"`?[@\w][\w@./+-]*`?"
# "we use pnpm, never npm", "use uv instead of pip", "prefer rg over grep".
_CHOICE_PATTERN = _pattern(
    rf"""{_CLAUSE_REGEX}
(?P<owner>(?:we|(?:this|the|our) (?:project|repo|repository|team)|i)
(?: only| always)? uses? |(?:use|prefer) )(?P<wanted>{_TOOL_REGEX})(?: here)?
(?:,? (?:and )?(?:not|never|instead of|rather than|over) (?:with |use )?
(?P<other>{_TOOL_REGEX})|(?P<here> (?:here|in this (?:project|repo|repository))))
(?P<rest>[^,;]*)"""
)
# "no, we use pnpm": the choice against what the agent did.
_OUR_CHOICE_PATTERN = _pattern(rf"we (?:only |always )?use {_TOOL_REGEX}[.!]?")
# "remember to run make fmt before committing".
_REMINDER_PATTERN = _pattern(
    rf"""{_CLAUSE_REGEX}
(?:(?:make|be) sure (?:to|you)|remember to|(?:do not|don['’]?t) forget to)
 .*\b(?:before|after) (?:you|every|each|any|\w+ing)\b"""
)
_FILE_REGEX = r"`?(?:[\w@.-]*/[\w@./*-]*|[\w-]+\.[a-z]\w{0,5})`?"
# "the config is in deploy/values.yaml", "tests go in tests/unit".
_LOCATION_PATTERN = _pattern(
    rf"""\b(?:the|our) [\w -]{{2,40}}? (?:is|are|lives?|goes?|belongs?|sits?)
 (?:in|at|under|inside) {_FILE_REGEX}"""
)
_LOCATIONS_PATTERN = _pattern(
    rf"""(?:^|[,:;] )(?:our |all |new )?[\w-]+s (?:go|live|belong)
 (?:in|at|under|inside) {_FILE_REGEX}"""
)
# An object that is one thing of the moment, so that the order is a task. "the" and "a"
# name one thing, too, but not in an order with "always" and "never".
_MOMENT_REGEX = r"""(?:this|that|these|those|it|its|them|they|he|she|yet|again|anymore|
else|me|anything|nothing|something|so|both|too|above|below|same|current|existing)"""
_MOMENT_PATTERN = _pattern(rf"\b{_MOMENT_REGEX}\b")
_ONE_THING_PATTERN = _pattern(
    rf"""\b(?:{_MOMENT_REGEX}|here|the|an?|your|my|more|other|another|to|if|when|just|
only|but)\b"""
)
_THIS_PATTERN = _pattern(r"\b(?:this|that|these|those|it|them|yet)\b")
_FILES_PATTERN = _pattern(r"\b(?:files|folders?|director(?:y|ies)|dirs?)\b")
# How far a rule reaches, said within it.
_EXTENT_PATTERN = _pattern(
    r"""\b(?:in|for|on|to|into|from) (?:this|the current)
 (?:session|project|repo|repository|codebase|branch|pr|task)\b|\bthis time\b"""
)
# Words that name no tool in a choice: "use a map instead".
_ARTICLES = frozenset("a an the it one".split())
# Verbs of talk and thought, after which nothing is forbidden: "don't worry".
_TALK_VERBS = frozenset(
    "worry mind know think care see get have need want like understand be bother feel "
    "assume believe forget remember say tell ask wait expect guess hesitate you i we "
    "they it".split()
)
# Words after "never" and "always" that are no order: "never mind", "never was".
_NO_ORDERS = frozenset(
    "mind been was were is are had has have did does do got seen went came knew saw "
    "said the a an in at on of".split()
)
_ALL_PROJECTS_PATTERN = _pattern(
    r"""\b(?:in|across|for) (?:all|every|any)(?: of)?(?: (?:my|our|the))?
 (?:projects?|repos?|repositories|codebases?)\b"""
)
_SESSION_PATTERN = _pattern(
    r"""\b(?:for now|for the moment|right now|(?<!from )now|today|for once|until|
currently|
(?:this|the current) (?:time|session|task|pr|branch|commit|change|one|once))\b"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRule:
    """A rule in the words of the user: its `text`, and how far it reaches.

    `limits` are what calls must not do; empty if no call can be held to the rule.
    """

    text: str
    reach: RuleReach = "project"
    limits: tuple[CallLimit, ...] = ()


def rule_signature(text: str, reach: RuleReach) -> Signature:
    """Return the signature of a rule: each wording is a rule of its own.

    Figures are part of a rule: "use Node 20" is not "use Node 18".
    """
    error_type = RULE_TYPES[reach]
    pattern = " ".join(text.lower().split())
    return Signature(
        short_digest(f"{error_type}:{pattern}"),
        pattern,
        digest=digest_of(error_type, pattern),
        error_type=error_type,
    )


def read_rules(message: str) -> tuple[UserRule, ...]:
    """Return the rules in a message of a user, in their order.

    >>> [rule.text for rule in read_rules("No, we use pnpm, never npm. Thanks!")]
    ['we use pnpm, never npm']
    >>> read_rules("Fix the login, and never mind the tests.")
    ()
    """
    is_short = len(message) <= MAX_RULE_MESSAGE_CHARS
    if not is_short or MACHINE_PATTERN.match(message):
        return ()
    message = _CODE_BLOCK_PATTERN.sub("\n", message)
    is_correction = _OBJECTION_PATTERN.match(message) is not None
    rules: dict[str, UserRule] = {}
    for line in message.splitlines():
        for sentence in _sentences(line):
            introduction, colon, _ = f"{sentence} ".partition(": ")
            # What follows may be the words of others: "translate to German: …".
            if colon and not _is_rule(introduction, is_correction):
                break
            if _is_rule(sentence, is_correction):
                rules[sentence.lower()] = UserRule(
                    text=sentence, reach=_reach_of(sentence), limits=limits_of(sentence)
                )
    return tuple(rules.values())[:MAX_MESSAGE_RULES]


def _sentences(line: str) -> Iterator[str]:
    """Yield the sentences that may be rules, without what stands before them."""
    for sentence in _RULE_END_PATTERN.split(line):
        is_quoted = sentence.lstrip().startswith((">", "|", "+", "$", "`", "//"))
        if is_quoted or sentence.rstrip().endswith("?"):
            continue
        opening = _OPENING_PATTERN.match(sentence)
        text = sentence[opening.end() if opening else 0 :].strip().rstrip(".!;")
        if 0 < len(text) <= MAX_USER_RULE_CHARS:
            yield text


def _is_rule(sentence: str, is_correction: bool) -> bool:
    """Return True if a sentence is a rule; a message may begin as a correction."""
    if _CASE_PATTERN.match(sentence):
        return False
    if _is_habit(sentence) or _is_ban(sentence) or _is_choice(sentence):
        return True
    patterns = (_FROM_NOW_PATTERN, _REMINDER_PATTERN, _EVERYWHERE_PATTERN)
    if any(pattern.search(sentence) for pattern in patterns):
        return not _MOMENT_PATTERN.search(sentence)
    if is_correction and _LOCATION_PATTERN.search(sentence):
        return True
    if is_correction and _OUR_CHOICE_PATTERN.fullmatch(sentence):
        return True
    return _LOCATIONS_PATTERN.search(sentence) is not None


def _is_habit(sentence: str) -> bool:
    """Return True for an order with "always" or "never"."""
    habit = _HABIT_PATTERN.search(sentence)
    if habit is None:
        return False
    verb = habit["verb"].lower()
    is_order = verb not in _NO_ORDERS and not re.search(r"[^es]s$|[^e]ed$", verb)
    thing = _EXTENT_PATTERN.sub("", habit["object"])
    return is_order and not _MOMENT_PATTERN.search(thing)


def _is_ban(sentence: str) -> bool:
    """Return True for an order not to do something, whatever the task."""
    ban = _BAN_PATTERN.search(sentence)
    if ban is None:
        return False
    thing = _EXTENT_PATTERN.sub("", ban["object"]).strip()
    if _is_of_files(sentence) and not _THIS_PATTERN.search(thing):
        return True
    is_order = ban["verb"].lower() not in _TALK_VERBS
    is_named = bool(thing) and thing[0] not in ",;:("
    return is_order and is_named and not _ONE_THING_PATTERN.search(thing)


def _is_of_files(sentence: str) -> bool:
    """Return True if a sentence forbids to change files of a kind or of a folder."""
    paths = [limit.words[0] for limit in limits_of(sentence) if limit.kind == "path"]
    if paths and _FILES_PATTERN.search(sentence):
        return True
    return any(path.endswith("/") or "*" in path for path in paths)


def _is_choice(sentence: str) -> bool:
    """Return True for a choice of a tool, and against another one."""
    choice = _CHOICE_PATTERN.search(sentence)
    if choice is None or _MOMENT_PATTERN.search(choice["wanted"]):
        return False
    is_ours = choice["owner"].strip().lower() not in ("use", "prefer")
    if choice["other"] is None and not is_ours:
        return False
    names = {choice["wanted"].lower(), (choice["other"] or "").lower()}
    return names.isdisjoint(_ARTICLES) and len(choice["rest"].split()) <= 3


def _reach_of(text: str) -> RuleReach:
    """Return how far a rule reaches, by its words."""
    if _ALL_PROJECTS_PATTERN.search(text):
        return "all"
    return "session" if _SESSION_PATTERN.search(text) else "project"
