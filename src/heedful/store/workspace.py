"""The folder in which heedful works: its repository and its settings.

Anyone may have written the files of a folder. So a file of a project is read only if it
is a regular file of bounded size. Settings are tables of TOML files.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from heedful.errors import UsageError

# The most of a file of a project that is read.
MAX_PROJECT_FILE_BYTES = 2**20


class Repository(NamedTuple):
    """A git repository, as seen from a folder in it.

    `git` is the folder of git, which all worktrees share. `top` is the root of the
    worktree, and `root` the folder with the settings: the root of the main worktree.
    Bare repositories and submodules have no main worktree beside the folder of git.
    """

    git: Path
    root: Path
    top: Path


def find_repository(folder: Path) -> Repository | None:
    """Return the repository with this folder, None if there is none.

    A submodule belongs to the repository around it.
    """
    for top in (folder, *folder.parents):
        git = top / ".git"
        if git.is_dir() and not git.is_symlink():
            return Repository(git=git, root=top, top=top)

        with suppress(OSError, ValueError, UsageError):
            common = _common_git_folder(git)
            # In `project/.git/worktrees/x`, the main worktree is `project`.
            root = common.parent if common.name == ".git" else top
            return Repository(git=common, root=root, top=top)
    return None


def _common_git_folder(link: Path) -> Path:
    """Return the folder of git of a worktree, whose `.git` is the file `link`.

    It says `gitdir: ../main/.git/worktrees/x`. In that folder, the file `commondir`
    names the `.git` of the main repository, and the file `gitdir` names `link`. Raises
    OSError, ValueError or UsageError if this is not so: anyone can write a `.git` that
    claims to belong to a repository, which does not know it.
    """
    target = read_project_file(link).decode("utf-8").removeprefix("gitdir:")
    worktree = (link.parent / target.strip()).resolve()
    common_name = read_project_file(worktree / "commondir").decode("utf-8")
    common = (worktree / common_name.strip()).resolve()
    link_name = read_project_file(worktree / "gitdir").decode("utf-8")
    known_link = (worktree / link_name.strip()).resolve()

    if worktree.parent != common / "worktrees" or known_link != link.resolve():
        raise ValueError(f"{common} has no worktree {link.parent}")
    return common


def project_top(folder: Path) -> Path:
    """Return the folder that git fills, the root of a worktree too, or `folder`."""
    for top in (folder, *folder.parents):
        if os.path.lexists(top / ".git"):
            return top
    return folder


def project_root(folder: Path) -> Path:
    """Return the folder with the settings of a project.

    It is the root of the main worktree, or of the submodule, which has files of its
    own. Outside of repositories it is `folder`.
    """
    top = project_top(folder)
    repository = find_repository(folder)
    if repository is not None and repository.top == top:
        return repository.root
    return top


def read_project_file(path: Path, within: Path | None = None) -> bytes:
    """Return the content of a file that others may have written.

    Raises OSError if it cannot be read, and UsageError if it is not a regular file,
    lies outside of the folder `within`, or has more than 1 MiB.
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

    Raises UsageError if it is not a regular file but, for example, a pipe.
    """
    # Windows has neither of them.
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor

    os.close(descriptor)
    raise UsageError(f"{path} is not a regular file; remove it")


def read_table(file: str | Path, *keys: str) -> dict[str, Any]:
    """Return a table of a TOML file of a project, {} if it or the file does not exist.

    `keys` is the path to the table: "tool", "heedful" for `[tool.heedful]`. Raises
    UsageError.
    """
    path = Path(file).absolute()
    try:
        content = read_project_file(path)
        # Most files of Python projects have no settings of heedful.
        if keys and keys[-1].encode() not in content:
            return {}
        import tomllib  # few folders have such a file

        table: Any = tomllib.loads(content.decode("utf-8"))
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
