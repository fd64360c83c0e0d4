"""Where the memory of hooks lies: one file a project, in the folder of the user.

That folder is `~/.heedful`, or `HEEDFUL_HOME` in the user's environment. A project is
known by the real path of git's common folder, which all worktrees share; without git it
is the folder itself. So nothing that a repository brings, and no pull, merge or
checkout, can exchange, read or extend what is remembered of it.

Anyone may have written the files of a project. So one is read only if it is a regular
file of bounded size. Settings are tables of TOML files.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from heedful.errors import NotFound, UsageError
from heedful.store import DEFAULT_DATABASE_FILE
from heedful.validation import MAX_LABEL_CHARS, MAX_READ_BYTES, Document, hex_digest

HOME_VARIABLE = "HEEDFUL_HOME"
SETTINGS_FILE = "heedful.toml"
# The table of the user's settings that has those of single projects, by their paths.
PROJECTS_TABLE = "projects"
_NOTES_FILE = "project.json"
_ACCEPTED_FILE = "accepted-rules.md"
PROJECT_DIGEST_CHARS = 12


def user_folder() -> Path:
    """Return the folder of what belongs to the user. Raises RuntimeError without a
    home.
    """
    stated = os.environ.get(HOME_VARIABLE)
    return Path(stated).expanduser().absolute() if stated else Path.home() / ".heedful"


def own_db() -> Path:
    """Return the user's own database, for what holds in all projects."""
    return user_folder() / DEFAULT_DATABASE_FILE


def private(path: str, flags: int) -> int:
    """Open a file that only its owner may read; this is an `opener` of `open`."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, content: bytes) -> None:
    """Write a file of the user's folder in one step, so that nobody reads half of it.

    Its folder is made, and only the user may read both. Raises OSError.
    """
    _make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with open(draft, "wb", opener=private) as file:
        file.write(content)
    draft.replace(path)


class Project(NamedTuple):
    """A project of the user.

    `place` is the real path by which it is known. `root` names its settings: it is
    the root of the main worktree, or the folder without git.
    """

    place: Path
    root: Path

    @property
    def folder(self) -> Path:
        """The folder in the user's folder with what is remembered of the project.

        Its name begins with that of the project, so that a person finds it, and ends
        with a digest of the whole path, since projects may have the same name.
        """
        path = self.place.parent if self.place.name == ".git" else self.place
        name = re.sub(r"[^\w.-]+", "-", path.name)[:MAX_LABEL_CHARS]
        digest = hashlib.sha256(os.fsencode(self.place)).hexdigest()
        short_digest = digest[:PROJECT_DIGEST_CHARS]
        return user_folder() / PROJECTS_TABLE / f"{name or 'root'}-{short_digest}"

    @property
    def db(self) -> Path:
        """The memory that hooks use in the project."""
        return self.folder / DEFAULT_DATABASE_FILE

    @property
    def accepted_rules(self) -> Path:
        """The copy of the team's rules that the user accepted."""
        return self.folder / _ACCEPTED_FILE

    def notes(self) -> Document:
        """Return what is noted about the project, {} if nothing readable is."""
        with suppress(OSError, ValueError):
            notes = json.loads((self.folder / _NOTES_FILE).read_bytes())
            if isinstance(notes, dict):
                return notes
        return {}

    def note(self, **notes: Any) -> None:
        """Note something about the project. Raises OSError."""
        merged_notes = {"path": str(self.place), **self.notes(), **notes}
        content = json.dumps(merged_notes, indent=2).encode()
        write_private(self.folder / _NOTES_FILE, content)

    def tell_once(self, texts: Iterable[str]) -> list[str]:
        """Return those of the texts that no earlier call for the project was given.

        Their digests are noted, so that the user is told each only once. Raises
        OSError.
        """
        digests = {hex_digest(text)[:PROJECT_DIGEST_CHARS]: text for text in texts}
        known_digests = self.notes().get("told", [])
        news = {
            digest: text
            for digest, text in digests.items()
            if digest not in known_digests
        }
        if news:
            self.note(told=[*known_digests, *news])
        return list(news.values())


def find_project(folder: Path) -> Project:
    """Return the project to which a folder belongs.

    All folders and worktrees of a git repository are one project. Without git, the
    folder itself is the project.
    """
    folder = Path(os.path.realpath(folder))
    repository = find_repository(folder)
    if repository is None:
        return Project(place=folder, root=folder)
    return Project(place=Path(os.path.realpath(repository.git)), root=repository.root)


def folder_db(folder: Path) -> Path:
    """Return the path of the database that commands use in a folder without settings.

    The first of these is taken: a `heedful.db` in the folder, one at the root of its
    project, the database of the hooks if it exists or the folder is in a repository,
    and else a `heedful.db` that is still to be made in the folder.
    """
    for place in (folder, project_root(folder)):
        path = place / DEFAULT_DATABASE_FILE
        # Earlier versions left a link to a database in the folder of git.
        if path.is_file() and not path.is_symlink():
            return path

    database = find_project(folder).db
    is_of_hooks = database.exists() or find_repository(folder) is not None
    return database if is_of_hooks else folder / DEFAULT_DATABASE_FILE


def prepare_database(db: str) -> str:
    """Make the folder of a database, if it is in the user's folder; return `db`.

    `db` is the path of the database. Raises OSError.
    """
    path = Path(db)
    if path.is_relative_to(user_folder()):
        _make_folder(path.parent)
    return db


