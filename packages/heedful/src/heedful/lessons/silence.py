"""Why memory is silent: what keeps a lesson from a prompt, as a record, and its words.

An `Obstacle` has a code and figures. It is what is stored and sent; its words are in
`_WORDS` only, and every face shows them. No code reads them.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from heedful.errors import install_line

HOLDOUT_REASON = "left out at random, to measure whether it helps"
PROOF_COMMAND = "heedful proof"
EMBED_COMMAND = "HEEDFUL_EMBEDDER=minilm heedful lessons reembed"
LIST_COMMAND = "heedful quarantine list"
# What a command is for that does not release, restore or edit the lesson.
COMMAND_PURPOSES = {
    PROOF_COMMAND: "see why",
    EMBED_COMMAND: "compare meanings",
    LIST_COMMAND: "see what",
}
_SELDOM = "so only one loop in {interval} is shown it"
# The words of each code, of a lesson that is not shown and then of a silent memory.
_WORDS = {
    "holdout": HOLDOUT_REASON,
    "harmful memory": (
        "memory is proven to hurt in this project, so it is shown to one loop in 40"
    ),
    "distance": "it is about another task",
    "alike": (
        "many lessons are near the task, and its words do not tell that this one fits"
    ),
    "no room": "what comes first fills the prompt",
    "same rule": "another rule says the same",
    "quarantine": "it waits in quarantine with the trust {trust}",
    "retired": "it was retired",
    "refused": "a check of the loop refuses its answer now",
    "other function": "another memory key accepted it, and may want other answers",
    "answers": "no fix for all tasks is known, and those of its key show what is right",
    "particulars": (
        "its findings have little more in common than the particulars of their tasks"
    ),
    "other check": "found by the check {check!r}, which this loop does not have",
    "never fixed": "fixed in none of {loops} loops, and no fix is known",
    "broken once": (
        "broken in 1 loop and fixed in none; shown once a second loop breaks it"
    ),
    "seldom fixed": "fixed in {mended} of {loops} loops, " + _SELDOM,
    "kept": "the last {quiet} loops kept this rule, " + _SELDOM,
    "harmful": "the proof says that it hurts loops of {model}",
    "form": "it is one of the {form}, and the loop wants only {tell}",
    "no strategy": (
        "it has no strategy: it says what went wrong elsewhere, not what to do; "
        "`before` and `seen` show it"
    ),
    "no answer": "it has no accepted answer",
    "other key": (
        "it is a rule of the memory key {key!r}, and the loop has {loop_key!r}: if "
        "they are one function, pass the same memory_key for both"
    ),
    "no evidence": (
        "nothing in its run shows that it helps; agents will be told before such a "
        "call, and with a task after another run has the same failure"
    ),
    "ended": "the same call has worked since, and nothing else is known to help",
    "dreamt": "a dream wrote it; it is shown after a failure that it cites recurs",
    "filter": "it does not match the filter",
    "lesson": "lesson {lesson} is not shown: {words}",
    "no holdout": "a memory with holdout=0 withholds nothing",
    "rules rest": "rules under the key {key!r}: {rules}, none shown now",
    "no rule broken": "no rule was broken under the key {key!r}",
    "no key": (
        "no memory key, so no rules: name the function (a lambda has no key), or pass "
        "memory_key (command line: --key)"
    ),
    "no lesson": "no lesson is about a similar task",
    # Without vectors, only tasks with the same words are similar.
    "no lesson by words": (
        "no lesson is about a similar task (by words; to compare meanings, "
        f"{install_line('embedded')}, and run heedful model fetch minilm)"
    ),
    "empty": "no lesson is stored yet",
    # Of an agent that is shown nothing.
    "withheld": f"{HOLDOUT_REASON}; how often: {PROOF_COMMAND}",
    "told": "it was told in this session",
    "told with the call": "it was told with the call",
    "nothing known": "nothing is known",
    "slow": "no answer",
    "no memory": "there is no memory",
    "no memory or room": "there is no memory, or no room to show it",
    "waits": "waits in quarantine: {release}",
    # Of lessons that are related to none, and of failures that do not recur.
    "no links": "the lesson names no tool, file or error, or is not in use",
    "no common link": "no other lesson in use names the same, or too many do",
    "nothing recurs": (
        "nothing recurs: a reflection needs three failures of two runs that name one "
        "tool, file or error, at least two of them fixed by a call"
    ),
    "text waits": "1 text waits in quarantine",
    "texts wait": "{number} texts wait in quarantine",
}


def say(code: str, **figures: Any) -> str:
    """Return the words of a code, with these figures."""
    return _WORDS.get(code, code).format(**figures)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The one thing that keeps a lesson from a prompt, or memory from any word.

    `code` says what it is, `figures` are those of its words. `command` is a command
    line that changes it, "" if no command helps.
    """

    code: str
    command: str = ""
    _: KW_ONLY
    figures: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def reason(self) -> str:
        """The obstacle in words."""
        return say(self.code, **self.figures)

    @property
    def sentence(self) -> str:
        """The obstacle in words, with what to do about it."""
        return f"{self.reason}{self.cure}"

    @property
    def cure(self) -> str:
        """What to do about it, after a semicolon; "" without a command."""
        if not self.command:
            return ""
        return f"; to {self.purpose}: {self.command}"

    @property
    def purpose(self) -> str:
        """What the command is for."""
        return COMMAND_PURPOSES.get(self.command, "change that")
