"""Why memory does not say something: a code with its figures, its words and its cure.

A `Reason` is what is stored and sent. Its words stand in `_WORDS` only, and what a
person can do about it in `_CURES`; every face shows these, and no code reads them.
"""

from dataclasses import KW_ONLY, field
from typing import Any

from heedful.errors import install_line
from heedful.validation import Document, Fields, typed_frozen

HOLDOUT_REASON = "left out at random, to measure whether it helps"
PROOF_COMMAND = "heedful proof"
_SELDOM = "so only one loop in {interval} is shown it"
# The words of each code, of a lesson that is not shown and then of a silent memory.
_WORDS = {
    "holdout": HOLDOUT_REASON,
    "harmful memory": (
        "memory is proven to hurt in this project, so it is shown to one loop in 40"
    ),
    "distance": "it is about another task",
    "other failure": "it is about another failure",
    "distance by words": "it is about another task",
    "no room": "what comes first fills the prompt",
    "same": "another one says the same",
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
    "no fix": "nothing is known to put it right",
    "own": "only this session has met it",
    "unsettled": "no other call is known to help, so it may have been the moment",
    "files": "the files that it is about are gone",
    "later": "the loop began before it was learnt",
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
    "told": "it was told, or met, in this session",
    "nothing known": "nothing is known",
    "slow": "no answer",
    "no memory": "there is no memory",
    "no memory or room": "there is no memory, or no room to show it",
    "waits": "waits in quarantine: {release}",
    # Of failures that do not recur.
    "nothing recurs": (
        "nothing recurs: a reflection needs three failures of two runs that name one "
        "tool, file or error, at least two of them fixed by a call"
    ),
    "text waits": "1 text waits in quarantine",
    "texts wait": "{number} texts wait in quarantine",
}


_EDIT_COMMAND = "heedful lessons edit {lesson} TEXT --by NAME"
_RESTORE_COMMAND = "heedful proof --restore {lesson} --by NAME"
_LIST_COMMAND = "heedful quarantine list"
# The command that changes it, and what the command is for.
_CURES = {
    "harmful memory": (PROOF_COMMAND, "see why"),
    "distance by words": (
        "HEEDFUL_EMBEDDER=minilm heedful lessons reembed",
        "compare meanings",
    ),
    "quarantine": ("{release}", "change that"),
    "retired": (_RESTORE_COMMAND, "change that"),
    "harmful": (_RESTORE_COMMAND, "change that"),
    "particulars": (_EDIT_COMMAND, "change that"),
    "no strategy": (_EDIT_COMMAND, "change that"),
    "no evidence": (_EDIT_COMMAND, "change that"),
    "dreamt": (_EDIT_COMMAND, "change that"),
    "text waits": (_LIST_COMMAND, "see what"),
    "texts wait": (_LIST_COMMAND, "see what"),
    "lesson": ("{command}", "{purpose}"),
}


def say(code: str, **figures: Any) -> str:
    """Return the words of a code, with these figures."""
    return _WORDS.get(code, code).format(**figures)


@typed_frozen(slots=True)
class Reason:
    """The one thing that keeps a lesson from a prompt, or memory from any word.

    `code` says what it is, `figures` are those of its words and of its cure.
    """

    code: str
    _: KW_ONLY
    figures: Fields = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, code: str, **figures: Any) -> "Reason":
        """Return a reason with those of the figures that its words or its cure name."""
        texts = (_WORDS.get(code, ""), *_CURES.get(code, ()))
        fields = "".join(texts)
        shown_figures = {
            name: value for name, value in figures.items() if f"{{{name}" in fields
        }
        return cls(code, figures=shown_figures)

    @classmethod
    def read(cls, plain: Fields) -> "Reason":
        """Return the reason that `plain` wrote."""
        return cls(plain["code"], figures=plain["figures"])

    def plain(self) -> Document:
        """Return the reason as JSON data.

        It has the code and its figures, and made of these, for a person, the words and
        the command that helps.
        """
        return {
            "code": self.code,
            "figures": dict(self.figures),
            "words": self.words,
            "command": self.command,
        }

    @property
    def words(self) -> str:
        """The reason in words."""
        return say(self.code, **self.figures)

    @property
    def command(self) -> str:
        """The command line that changes it; "" if no command helps."""
        command, _ = _CURES.get(self.code, ("", ""))
        return command.format(**self.figures)

    @property
    def purpose(self) -> str:
        """What the command is for."""
        _, purpose = _CURES.get(self.code, ("", ""))
        return purpose.format(**self.figures)

    @property
    def cure(self) -> str:
        """What to do about it, after a semicolon; "" without a command."""
        return f"; to {self.purpose}: {self.command}" if self.command else ""

    @property
    def sentence(self) -> str:
        """The reason in words, with what to do about it."""
        return f"{self.words}{self.cure}"
