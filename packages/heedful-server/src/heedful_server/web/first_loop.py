"""Code and commands with which a visitor makes the first loop of an empty project.

A visitor copies and runs them, so they name the database file of the page. Only a
visitor at this machine is told where the file is.
"""

from pathlib import Path

from heedful.lessons.lesson import Scope
from heedful.store import POSTGRES_PREFIXES
from heedful.store.projects import PROJECTS_TABLE, user_folder
from heedful.validation import Document
from heedful_server.web.site import Visit


def begin(visit: Visit) -> Document:
    """Return code that makes a loop in the project of a page, and commands.

    There is no code, only "", if the database is no file. A visitor from another
    machine gets nothing that names a file.
    """
    commands = {
        "code": "",
        "hook": "heedful hook install",
        "projects": "",
        "recorded": "",
    }
    if not visit.is_here:
        return commands

    commands["projects"] = str(user_folder() / PROJECTS_TABLE)
    url = visit.caller.setup.store.url
    if url != ":memory:" and not url.startswith(POSTGRES_PREFIXES):
        commands["code"] = _code(url, visit.caller.scope)
        commands["recorded"] = "heedful demo --recorded"
    return commands


def _code(url: str, scope: Scope) -> str:
    """Return six lines of Python that make two loops in the file of the page.

    Memory shows the second loop what the first one learned.
    """
    # `ascii` quotes whatever stands in a path.
    path = ascii(str(Path(url).absolute()))
    project = ""
    if scope != Scope():
        project = f", scope=heedful.Scope({scope.tenant!a}, {scope.project!a})"
    check = 'heedful.checks.contains("red")'
    lines = (
        "import heedful",
        f"db = {path}",
        f"@heedful.self_correcting(checks=[{check}], store=db, memory=db{project})",
        "def answer(task, hint):  # ask a model here",
        '    return "red" if hint else "blue"',
        'print(answer("Say a colour"), answer("Say a colour again"))',
    )
    return "\n".join(lines)
