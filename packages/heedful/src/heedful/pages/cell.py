"""Records as HTML in a cell of a notebook: results, reports, lessons and proofs.

The look is that of the reports. Its style is held within the cell (`@scope`), so that
the notebook keeps its own; a browser that does not know this shows plain HTML. Texts
are data, as on every page.
"""

from functools import cache
from typing import Any

from heedful.drive.result import Result
from heedful.lessons.lesson import Lesson, Match, Matches
from heedful.lessons.proof import Proof
from heedful.lessons.proof_words import say_missing, word_effects
from heedful.loop.explain import Explanation
from heedful.loop.runs import Report
from heedful.pages.run_report import STYLE_FILE, environment

# The template has a macro for each kind of record.
_MACROS: tuple[tuple[type, str], ...] = (
    (Result, "result"),
    (Explanation, "explanation"),
    (Report, "report"),
    (Matches, "matches"),
    (Match, "match"),
    (Lesson, "lesson"),
    (Proof, "proof"),
)


def html(record: object) -> str:
    """Return a record as HTML that brings its own style. Raises TypeError."""
    for kind, macro in _MACROS:
        if isinstance(record, kind):
            module: Any = _template().module
            return str(module.cell(getattr(module, macro)(record), _style()))
    raise TypeError(f"no HTML for a {type(record).__name__}")


@cache
def _template() -> Any:
    """Return the template of cells."""
    names = {
        "MOST": 10,
        "say_missing": say_missing,
        "word_effects": word_effects,
    }
    return environment().get_template("cell.html.j2", globals=names)


@cache
def _style() -> str:
    """Return the style of the pages for a scope: its root is the cell."""
    return STYLE_FILE.read_text(encoding="utf-8").replace(":root", ":scope")
