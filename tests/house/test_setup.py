"""The set-up of a checkout, as `make` does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from scripts import install
from scripts.workspace import NAMES, PACKAGES, ROOT, project

FILES = (
    "requirements.lock",
    "scripts/install.py",
    "scripts/setup.sh",
    *(f"packages/{name}/pyproject.toml" for name in NAMES),
)


def test_an_environment_of_somebody_else_is_kept(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
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
    # Nothing was said about files that are missing.
    assert "No such file" not in setup.stderr


def test_every_package_is_installed() -> None:
    folders = install.HEEDFUL[install.HEEDFUL.index("--editable") + 1 :: 2]
    assert folders == sorted(str(package) for package in PACKAGES)


def test_the_packages_have_one_version_and_ask_for_it() -> None:
    versions = {project(package)["project"]["version"] for package in PACKAGES}
    assert len(versions) == 1
    (version,) = versions
    for package in PACKAGES:
        declared = project(package)["project"]
        requirements = [*declared["dependencies"]]
        for extra in declared["optional-dependencies"].values():
            requirements += extra
        for requirement in requirements:
            if requirement.startswith("heedful"):
                assert requirement.endswith(f"=={version}"), requirement
