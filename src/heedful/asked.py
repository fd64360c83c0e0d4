"""What a question about a run asks, understood by its keywords alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from heedful.reports import Report, StageReport

LONGEST = 2_000  # characters of a question that are read

# What is asked -> the words that say so, in the order in which they are looked for.
INTENTS: Mapping[str, str] = {
    "count": r"(?:how many|number of) (?:\w+ )?(?:attempts|tries|retries|reruns|times)",
    "cost": r"how (?:long|slow|fast|much|expensive)|durations?|runtime|seconds|minutes|slow\w*"
    r"|longest|costs?|tokens?|expensive|price|spen[dt]|(?:model )?calls",
    "most": r"(?:most|least) (?:often|frequent\w*|common\w*|likely)|how often|worst check"
    r"|fail\w*(?: \w+){0,3} most|most(?: \w+){0,3} fail\w*",
    "changed": r"chang\w*|diff\w*|compar\w*|improv\w*|between",
    "fed_back": r"fe?ed ?back|feedback|fed|told|tell|suggest\w*|advi[cs]\w*|instruct\w*|hint\w*"
    r"|fix\w*|correct(?:ed|ion\w*)",
    "ended": r"stop\w*|halt\w*|continu\w*|degrad\w*|(?:went|go|goes|carr(?:y|ied)) on|proceed\w*"
    r"|g[ai]ve up|exhaust\w*|despite|in spite|anyway|kept(?! \w+ing)|interrupt\w*|abort\w*|ended"
    r"|end up|open|skip\w*|not run|finish\w*|broken off",
    "retried": r"re (?:tr\w*|ran|run\w*|do\w*|generat\w*)|retr(?:y|ie\w*)\w*|reran|rerun\w*"
    r"|repeat\w*|redo\w*|regenerat\w*|again|another|twice|thrice|more than (?:once|one)",
    "warned": r"warn\w*",
    "failed": r"fail\w*|wrong|reject\w*|problem\w*|errors?|issues?|bad|broke|critical|violat\w*"
    r"|(?:not|\w+n['’]t|didnt|doesnt) (?:\w+ ){0,4}?(?:pass\w*|accept\w*|ok|valid\w*|work\w*"
    r"|succe\w*)|detect\w*|hallucinat\w*|complain\w*|crash\w*|findings?|flag\w*|raised",
    "passed": r"pass\w*|succe\w*|ok|okay|work(?:s|ed)?|accept\w*|good|recover\w*|status|state|fine"
    r"|stands?|valid(?:ated)?",
    "summary": r"summar\w*|overview|happen\w*|timeline|report|story|how did|tell me about|go",
}
_FOUND = {name: re.compile(rf"(?<!\w)(?:{words})(?!\w)") for name, words in INTENTS.items()}
_WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh".split()
_ORDINALS += ["twelfth"]
NUMBERS = {word: n for n, word in enumerate(_WORDS, 1)}
ORDINALS = {word: n for n, word in enumerate(_ORDINALS, 1)} | {"last": -1, "final": -1}
_CARDINAL = rf"(?:[0-9]{{1,6}}|{'|'.join(_WORDS)})"
_MORE = rf"(?:(?:,| and|, and| to| &| or) #?{_CARDINAL})*"
_AFTER = rf"(?: number| no\.?)? ?#?(?P<after>{_CARDINAL}{_MORE})"
_BEFORE = rf"(?:(?P<digits>[0-9]{{1,6}})(?:st|nd|rd|th)|(?P<word>{'|'.join(ORDINALS)})) "
_PLACED = {
    what: re.compile(rf"(?<!\w)(?:(?:{names})s?{_AFTER}|{_BEFORE}(?:{names})s?)(?!\w)")
    for what, names in {"stage": "stage|step", "attempt": "attempt|try|trial|time"}.items()
}
# Words of any question: next to "stage" or "check" they name none.
GENERAL = frozenset(
    """
    a all an and any are as at be been being but by can check checks could did do does each either
    every few for from get give given gets got had has have he her his how i if in into is it its
    just last first final made make makes many may me more most much my need needed needs next no
    not of off on once only or other others our out over own pipeline please previous result results
    run runs same say says see she should show so some stage stages step steps still such take takes
    than that the their them then there these they this those to too took try tries attempt attempts
    up us use used very was we went were what when where which while who whole whom whose why will
    with without would you your about after before because both during ever exactly reason reasons
    cause caused come came comes actually really output outputs input inputs data one two three
    explain describe list it's re
    """.split()
)
# After an article "stage" is a word: what follows is not its name.
_BARE = "".join(f"(?<!{w} )" for w in "the a this that each every any no which what one".split())
_ASKING = re.compile(r"(?:please |(?:can|could|would|will) you |(?:tell|show|give) (?:me|us) )+")
_QUOTED = re.compile(r"(?<!\w)[\"“'‘`]([^\"”'’`]{1,200})[\"”'’`](?!\w)")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked (a key of `INTENTS`, "" where no word says) about which parts of a report.

    What is empty was not named, and means all. `needed` says that an attempt itself was asked for,
    not what became of it ("why a second attempt?"). `missing` says what the report does not have.
    """

    intent: str = ""
    stages: tuple[StageReport, ...] = ()
    attempts: tuple[int, ...] = ()
    checks: tuple[str, ...] = ()
    needed: bool = False
    missing: str = ""