def _make_folder(folder: Path) -> None:
    """Make a folder in the user's folder, which only the user may read.

    Raises OSError.
    """
    user_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def own_settings(project: Project) -> Document:
    """Return the settings of a project that stand in the user's folder.

    Those for this project, which is found by its path, take the place of those for all
    projects. A path of a database is relative to the user's folder. Raises UsageError
    if the file is not as it must be.
    """
    file = user_folder() / SETTINGS_FILE
    settings = read_table(file)
    tables = settings.pop(PROJECTS_TABLE, {})
    if not isinstance(tables, dict):
        raise UsageError(f"[{PROJECTS_TABLE}] in {file} must be a table")

    root = os.path.realpath(project.root)
    for path, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f'[{PROJECTS_TABLE}."{path}"] in {file} must be a table')
        if os.path.realpath(os.path.expanduser(path)) == root:
            settings |= table
    return settings


def move_memory(old: Path, project: Project) -> Path | None:
    """Give a project that was moved what is remembered of it at its old path.

    `old` is that path, or a folder that an earlier call set aside. What is remembered
    at the new path already is set aside: its folder is renamed and returned, None if
    there was nothing. Raises NotFound if nothing is remembered at the old path,
    UsageError if it is in use or that of the project itself, and OSError.
    """
    source = _folder_of(old)
    if source == project.folder:
        raise UsageError(f"{old} is the path of this project; give the path before")
    if not source.is_dir():
        raise NotFound("memory of", str(old), str(source.parent))
    if os.path.lexists(old) and source != old and find_project(old).folder == source:
        raise UsageError(f"{old} still exists, and its hooks use this memory")

    aside = None
    if project.folder.exists():
        name = f"{project.folder.name}-before-{os.urandom(4).hex()}"
        aside = project.folder.rename(project.folder.with_name(name))
    source.rename(project.folder)
    project.note(path=str(project.place))
    return aside


def _folder_of(old: Path) -> Path:
    """Return the folder with what is remembered of a project at the path `old`.

    `old` may also be such a folder itself. If nothing is remembered, returns the folder
    that a repository at this path would have.
    """
    old = old.expanduser().absolute()
    if old.parent == user_folder() / PROJECTS_TABLE:
        return old
    real = Path(os.path.realpath(old))
    # The path may be gone, so nobody knows whether it was a repository.
    places = [real / ".git", real]
    projects = [Project(place=place, root=real) for place in places]
    folders = [project.folder for project in projects]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


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
    """Return the git repository that contains a folder, None if none does.

    A `.git` that claims to belong to a repository which does not know it is passed
    over. A submodule belongs to the repository around it.
    """
    for top in (folder, *folder.parents):
        git = top / ".git"
        if git.is_dir() and not git.is_symlink():
            return Repository(git=git, root=top, top=top)

        # The `.git` of a worktree is a file. Without one, the folder above is tried.
        with suppress(OSError, ValueError, UsageError):
            common = _common_git_folder(git)
            # In `project/.git/worktrees/x`, the main worktree is `project`.
            root = common.parent if common.name == ".git" else top
            return Repository(git=common, root=root, top=top)
    return None


def _common_git_folder(link: Path) -> Path:
    """Return the `.git` of the main repository of a worktree.

    `link` is the file `.git` of the worktree. It says
    `gitdir: ../main/.git/worktrees/x`. In that folder, the file `commondir` names the
    `.git` of the main repository, and the file `gitdir` names `link`. Raises OSError,
    ValueError or UsageError if this is not so: anyone can write a `.git` that claims to
    belong to a repository, which does not know it.
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
    """Return the folder with the settings of the project to which a folder belongs.

    In a repository it is the root of the main worktree, and in a submodule the root of
    the submodule, which has files of its own. Elsewhere it is `folder` itself.
    """
    top = project_top(folder)
    repository = find_repository(folder)
    # In a submodule, the repository around it was found, which has another top.
    if repository is not None and repository.top == top:
        return repository.root
    return top


def read_project_file(path: Path, within: Path | None = None) -> bytes:
    """Return the content of a file of a project, which anyone may have written.

    Raises OSError if it cannot be read. Raises UsageError if it is not a regular file,
    has more than `MAX_READ_BYTES`, or lies outside of the folder `within`, if that is
    given, when links are followed.
    """
    real = os.path.realpath(path)
    if within is not None and not Path(real).is_relative_to(within.resolve()):
        raise UsageError(
            f"{path} is a link to {real}, outside of {within}; put a file in its place"
        )

    # One byte more shows that the file is too large, without reading all of it.
    with open(real, "rb", opener=_open_regular_file) as file:
        content = file.read(MAX_READ_BYTES + 1)
    if len(content) > MAX_READ_BYTES:
        raise UsageError(
            f"{path} has more than {MAX_READ_BYTES} bytes; shorten or remove it"
        )
    return content


def _open_regular_file(path: str, flags: int) -> int:
    """Open a regular file and return its descriptor; this is an `opener` of `open`.

    A pipe is opened without waiting for its other end, and then refused, as is all
    that is not a regular file: that raises UsageError. Except on Windows, raises
    OSError for a link.
    """
    # Windows has neither of these flags.
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor

    os.close(descriptor)
    raise UsageError(f"{path} is not a regular file; remove it")


def read_table(file: str | Path, *keys: str) -> Document:
    """Return a table of a TOML file of a project, {} if it or the file does not exist.

    `keys` is the path to the table: "tool", "heedful" for `[tool.heedful]`. Without
    keys it is the whole file. Raises UsageError if the file cannot be read as TOML, or
    if something else than a table stands there.
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
