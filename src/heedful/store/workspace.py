"""The folder in which heedful works: its repository, its databases and its settings.

A repository has a memory of its own, in a file that git ignores. What belongs to no
repository is in the home folder. Settings are tables of TOML files.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from heedful.errors import UsageError
from heedful.store import DEFAULT_DATABASE_FILE, POSTGRES_PREFIXES


def repository(folder: Path) -> Path | None:
    """Return the root of the git repository with this folder, None if there is none.

    The root of a worktree is that of its main repository.
    """
    for root in (folder, *folder.parents):
        git = root / ".git"
        if git.is_dir():
            return root

        with suppress(OSError, ValueError):
            # The `.git` of a worktree is a file: `gitdir: ../main/.git/worktrees/x`. In
            # that folder, the file `commondir` names the `.git` of the main repository.
            link = git.read_text(encoding="utf-8")
            worktree = root / link.removeprefix("gitdir:").strip()
            common = (worktree / "commondir").read_text(encoding="utf-8").strip()
            return (worktree / common).resolve().parent
    return None


def prepare_database(db: str) -> str:
    """Return the name of a database; let git ignore a new file in a repository."""
    path = Path(db).absolute()
    if db.startswith(POSTGRES_PREFIXES) or db == ":memory:" or path.exists():
        return db

    if (path.parent / ".git").is_dir():
        exclude = path.parent / ".git" / "info" / "exclude"
        exclude.parent.mkdir(exist_ok=True)
        with exclude.open("a", encoding="utf-8") as file:
            file.write(f"\n/{path.name}*\n")
    return db


def own_db() -> Path:
    """Return the file in the home folder, for what belongs to no repository."""
    return Path.home() / ".heedful" / DEFAULT_DATABASE_FILE


def read_table(file: str | Path, *keys: str) -> dict[str, Any]:
    """Return a table of a TOML file, {} if it or the file does not exist.

    `keys` is the path to the table: "tool", "heedful" for `[tool.heedful]`. Raises
    UsageError.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        import tomllib  # few folders have such a file

        table: Any = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{file} cannot be read: {error}; correct or remove it"
        ) from error

    for key in keys:
        if not isinstance(table, dict):
            break
        table = table.get(key, {})
    if not isinstance(table, dict):
        raise UsageError(f"[{'.'.join(keys)}] in {file} must be a table")
    return table