def asked(report: Report, question: str) -> Asked:
    """What the question asks of this report. Any text will do."""
    reading = _Reading(report, question[:LONGEST])
    names = tuple(dict.fromkeys(reading.checks))
    stages = tuple(one for one in report.stages if one.name in reading.stages)
    attempts = tuple(sorted(set(reading.attempts(stages or report.stages))))
    intent = next((name for name, words in _FOUND.items() if words.search(reading.text)), "")
    needed = not intent and bool(attempts) and "why" in reading.text.split()
    if not intent:
        intent = "retried" if needed else "failed" if names else ""
        intent = intent or ("summary" if stages or attempts else "")
    return Asked(intent, stages, attempts, names, needed, next(reading.unknown(), ""))


class _Reading:
    """A question being read: names and numbers are taken out of `text` as they are understood."""

    def __init__(self, report: Report, question: str) -> None:
        self._report = report
        self._wrong: list[str] = []
        self._numbers: list[int] = []
        self.stages: set[str] = set()
        self.checks: list[str] = []
        self._quoted = [_plain(found) for found in _QUOTED.findall(question)]
        self._idents = [_plain(one) for one in re.findall(r"\w+(?:_\w+)+", question)]
        self.text = _ASKING.sub(" ", f" {_plain(question)} ")
        known = [one.name for one in report.stages]
        for name in self._named(known, "stage"):
            self.stages.add(name)
        self._numbered(known)
        self.checks += self._named(check_names(report), "check")
        self._parts()
        self._numbers = list(self._taken("attempt"))
        self.text = " ".join(self.text.split())

    def _named(self, names: Sequence[str], what: str) -> Iterator[str]:
        """The names in the text, the longest first, each taken out."""
        for name in sorted(names, key=len, reverse=True):
            words = re.escape(_plain(name))
            if not words:
                continue
            mention = rf"(?<!\w){words}(?!\w)"
            if _common(_plain(name)) and _plain(name) not in self._quoted:
                mention = rf"(?<!\w)(?:{what}s? {words}|{words} {what})(?!\w)"
            if re.search(mention, self.text):
                self.text = re.sub(mention, " it ", self.text)
                self._quoted = [one for one in self._quoted if one != _plain(name)]
                self._idents = [one for one in self._idents if _plain(name) not in one]
                yield name

    def _numbered(self, known: Sequence[str]) -> None:
        for number in self._taken("stage"):
            if 0 < number <= len(known) or (number == -1 and known):
                self.stages.add(known[number if number < 0 else number - 1])
            else:
                count = f"{len(known)} stage{'' if len(known) == 1 else 's'}"
                self._wrong.append(f"stage {number}: the run has {count}")

    def _parts(self) -> None:
        """A check by one of its words, as in "the variance check"."""
        for word in re.findall(r"(\w+) checks?\b", self.text):
            found = [one for one in check_names(self._report) if word in _plain(one).split()]
            if found and word not in GENERAL:
                self.checks += found
                self.text = re.sub(rf"(?<!\w){word} checks?\b", " it ", self.text)

    def _taken(self, what: str) -> Iterator[int]:
        """The numbers that follow or come before the word, all taken out."""
        for found in _PLACED[what].finditer(self.text):
            if found["digits"] or found["word"]:
                yield int(found["digits"] or ORDINALS[found["word"]])
            for one in re.findall(_CARDINAL, found["after"] or ""):
                yield NUMBERS[one] if one in NUMBERS else int(one)
        self.text = _PLACED[what].sub(" it ", self.text)

    def attempts(self, stages: Sequence[StageReport]) -> Iterator[int]:
        """The attempts that are named and were made in any of these stages."""
        most = max((len(stage.attempts) for stage in stages), default=0)
        for number in self._numbers:
            if number == -1 and most:
                yield most
            elif 0 < number <= most:
                yield number
            else:
                where = f"stage {stages[0].name}" if len(stages) == 1 else "no stage"
                said = f"made {most}" if len(stages) == 1 else f"made more than {most}"
                self._wrong.append(f"attempt {number}: {where} {said}")

    def unknown(self) -> Iterator[str]:
        """What was named and is not in the report."""
        yield from self._wrong
        for what, names in self._all().items():
            for pattern in (rf"{_BARE}\b{what} (\w+)", rf"(\w+) {what}\b"):
                for word in re.findall(pattern, self.text):
                    if not _common(word):
                        yield f"a {what} called {word!r}{_near(word, names)}"
        every = [name for names in self._all().values() for name in names]
        for name in (*self._quoted, *self._idents):
            yield f"{name!r}{_near(name, every)}"

    def _all(self) -> Mapping[str, Sequence[str]]:
        return {
            "stage": [one.name for one in self._report.stages],
            "check": check_names(self._report),
        }


def check_names(report: Report) -> list[str]:
    """The names of all checks of a report, in order, each once."""
    attempts = [made for stage in report.stages for made in stage.attempts]
    return list(dict.fromkeys(one.check_name for made in attempts for one in made.checks))


def _plain(text: str) -> str:
    """Lower case, words parted by one space; what parts the words of a name counts as a space."""
    return re.sub(r"[\s_\-/]+", " ", text.casefold()).strip()


def _common(word: str) -> bool:
    """Whether it is a word of any question, so that only its place makes it a name."""
    number = word.isdigit() and len(word) < 7
    return word in GENERAL or number or any(one.fullmatch(word) for one in _FOUND.values())


def _near(word: str, names: Sequence[str]) -> str:
    known = {_plain(one): one for one in names}
    if near := get_close_matches(word, known, n=1):
        return f" (did you mean {known[near[0]]}?)"
    return f" (there are: {', '.join(names[:12])})" if names else " (there is none)"
