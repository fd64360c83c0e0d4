"""Changes of files that are shown before they are written: all of them, or none."""

import difflib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from heedful.errors import UsageError
from heedful.store.projects import private, read_project_file

Backup = Literal["", "keep", "drop"]
BACKUP_SUFFIX = ".before-heedful"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file: its text before and after, None if there is no file.

    With the backup "keep", the text before is kept beside the file; with "drop", what
    was kept is removed. Folders that are empty without the file are removed up to
    `within`.
    """

    path: Path
    before: str | None
    after: str | None
    backup: Backup = ""
    within: Path | None = None

    def __bool__(self) -> bool:
        return self.before != self.after

    @property
    def diff(self) -> str:
        """The change as a unified difference."""
        before = (self.before or "").splitlines(keepends=True)
        after = (self.after or "").splitlines(keepends=True)
        # If the path is a link, the file behind it is written.
        name = os.path.realpath(self.path)
        lines = difflib.unified_diff(before, after, name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def undone(self) -> "FileChange":
        """Return the change that takes this one back."""
        backup: Backup = "drop" if self.backup == "keep" else ""
        return replace(self, before=self.after, after=self.before, backup=backup)

    def apply(self) -> None:
        """Write the file in one step.

        Raises UsageError if the file cannot be written, or was changed since the plan.
        """
        # A link stays a link.
        path = Path(os.path.realpath(self.path))
        if read_text(path) != self.before:
            raise UsageError(
                f"{self.path} was changed meanwhile; run the command again"
            )

        try:
            if self.after is None:
                path.unlink()
                self._remove_empty_folders(path)
            else:
                self._write(path, self.after)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written ({error.strerror}); nothing was changed"
            ) from error

    def _remove_empty_folders(self, path: Path) -> None:
        """Remove the folders that held nothing but the file."""
        folders = [path.parent]
        if self.within is not None and path.is_relative_to(self.within.resolve()):
            root = self.within.resolve()
            folders = [folder for folder in path.parents if root in folder.parents]
        # A folder stays, with those around it, if it holds other files.
        with suppress(OSError):
            for folder in folders:
                folder.rmdir()

    def _write(self, path: Path, text: str) -> None:
        """Write a text, and keep or remove the backup. Raises OSError."""
        backup = backup_of(path)
        path.parent.mkdir(parents=True, exist_ok=True)

        # A new file has the permissions of its folder, without the right to run it.
        if self.before is None:
            mode = path.parent.stat().st_mode & 0o666
        else:
            mode = path.stat().st_mode & 0o7777
            if not mode & 0o222:
                raise PermissionError(13, "it is read-only")
            if self.backup == "keep":
                # A link in its place would lead elsewhere.
                backup.unlink(missing_ok=True)
                shutil.copy2(path, backup)

        # The draft is on the disk before it takes the place of the file.
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(draft, "x", encoding="utf-8", newline="", opener=private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())

            draft.chmod(mode)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

        if self.backup == "drop":
            backup.unlink(missing_ok=True)


def apply_all(changes: Sequence[FileChange]) -> None:
    """Write all files, or none if one cannot be written. Raises UsageError."""
    written: list[FileChange] = []
    try:
        for change in filter(None, changes):
            change.apply()
            written.append(change)
    except UsageError:
        for change in reversed(written):
            change.undone().apply()
        raise


def backup_of(path: Path) -> Path:
    """Return where the text of a file is kept while hooks of heedful are in it."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def check_within(path: Path, folder: Path) -> None:
    """Check that no link leads from a path in a folder to a place outside of it.

    Raises UsageError.
    """
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(folder.resolve()):
        raise UsageError(
            f"{path} leads to {real}, outside of {folder}; remove the link first"
        )


def read_text(path: Path) -> str | None:
    """Return the text of a file with its line ends, None without a file.

    Raises UsageError.
    """
    try:
        return read_project_file(path).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
