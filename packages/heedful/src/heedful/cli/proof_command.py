"""`heedful proof`: whether memory helps, from what loops did with and without it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from typer import Option

from heedful.cli.printing import Row, answer, columns, following, page, shorten
from heedful.cli.resources import ask
from heedful.cli.settings import MAX_OPTION_INTEGER, By, Limit, Why, number_option
from heedful.errors import UsageError
from heedful.lessons import proof as proofs
from heedful.lessons.briefing import HARMFUL_MEMORY
from heedful.lessons.holdout import LoopExposures, SessionTally, Shown
from heedful.lessons.proof_words import say_draws, say_missing, word_proof
from heedful.loop.ladder import LadderFigures
from heedful.memory.memory import Memory
from heedful.store import exposures, reminders
from heedful.store.rulings import name_of
from heedful.validation import Document

# The fields of a lesson that are shown with its proof.
LESSON_FIELDS = (
    "id",
    "text",
    "state",
    "pinned",
    "useful",
    "unfit_for",
)


@dataclass(frozen=True, kw_only=True)
class LessonEvidence:
    """What the store says about the lessons.

    It has the proof, the lessons by `kind/digest`, the number of ended loops with the
    verdict in force, and the share of lessons that is withheld. `shown` counts by name
    how loops ended that were shown it.
    """

    proof: proofs.Proof
    lessons: Mapping[str, Row]
    past: LoopExposures
    holdout: float
    reminders: SessionTally
    shown: Mapping[str, Shown]

    def loops_of(self, result: proofs.Comparison) -> Shown:
        """Return how all loops ended that were shown a lesson, compared or not."""
        return self.shown.get(str(result.lesson), Shown())


def proof(
    limit: Limit = 10,
    restore: Annotated[
        int | None,
        number_option(help="The id of a lesson to restore."),
    ] = None,
    by: By = "",
    why: Why = "",
    model: Annotated[
        str, Option(help="Only loops of this model, as the programs named it.")
    ] = "",
) -> int:
    """Show whether memory helps, with confidence intervals.

    It compares loops that were shown lessons with loops from which they were withheld:
    how often was the first attempt right, and how often did the same error come again?
    The intervals are valid however often you look. heedful retires a lesson that is
    proven to hurt. If a lesson hurts the loops of one model, these loops no longer see
    it. A lesson that an operator wrote or pinned stays until it is unpinned. If memory
    as a whole is proven to hurt, only one loop in 40 is shown it, until a later proof
    ends this. Last come the trials of other memories. With `--model`, only loops of
    this model count. For loops with several models, it shows what each model answered
    and spent.
    """
    if restore is not None:
        return _restore(restore, by=by, why=why)

    evidence = ask(lambda memory: _read_evidence(memory, model))
    comparisons = sorted(
        evidence.proof.lessons, key=lambda result: -(result.shown + result.withheld)
    )
    pairs = [
        (evidence.lessons.get(str(result.lesson)), result)
        for result in comparisons[:limit]
    ]
    proof_words = word_proof(
        evidence.proof, holdout=evidence.holdout, ended=evidence.past.ended
    )
    document = {
        **asdict(evidence.proof),
        "model": model,
        "sentence": proof_words.sentence,
        "lessons": [
            {**_lesson_document(lesson, result), "loops": evidence.loops_of(result)}
            for lesson, result in pairs
        ],
        "ended": evidence.past.ended,
        "verdict": evidence.past.verdict,
        "holdout": evidence.holdout,
        "reminders": evidence.reminders,
    }
    del document["coins"]  # the words of the proof have them
    trial_texts = [
        "\n" + page("trial", proven=trial, say_missing=say_missing)
        for trial in evidence.proof.trials
    ]

    text = page(
        "proof",
        sentence=proof_words.sentence,
        say_missing=say_missing,
        found=evidence.proof,
        model=model,
        pairs=[(lesson, result, evidence.loops_of(result)) for lesson, result in pairs],
        draws=say_draws(evidence.holdout, evidence.past.verdict),
        verdict=evidence.past.verdict,
        harm=HARMFUL_MEMORY.words,
        holdout=evidence.holdout,
        more=len(comparisons) - len(pairs),
    )
    return answer(
        document,
        [text, *trial_texts],
        ladder_tables(evidence.proof.ladders),
        _next_command(pairs),
    )


def _lesson_document(lesson: Row | None, result: proofs.Comparison) -> Document:
    """Return what is proven of a lesson as JSON data.

    The fields of the lesson itself are null if it is no longer stored.
    """
    stored_fields = lesson or {}
    fields = {name: stored_fields.get(name) for name in LESSON_FIELDS}
    return {**asdict(result), **fields}


def _restore(lesson: int, *, by: str, why: str) -> int:
    """Restore a retired lesson. Raises UsageError without a name in `by`."""
    if not by.strip():
        raise UsageError("--restore needs --by: who is responsible")

    ask(lambda memory: memory.quarantine.restore(lesson, by=by, why=why))
    words = f"lesson {lesson} is restored; only later loops count for or against it"
    document = {"restored": lesson, "by": by, "why": why}
    return answer(document, words, following("proof"))


async def _read_evidence(memory: Memory, model: str) -> LessonEvidence:
    """Read the proof of loops of a model, or of all, and all that is shown with it."""
    top_lessons = await memory.top(MAX_OPTION_INTEGER)
    names = map(name_of, top_lessons)
    return LessonEvidence(
        proof=await memory.prove(model),
        lessons=dict(zip(names, top_lessons, strict=True)),
        past=await memory.store.read(memory.scope, exposures.past, ""),
        holdout=memory.holdout,
        reminders=await memory.store.read(memory.scope, reminders.figures),
        shown=await memory.store.read(memory.scope, exposures.tally),
    )


def _next_command(
    pairs: Sequence[tuple[Row | None, proofs.Comparison]],
) -> str:
    """Return what to do next.

    That is to unpin a lesson that hurts, else to restore one that is retired or kept
    from a model, else to look at the lessons.
    """
    lessons = [(lesson, result) for lesson, result in pairs if lesson]
    retired = [
        lesson["id"]
        for lesson, _ in lessons
        if lesson["state"] == "retired" or lesson["unfit_for"]
    ]
    hurting = {
        lesson["id"] for lesson, result in lessons if result.conclusion == "hurts"
    }.difference(retired)

    if hurting:
        return following("lessons", "pin", min(hurting), undo=True, by="NAME")
    if retired:
        return following("proof", restore=retired[0], by="NAME")
    return following("lessons")


RUNG_COLUMNS = columns(
    "rung model answered attempts calls tokens cost seconds",
    answered=lambda figures: f"{figures.tasks} ({figures.share:.0%})",
    cost=lambda figures: f"{figures.cost:.6g}",
)


def rung_table(figures: LadderFigures) -> list[object]:
    """Return the table of the rungs and a line of the overhead."""
    table = shorten(RUNG_COLUMNS, figures.rungs, text_columns=2)
    return [*table, str(figures.overhead)]


def ladder_tables(figures: LadderFigures) -> list[object]:
    """Return how many tasks were solved, and what each rung did; [] without loops."""
    solved = f"\nrungs: {figures.passed} of {figures.tasks} tasks solved"
    return [solved, *rung_table(figures)] if figures.tasks else []
