"""The set-up of a checkout, as `make` does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (
    "pyproject.toml",
    "requirements.lock",
    "scripts/install.py",
    "scripts/setup.sh",
)


def test_an_environment_of_somebody_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    settings_file = tmp_path / ".venv" / "pyvenv.cfg"
    settings_file.parent.mkdir()
    settings_file.write_text("version = 3.11.7\n")
    setup = subprocess.run(
        ["sh", "scripts/setup.sh"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert setup.returncode == 1
    assert "mv .venv my-venv" in setup.stderr
    assert settings_file.read_text() == "version = 3.11.7\n"
