"""A trial of the texts that Chroma finds, as the example shows it."""

import subprocess
import sys
from pathlib import Path

import heedful

EXAMPLE = Path(__file__).parents[2] / "examples/integrations/chroma_trial.py"


def test_the_example_proves_what_chroma_adds(tmp_path: Path) -> None:
    command = sys.executable, str(EXAMPLE)
    printed = subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert printed.splitlines() == [
        "chroma helps",
        "shown 44: 100% right at the first try",
        "withheld 16: 0% right at the first try",
    ]

    trial = heedful.Trial("chroma", str(tmp_path / "invoices.db"))
    [record] = heedful.run_sync(trial.offered("invoice/0"))
    assert len(record) == 16
    assert b"Ada pays" not in (tmp_path / "invoices.db").read_bytes()
