"""Install heedful as strangers do: build sdist and wheel, and try them in empty
environments.

On every Python at hand: the core alone, and all extras. On this one also each extra,
the sdist, `uvx` and `pipx run`. Nothing is locked, so the newest releases are
installed. In each environment every public name is imported; in those of the core and
of all extras the recorded demo runs, too, and on this Python the examples of README and
tutorial. With --write the table goes into docs/installed.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.install import uv_environment
from scripts.run_docs import capture

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PAGE = ROOT / "docs" / "installed.md"
TABLE = re.compile(r"(?<=<!-- table begins -->\n).*(?=<!-- table ends -->)", re.DOTALL)
UV = Path(sys.executable).with_name("uv")
NEWEST_MINOR = 14
OLDEST_MINOR = 11
IMPORT_TRIALS = 7
MAX_COMMAND_SECONDS = 600
# The folders and files of an sdist; `.gitignore` and `PKG-INFO` come from the builder.
SDIST_PLACES = {
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "deploy",
    "docs",
    "examples",
    "llms.txt",
    "pyproject.toml",
    "src",
}
UNWANTED = re.compile(r"(^|/)(tests?|bench|scripts|__pycache__|\.env)(/|$)|\.(db|pyc)$")
PUBLIC_NAMES = """
import heedful, heedful.checks, heedful.testing
for module in (heedful, heedful.checks):
    for name in module.__all__:
        getattr(module, name)
"""
RECORDED = ["demo", "--recorded", "--no-browser"]


class Refused(Exception):
    """A command failed where a stranger runs it, or an archive has the wrong files."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """One environment, measured: `ratio` is the time of `import heedful` divided by
    that of bare Python.
    """

    python: str
    what: str
    distributions: int
    megabytes: float
    seconds: float
    ratio: float

    def row(self) -> str:
        """Return the row of the table."""
        return (
            f"| {self.python} | {self.what} | {self.distributions} | "
            f"{self.megabytes:.0f} | {self.seconds:.1f} | {self.ratio:.1f} |"
        )


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in a folder; return its output. Raises Refused."""
    done = capture(
        command,
        folder=folder,
        environment=uv_environment() | {"PYTHONPATH": "", "COLUMNS": "100"},
        seconds=MAX_COMMAND_SECONDS,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise Refused(f"$ {words}\nexited {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """Build the archives into dist; return the sdist and the wheel. Raises Refused."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "hatchling", "build", "-d", DIST], ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    (wheel,) = DIST.glob("*.whl")

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    wrong = [name for name in names if UNWANTED.search(name)]
    wrong += [name for name in names if not re.match(r"heedful[/-]", name)]
    with tarfile.open(sdist) as archive_of_source:
        paths = [Path(*Path(name).parts[1:]) for name in archive_of_source.getnames()]
    wrong += [str(path) for path in paths if UNWANTED.search(path.as_posix())]
    wrong += [str(path) for path in paths if path.parts[0] not in SDIST_PLACES]
    if wrong:
        raise Refused(f"the archives have what nobody needs: {', '.join(wrong)}")
    return sdist, wheel


def pythons() -> Iterator[Path]:
    """Yield a Python of each supported minor version that is at hand."""
    own_minor = sys.version_info.minor
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
        if minor == own_minor:
            yield Path(sys.executable)
            continue
        candidates = [*sorted(root.glob(f"versions/3.{minor}.*/bin/python3"))]
        on_path = shutil.which(f"python3.{minor}")
        if on_path:
            candidates.append(Path(on_path))
        for candidate in candidates:
            # pyenv puts programs on the path that only say that they are not there.
            if subprocess.run(
                [candidate, "-c", ""], stderr=subprocess.DEVNULL, check=False
            ).returncode:
                continue
            yield candidate
            break


def import_ratio(python: Path, folder: Path) -> float:
    """Return how much longer `import heedful` takes than bare Python, as a factor.

    Both are the quickest of some trials in turn.
    """
    bare: list[float] = []
    importing: list[float] = []
    for _ in range(IMPORT_TRIALS):
        for code, trials in (("pass", bare), ("import heedful", importing)):
            began = time.perf_counter()
            subprocess.run([python, "-c", code], cwd=folder, check=True)
            trials.append(time.perf_counter() - began)
    return min(importing) / min(bare)


def install(
    python: Path, archive: Path, extras: str, what: str, folder: Path
) -> tuple[Installed, Path]:
    """Install an archive into an empty environment in `folder`, and measure it.

    Returns the folder of its programs, too. Raises Refused.
    """
    environment = folder / "env"
    run([UV, "venv", "--quiet", "--no-project", "-p", python, environment], folder)
    programs = environment / "bin"
    began = time.perf_counter()
    target = f"{archive}{extras}"
    python_there = str(programs / "python")
    uv = [str(UV), "pip", "install", "--quiet", "--python", python_there]
    run([*uv, target], folder)
    seconds = time.perf_counter() - began

    run([programs / "python", "-c", PUBLIC_NAMES], folder)
    run([programs / "heedful", "--version"], folder)
    version = run([programs / "python", "--version"], folder).split()[-1]
    size = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file())
    measured = Installed(
        python=version,
        what=what,
        distributions=len(list(environment.rglob("*.dist-info"))),
        megabytes=size / 1e6,
        seconds=seconds,
        ratio=import_ratio(programs / "python", folder),
    )
    return measured, programs


def try_on(
    python: Path, sdist: Path, wheel: Path, *, thorough: bool
) -> Iterator[Installed]:
    """Try the archives on one Python. Raises Refused."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = list(tomllib.loads(text)["project"]["optional-dependencies"])
    everything = f"[{','.join(extras)}]"
    plans = [(wheel, "", "core"), (wheel, everything, "all extras")]
    if thorough:
        plans.append((sdist, "", "core, from the sdist"))
        plans += [(wheel, f"[{extra}]", extra) for extra in extras]

    for archive, chosen, what in plans:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            measured, programs = install(python, archive, chosen, what, folder)
            if archive == wheel and what in ("core", "all extras"):
                run([programs / "heedful", *RECORDED], folder)
            if thorough and what == "all extras":
                pages = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]
                examples = ROOT / "scripts" / "run_docs.py"
                run([programs / "python", examples, *pages], folder)
            yield measured


def try_runners(wheel: Path) -> None:
    """Run the wheel without installing it, by uvx and by pipx. Raises Refused."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uvx = [str(UV), "tool", "run", "--quiet"]
        run([*uvx, "--from", str(wheel), "heedful", *RECORDED], folder)
        pipx = [*uvx, "pipx", "run", "--no-cache", "--spec", str(wheel)]
        run([*pipx, "heedful", "--version"], folder)


def main() -> int:
    """Build and try; print the table, and write it with --write; return 1 if something
    failed.
    """
    heads = "python", "installed", "distributions", "MB", "seconds", "import, × bare"
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    try:
        sdist, wheel = build()
        sizes = [f"{path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sdist)]
        print(f"the wheel has {sizes[0]}, the sdist {sizes[1]}\n", flush=True)
        print("\n".join(lines), flush=True)
        for python in pythons():
            is_own = python == Path(sys.executable)
            for measured in try_on(python, sdist, wheel, thorough=is_own):
                lines.append(measured.row())
                print(measured.row(), flush=True)
        try_runners(wheel)
    except (Refused, OSError, subprocess.SubprocessError) as error:
        print(error)
        return 1
    if "--write" in sys.argv[1:]:
        table = f"The wheel has {sizes[0]}, the sdist {sizes[1]}.\n\n"
        table += "\n".join(lines) + "\n"
        page = TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
