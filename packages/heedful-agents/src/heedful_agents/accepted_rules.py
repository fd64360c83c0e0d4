"""The team's rules in a repository: followed in the version that the user accepted.

The file is data of whoever could push to the repository. Hooks tell nothing of it; they
tell the rules that were stored in memory when the user accepted the file. A copy of
what was accepted lies in the user's folder.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from heedful.errors import UsageError
from heedful.store.projects import (
    Project,
    find_project,
    find_repository,
    read_project_file,
)

# As `lessons.team_rules` names it, which a hook process need not import.
RULES_PATH = Path(".heedful") / "rules.md"
ACCEPT_COMMAND = "heedful rules accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesFile:
    """The file of a repository with its rules: where it is, and what it has.

    `problem` says why it cannot be read, "" if it can. A file that does not exist has
    no content.
    """

    path: Path
    root: Path
    content: bytes = b""
    problem: str = ""


def find_rules(folder: Path) -> RulesFile | None:
    """Return the file with the rules of a folder's repository; None outside of one.

    All worktrees follow the file of the main one.
    """
    repository = find_repository(folder)
    if repository is None:
        return None

    root = repository.root
    file = RulesFile(path=root / RULES_PATH, root=root)
    try:
        return replace(file, content=read_project_file(file.path, within=root))
    except (FileNotFoundError, NotADirectoryError):
        return file
    except (OSError, UsageError) as error:
        return replace(file, problem=str(error))


def doubt_about_rules(folder: Path) -> str:
    """Return that the rules of a repository are not followed, "" if they are or if
    there are none.
    """
    file = find_rules(folder)
    if file is None:
        return ""
    if file.problem:
        return f"{file.path} is not followed: {file.problem}"
    if file.content == accepted_content(find_project(folder)):
        return ""
    version = hashlib.sha256(file.content).hexdigest()[:12]
    return (
        f"{file.path} is not what you accepted, but version {version}; to look at it: "
        f"{ACCEPT_COMMAND}"
    )


def accepted_content(project: Project) -> bytes:
    """Return the content that the user accepted, b"" if there is none."""
    with suppress(OSError):
        return project.accepted_rules.read_bytes()
    return b""
