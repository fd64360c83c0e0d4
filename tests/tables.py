"""Tables of cases, by the ids that say what fails."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from heedful import Episode
from heedful.episodes import read


def cases(
    names: str | tuple[str, ...], rows: Mapping[str, Any], **options: Any
) -> pytest.MarkDecorator:
    """Run a test for each row; the key of a row is the id that says what fails."""
    return pytest.mark.parametrize(
        names, list(rows.values()), ids=list(rows), **options
    )


# Where a runner of CI works; in parts, because no file names the folders of a machine.
WORKSPACE = "/".join(("", "home", "runner", "work", "shop", "shop"))


def read_sample_file(path: Path) -> str:
    """Return the text of a file, with its carriage returns."""
    return path.read_bytes().decode().replace("WORKSPACE", WORKSPACE)


def read_samples(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the samples of a text by their names, each as its parts.

    A sample begins with `===` and what it shows; its parts have `---` between them.
    Without `---`, each line is a part.
    """
    _, *texts = read_sample_file(path).split("=== ")
    samples = {}
    for text in texts:
        name, _, rest = text.partition("\n")
        parts = rest.split("---\n")
        if len(parts) == 1:
            parts = rest.splitlines()
        samples[name] = tuple(part.strip("\n") for part in parts)
    return samples


def write_sample(path: Path, name: str, parts: Sequence[str]) -> None:
    """Write the parts of a sample again, all but the first."""
    text = read_sample_file(path)
    start = text.index("---\n", text.index(f"=== {name}\n"))
    _, mark, others = text[start:].partition("\n=== ")
    lines = "".join(f"---\n{part}\n" if part else "---\n" for part in parts)
    text = (text[:start] + lines + mark + others).replace(WORKSPACE, "WORKSPACE")
    path.write_bytes(text.encode())


def read_run(text: str) -> Episode:
    """Return a run: the first line has its fields, and each other line an event."""
    fields, *events = map(json.loads, text.splitlines())
    [episode] = read(json.dumps({**fields, "events": events}).encode())
    return episode
