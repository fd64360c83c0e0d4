"""Reports as files, each written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from heedful.errors import StoreUnavailable
from heedful.pages.html import html
from heedful.pages.markdown import markdown
from heedful.redact import redacted_data
from heedful.reports import AttemptReport, Report


def write_attempt(attempt: AttemptReport, folder: str | os.PathLike[str]) -> Path:
    """Write the JSON file of one attempt; the folder is made where it is missing.

    Raises StoreUnavailable.
    """
    return _written(Path(folder) / attempt.file, _json(attempt.plain()))


def write(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a file for each attempt, and the whole run as JSON, Markdown and HTML.

    Raises StoreUnavailable; what was written before stays, each file whole.
    """
    attempts = [one for stage in report.stages for one in stage.attempts]
    paths = [write_attempt(one, folder) for one in attempts]
    pages = {
        "json": _json(report.plain()),
        "md": markdown(report).encode("utf-8", "replace"),
        "html": html(report).encode("utf-8", "replace"),
    }
    named = {Path(folder) / f"{report.stem}.{kind}": page for kind, page in pages.items()}
    return paths + [_written(path, page) for path, page in named.items()]


def _json(plain: Mapping[str, Any]) -> bytes:
    text = json.dumps(redacted_data(plain), indent=2, ensure_ascii=False)
    # Half of a pair of surrogates has no UTF-8; its escape is the one that JSON reads.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _written(path: Path, content: bytes) -> Path:
    """A file beside it gets its name when all is written; else nothing is left of it."""
    part = path.with_name(f".{token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or error
        told = f"the report {path} cannot be written ({why}); check the folder and the disk"
        raise StoreUnavailable(told) from error
    return path
