"""heedful: the reflection engine for LLM agents and pipelines.

heedful decides when an agent should try again and when it must stop, and it helps the
agent not to repeat a mistake.

A public name is imported at its first use, so `import heedful` is fast. The table below
is the only list of public names; `scripts/stub.py` makes `__init__.pyi` from it for
type checkers.
"""

import os
import sys
from importlib import import_module
from typing import Any

from heedful import notebook

# The public names by module: `heedful.run` is `run` of `heedful.drive.run_loop`.
_NAMES = {
    "checks.evaluate": "Context context",
    "client": "Client",
    "drive.run_loop": "Run run",
    "drive.generate": "Rung Writer targeted",
    "drive.options": "LoopOptions",
    "drive.portal": "run_sync self_correcting",
    "drive.report": "AttemptReport ReportedLoop learn open_loop override",
    "drive.result": "Result",
    "episodes.episode": "Episode Event Fault",
    "episodes.signals": "repeated_step signals",
    "errors": "HeedfulError NotPassed",
    "lessons.lesson": "Example Lesson",
    "lessons.patterns": "Templates",
    "lessons.scope": "Scope",
    "lessons.signature": "signature",
    "loop.decide": "Again Done Policy decide reasoning",
    "loop.explain": "explain",
    "loop.policies": "policy",
    "loop.record": "Attempt Candidate Evaluation Finding Goal Improvement Loop Usage",
    "loop.replay": "RecordedLoop compare replay",
    "loop.runs": "Report",
    "loop.stop": (
        "All Budget Echo Fatigue MaxAttempts NothingMet Plateau Repeat StopRule"
    ),
    "memory.appraisal": "appraise",
    "memory.dream": "consolidate",
    "memory.hardening": "LessonChecks",
    "memory.memory": "Memory",
    "memory.reflect": "reflect",
    "memory.sessions": "learn_session",
    "memory.trial": "Trial",
    "models": "open_model",
    "models.contract": "Answer Embedder Message Model",
    "pipeline": "Guardrails Pipeline",
    "store": "open_store",
    "store.store": "Store",
}
# The module of each public name.
_HOMES = {
    name: f"heedful.{home}" for home, names in _NAMES.items() for name in names.split()
}
# Modules that are public as a whole.
_MODULES = {
    "checks": "heedful.checks",
    "errors": "heedful.errors",
    "models": "heedful.models",
    "testing": "heedful.testing",
    "episodes": "heedful.episodes",
    "policies": "heedful.loop.policies",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the table is the list

# A notebook shows records as HTML, which only `pages` makes: imported when it does.
notebook.make_html_with(lambda record: import_module("heedful.pages.cell").html(record))


def _finish_imports() -> None:
    """Wait until no other thread is in the middle of importing a module of heedful.

    A forked child has no such thread, and would wait for the module for ever.
    """
    for name in list(sys.modules):
        if name.startswith("heedful."):
            import_module(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_imports)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use; Python calls this if it is missing."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    elif name == "__version__":
        value = import_module("importlib.metadata").version("heedful")
    else:
        errors = import_module("heedful.errors")
        raise errors.MissingAttribute("heedful", name, [*__all__, *_MODULES])

    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_MODULES])
