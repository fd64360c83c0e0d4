"""Tables of cases, by the ids that say what fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


def cases(
    names: str | tuple[str, ...], rows: Mapping[str, Any], **options: Any
) -> pytest.MarkDecorator:
    """Run a test for each row; the key of a row is the id that says what fails."""
    return pytest.mark.parametrize(
        names, list(rows.values()), ids=list(rows), **options
    )


def read_samples(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the samples of a text by their names, each as its parts.

    A sample begins with `===` and what it shows; its parts have `---` between them.
    """
    # Carriage returns stay.
    _, *texts = path.read_bytes().decode().split("=== ")
    samples = {}
    for text in texts:
        name, _, rest = text.partition("\n")
        samples[name] = tuple(part.strip("\n") for part in rest.split("---\n"))
    return samples
