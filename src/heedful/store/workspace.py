"""The folder in which heedful works: its repository and its settings.

Anyone may have written the files of a folder. So a file of a project is read only if it
is a regular file of bounded size inside of the project, and git runs no program that
the folder names. A repository has a memory of its own, in the folder of git, where no
pull, merge or checkout writes. Settings are tables of TOML files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from heedful.errors import UsageError
from heedful.store import DEFAULT_DATABASE_FILE

# The most of a settings file that is read: with more, a hook has no time to answer.
MAX_PROJECT_FILE_BYTES = 2**20
# A key of TOML with many parts takes memory that grows with their square.
_LONG_KEY_PATTERN = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){32}"""
)
GIT_TIMEOUT_SECONDS = 10.0
# What git must not take from the configuration of a folder: programs that it runs, and
# a folder that only looks like a repository.
_SAFE_GIT_OPTIONS = (
    "--no-pager",
    "-c core.fsmonitor=false",
    "-c core.hooksPath=/dev/null",
    "-c safe.bareRepository=explicit",
)
# Without these no command of git takes a lock, asks for a password or fetches anything.
_SAFE_GIT_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}


def repository(folder: Path) -> Path | None:
    """Return the root of the git repository with this folder, None if there is none.

    The root of a worktree is that of its main repository.
    """
    git = git_folder(folder)
    return None if git is None else git.parent


def git_folder(folder: Path) -> Path | None:
    """Return the folder of git, which the worktrees of a repository share, or None."""
    for root in (folder, *folder.parents):
        git = root / ".git"
        if git.is_dir():
            return git

        with suppress(OSError, ValueError, UsageError):
            # The `.git` of a worktree is a file: `gitdir: ../main/.git/worktrees/x`. In
            # that folder, the file `commondir` names the `.git` of the main repository.
            link = read_project_file(git).decode("utf-8")
            worktree = (root / link.removeprefix("gitdir:").strip()).resolve()
            common_link = read_project_file(worktree / "commondir").decode("utf-8")
            common = (worktree / common_link.strip()).resolve()
            # Elsewhere it would claim to belong to a repository that does not know it.
            if worktree.parent == common / "worktrees":
                return common
    return None


def project_top(folder: Path) -> Path:
    """Return the folder that git fills, the root of a worktree too, or `folder`."""
    for root in (folder, *folder.parents):
        if os.path.lexists(root / ".git"):
            return root
    return folder


def repository_db(folder: Path) -> Path | None:
    """Return the database of the repository with this folder, None without one.

    It is in the folder of git, where git itself never puts a file.
    """
    git = git_folder(folder)
    return None if git is None else git / "heedful" / DEFAULT_DATABASE_FILE


def folder_db(folder: Path) -> Path:
    """Return the database that commands use in a folder, if no setting states one."""
    for place in (folder, repository(folder) or folder):
        path = place / DEFAULT_DATABASE_FILE
        if path.exists():
            return path
    return repository_db(folder) or folder / DEFAULT_DATABASE_FILE


def own_db() -> Path:
    """Return the file in the home folder, for what belongs to no repository."""
    return Path.home() / ".heedful" / DEFAULT_DATABASE_FILE


def run_git(folder: Path, words: Sequence[str]) -> str | None:
    """Return what a command of git prints, None if it fails or is not there.

    It runs no program that the repository names: no monitor of files, hook, filter or
    transport. So `words` must be a command that compares no contents.
    """
    import shutil
    import subprocess  # most hooks ask git nothing

    program = shutil.which("git")
    # A relative path would be a program of the folder.
    if program is None or not os.path.isabs(program):
        return None

    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }
    options = [word for option in _SAFE_GIT_OPTIONS for word in option.split()]
    try:
        process = subprocess.run(
            [program, *options, *words],
            cwd=folder,
            env={**inherited, **_SAFE_GIT_VARIABLES},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.decode("utf-8", "surrogateescape")


def is_tracked(path: Path) -> bool:
    """Return True if git tracks a file, in whatever case its name is written."""
    pattern = f":(icase,literal){path.name}"
    words = ["ls-files", "--error-unmatch", "--", pattern]
    return run_git(path.parent, words) is not None


def read_project_file(path: Path, within: Path | None = None) -> bytes:
    """Return the content of a file that others may have written.

    Raises OSError if it cannot be read, and UsageError if it is no regular file, lies
    outside of the folder `within`, or has more than 1 MiB.
    """
    real = os.path.realpath(path)
    if within is not None and not Path(real).is_relative_to(within.resolve()):
        raise UsageError(
            f"{path} is a link to {real}, outside of {within}; put a file in its place"
        )

    with open(real, "rb", opener=_open_regular_file) as file:
        content = file.read(MAX_PROJECT_FILE_BYTES + 1)
    if len(content) > MAX_PROJECT_FILE_BYTES:
        raise UsageError(
            f"{path} has more than {MAX_PROJECT_FILE_BYTES} bytes; shorten or remove it"
        )
    return content


def _open_regular_file(path: str, flags: int) -> int:
    """Open a file as `open` does for an `opener`, without waiting for its other end.

    Raises UsageError if it is no regular file, such as a device or a pipe.
    """
    # Windows has neither of them.
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor

    os.close(descriptor)
    raise UsageError(f"{path} is no regular file; remove it")


def read_table(file: str | Path, *keys: str) -> dict[str, Any]:
    """Return a table of a TOML file of a project, {} if it or the file does not exist.

    `keys` is the path to the table: "tool", "heedful" for `[tool.heedful]`. Raises
    UsageError.
    """
    path = Path(file).absolute()
    try:
        content = read_project_file(path, within=project_top(path.parent))
        # Most files of Python projects have no settings of heedful.
        if keys and keys[-1].encode() not in content:
            return {}
        table: Any = _parse_toml(content.decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
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


def _parse_toml(text: str) -> dict[str, Any]:
    """Return the document of a text in TOML. Raises ValueError, RecursionError."""
    import tomllib  # few folders have such a file

    if _LONG_KEY_PATTERN.search(text):
        raise ValueError("a key has 32 parts or more")
    return tomllib.loads(text)
