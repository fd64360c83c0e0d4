"""The rules that came with a repository: where they are, and whether a person approved.

The file is data of whoever could push to the repository. Hooks tell nothing of it; they
tell the rules that a person stored in memory when approving it. A hook process only
compares the digest of the file with the one that was approved.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import UsageError
from heedful.store.ownership import approve, home_folder, private
from heedful.store.workspace import find_repository, read_project_file

# As `lessons.shared` names it, which a hook process need not import.
RULES_PATH = Path(".heedful") / "rules.md"
# What an approval of the file is about, as settings have parts.
RULES_PART = "team rules"
NO_CONTENT = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesFile:
    """The file of a repository with its rules: where it is, and what it has.

    `problem` says why it cannot be read, "" if it can. A file that does not exist has
    no content.
    """

    path: Path
    root: Path
    content: bytes = NO_CONTENT
    problem: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of the content in hex, which an approval is for."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to approve."""
        return self.content == NO_CONTENT and not self.problem


def find_rules(folder: Path) -> RulesFile | None:
    """Return the file with the rules of a folder's repository; None outside of one.

    All worktrees follow the file of the main one, as they do with settings.
    """
    repository = find_repository(folder)
    if repository is None:
        return None

    root = repository.root
    path = root / RULES_PATH
    try:
        content = read_project_file(path, within=root)
    except (FileNotFoundError, NotADirectoryError):
        return RulesFile(path=path, root=root)
    except (OSError, UsageError) as error:
        return RulesFile(path=path, root=root, problem=str(error))
    return RulesFile(path=path, root=root, content=content)


def record_approval(name: str, content: bytes) -> None:
    """Record that a person approved this content of a file, and keep a copy.

    A later change is shown as the difference from the copy. Raises OSError, UsageError.
    """
    digest = hashlib.sha256(content).hexdigest()
    with open(_copy_of(digest), "wb", opener=private) as file:
        file.write(content)
    approve("files", {name: digest})


def approved_content(digest: str) -> bytes:
    """Return the content that was approved with this digest; b"" if it is not kept."""
    with suppress(OSError):
        content = _copy_of(digest).read_bytes()
        if hashlib.sha256(content).hexdigest() == digest:
            return content
    return NO_CONTENT


def _copy_of(digest: str) -> Path:
    """Return the place of the copy of an approved file."""
    folder = home_folder() / "approved-rules"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{digest[:32]}.md"
