"""Install the three packages as strangers do: build sdist and wheel of each, and try
them in empty environments.

On every Python at hand: heedful alone, and all three with all extras. On this one also
heedful with each of the others, with each of its extras, the sdists, `uvx` and `pipx
run`. Only our own wheels are given; nothing is locked, so the newest releases of the
rest are installed. In each environment every public name is imported. In heedful alone
the recorded demo, a pipeline and README's programs run, and commands of the other
packages say what to install; with all extras README and tutorial run. With --write the
table goes into docs/installed.md.
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
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.page import replace_section
from scripts.install import uv_environment
from scripts.run_docs import capture
from scripts.workspace import NAMES, PACKAGES, ROOT, project

DIST = ROOT / "dist"
PAGE = ROOT / "docs" / "installed.md"
UV = Path(sys.executable).with_name("uv")
NEWEST_MINOR = 14
OLDEST_MINOR = 11
IMPORT_TRIALS = 7
MAX_COMMAND_SECONDS = 600
# The folders and files of an sdist; `.gitignore` and `PKG-INFO` come from the builder.
SDIST_PLACES = {
    ".gitignore",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
    "src",
    "tests",
}
SDIST_PLACES_OF = {"heedful": SDIST_PLACES | {"examples"}}
# The recorded demo is in the wheel: `heedful demo` runs it anywhere.
DEMO_FILE = "heedful/_examples/demo/recorded.zip"
UNWANTED = re.compile(r"(^|/)(bench|scripts|__pycache__|\.env)(/|$)|\.(db|pyc)$")
UNWANTED_IN_WHEEL = re.compile(r"(^|/)tests?/")
PUBLIC_NAMES = """
import sys
import heedful, heedful.checks, heedful.testing
for module in (heedful, heedful.checks):
    for name in module.__all__:
        getattr(module, name)
others = [
    name
    for name in sys.modules
    if name.startswith("heedful_") and "." not in name
]
assert not others, f"heedful has imported {others}"
"""
COMPATIBLE_NAMES = """
import heedful_compat
for name in heedful_compat.__all__:
    getattr(heedful_compat, name)
"""
PIPELINE = """
import heedful
from heedful.checks import contains

pipeline = heedful.Pipeline("strangers", store="strangers.db", progress=False)

@pipeline.stage
def load(state):
    return [1, 2, 3]

@pipeline.stage(checks=[contains("6")], retries=1)
def add(state, feedback=None):
    return f"the sum is {sum(state['load']) if feedback else 5}"

report = heedful.run_sync(pipeline.run({}))
assert report.status == "passed", report
assert [len(stage.attempts) for stage in report.stages] == [1, 2], report
"""
# Commands of the other packages, with the package that has them.
ELSEWHERE = {"serve": "heedful-server", "hook": "heedful-agents"}
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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is installed into one environment: the row of the table calls it `what`.

    `requirement` is what the stranger names; `packages` are those of ours that it
    brings. With `from_source` no wheel of ours is used.
    """

    what: str
    requirement: str
    packages: tuple[str, ...]
    from_source: bool = False


def variables() -> dict[str, str]:
    """Return the variables of a stranger's process: uv finds our archives in dist."""
    environment = uv_environment() | {"PYTHONPATH": "", "COLUMNS": "200"}
    places = [str(DIST), environment.get("UV_FIND_LINKS", "")]
    environment["UV_FIND_LINKS"] = ",".join(filter(None, places))
    return environment


def run(command: Sequence[str | Path], folder: Path, *, expected: int = 0) -> str:
    """Run a command in a folder; return its output. Raises Refused for another exit
    code than the expected one.
    """
    done = capture(
        command,
        folder=folder,
        environment=variables(),
        seconds=MAX_COMMAND_SECONDS,
    )
    if done.returncode != expected:
        words = " ".join(map(str, command))
        raise Refused(f"$ {words}\nexited {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def build() -> dict[str, tuple[Path, Path]]:
    """Build the archives into dist; return sdist and wheel of each package by its name.

    Raises Refused.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    archives = {}
    for name, package in zip(NAMES, PACKAGES, strict=True):
        run([sys.executable, "-m", "hatchling", "build", "-d", DIST], package)
        stem = f"{name.replace('-', '_')}-{project(package)['project']['version']}"
        sdist = DIST / f"{stem}.tar.gz"
        wheel = DIST / f"{stem}-py3-none-any.whl"
        wrong = [*wrong_in_sdist(name, sdist), *wrong_in_wheel(name, wheel)]
        if wrong:
            raise Refused(f"the archives of {name} are wrong: {', '.join(wrong)}")
        archives[name] = sdist, wheel
    return archives


def wrong_in_sdist(name: str, sdist: Path) -> Iterator[str]:
    """Yield what an sdist has and nobody needs, and what it lacks."""
    places = SDIST_PLACES_OF.get(name, SDIST_PLACES)
    with tarfile.open(sdist) as archive:
        paths = [Path(*Path(member).parts[1:]) for member in archive.getnames()]
    for path in paths:
        if UNWANTED.search(path.as_posix()) or path.parts[0] not in places:
            yield str(path)
    for place in sorted(places - {path.parts[0] for path in paths}):
        yield f"no {place} in the sdist"


def wrong_in_wheel(name: str, wheel: Path) -> Iterator[str]:
    """Yield what a wheel has besides its package, and what it lacks."""
    module = name.replace("-", "_")
    with zipfile.ZipFile(wheel) as archive:
        members = archive.namelist()
    own = re.compile(rf"{module}(-[\w.]+\.dist-info)?/")
    for member in members:
        if (
            UNWANTED.search(member)
            or UNWANTED_IN_WHEEL.search(member)
            or not own.match(member)
        ):
            yield member
    needed = {f"{module}/__init__.py", f"{module}/py.typed"}
    if name == "heedful":
        needed.add(DEMO_FILE)
    for member in sorted(needed - set(members)):
        yield f"no {member} in the wheel"


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
    python: Path, plan: Plan, archives: Mapping[str, tuple[Path, Path]], folder: Path
) -> tuple[Installed, Path]:
    """Install into an empty environment in `folder`, and measure it.

    Returns the folder of its programs, too. Raises Refused.
    """
    environment = folder / "env"
    run([UV, "venv", "--quiet", "--no-project", "-p", python, environment], folder)
    programs = environment / "bin"
    began = time.perf_counter()
    options = []
    if plan.from_source:
        for name in plan.packages:
            options += ["--no-binary", name]
    add([*options, plan.requirement], programs, folder)
    seconds = time.perf_counter() - began

    check_packages(plan, archives, environment)
    run([programs / "python", "-c", PUBLIC_NAMES], folder)
    run([programs / "heedful", "--version"], folder)
    version = run([programs / "python", "--version"], folder).split()[-1]
    size = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file())
    measured = Installed(
        python=version,
        what=plan.what,
        distributions=len(list(environment.rglob("*.dist-info"))),
        megabytes=size / 1e6,
        seconds=seconds,
        ratio=import_ratio(programs / "python", folder),
    )
    return measured, programs


def add(requirements: Sequence[str], programs: Path, folder: Path) -> None:
    """Install into the environment with these programs. Raises Refused."""
    uv = [str(UV), "pip", "install", "--quiet", "--python", str(programs / "python")]
    for name in NAMES:  # uv keeps the wheel of an earlier build of the same version
        uv += ["--refresh-package", name]
    run([*uv, *requirements], folder)


def check_packages(
    plan: Plan, archives: Mapping[str, tuple[Path, Path]], environment: Path
) -> None:
    """Check that an environment has the packages of a plan, from our archives.

    Raises Refused.
    """
    for name in NAMES:
        stem = archives[name][1].name.removesuffix("-py3-none-any.whl")
        records = [*environment.glob(f"lib/*/site-packages/{stem}.dist-info/RECORD")]
        if bool(records) != (name in plan.packages):
            is_there = "is there" if records else "is missing"
            raise Refused(f"{plan.what}: {name} {is_there}")
        if not records or plan.from_source:
            continue
        with zipfile.ZipFile(archives[name][1]) as archive:
            ours = archive.read(f"{stem}.dist-info/RECORD").decode().splitlines()
        installed = records[0].read_text(encoding="utf-8").splitlines()
        # The installer adds its own lines, and hashes nothing else.
        if not {line for line in ours if ",," not in line} <= set(installed):
            raise Refused(f"{plan.what}: {name} is not the wheel in {DIST}")


def plans(*, thorough: bool) -> Iterator[Plan]:
    """Yield what is installed: on the Python of this process all, else the extremes."""
    heedful, server, agents, frameworks, compat = NAMES
    declared = project(PACKAGES[0])["project"]
    pin = f"=={declared['version']}"
    extras = list(declared["optional-dependencies"])
    yield Plan(what="heedful alone", requirement=f"heedful{pin}", packages=(heedful,))
    yield Plan(
        what="all five, all extras",
        requirement=f"heedful[{','.join(extras)}]{pin}",
        packages=NAMES,
    )
    if not thorough:
        return
    yield Plan(
        what="all five, from the sdists",
        requirement=f"heedful[server,agents,langchain,compat]{pin}",
        packages=NAMES,
        from_source=True,
    )
    brought = {
        "server": (heedful, server),
        "ui": (heedful, server),
        "fast": (heedful, server),
        "agents": (heedful, agents),
        "mcp": (heedful, server, agents),
        "compat": (heedful, compat),
    }
    for extra, (requirement, *_) in declared["optional-dependencies"].items():
        if requirement == f"{frameworks}{pin}":
            brought[extra] = (heedful, frameworks)
    for extra in extras:
        yield Plan(
            what=f"heedful[{extra}]",
            requirement=f"heedful[{extra}]{pin}",
            packages=brought.get(extra, (heedful,)),
        )


def try_alone(programs: Path, folder: Path) -> None:
    """Try heedful without the other packages. Raises Refused."""
    run([programs / "heedful", *RECORDED], folder)
    run([programs / "python", "-c", PIPELINE], folder)
    for command, package in ELSEWHERE.items():
        output = run([programs / "heedful", command], folder, expected=2)
        if f"pip install ./packages/heedful ./packages/{package}" not in output:
            raise Refused(f"heedful {command} does not say what to install:\n{output}")


def try_with_server(programs: Path, folder: Path) -> None:
    """Let the commands of the service show their options. Raises Refused."""
    for command in ("serve", "ui", "worker", "key"):
        run([programs / "heedful", command, "--help"], folder)


def try_with_agents(programs: Path, folder: Path) -> None:
    """Install the hooks of an agent into a project, and let one run. Raises Refused."""
    run([programs / "heedful", "hook", "install", "claude-code", "--yes"], folder)
    run([programs / "heedful-hook", "--help"], folder, expected=1)  # says its usage


def try_with_compat(programs: Path, folder: Path) -> None:
    """Import the names of earlier systems. Raises Refused."""
    run([programs / "python", "-c", COMPATIBLE_NAMES], folder)


def try_without_framework(programs: Path, folder: Path) -> None:
    """Import an adapter, which says that its framework is missing. Raises Refused."""
    script = "import heedful_frameworks.langchain"
    output = run([programs / "python", "-c", script], folder, expected=1)
    if "No module named 'langchain'" not in output:
        raise Refused(f"heedful_frameworks.langchain says something else:\n{output}")


# What is tried in an environment, besides its public names.
TRIALS = {
    "heedful alone": try_alone,
    "heedful[server]": try_with_server,
    "heedful[agents]": try_with_agents,
    "heedful[compat]": try_with_compat,
    "heedful[langchain]": try_without_framework,
}


def run_pages(programs: Path, folder: Path, *pages: str) -> None:
    """Run the examples of pages. Raises Refused."""
    examples = ROOT / "scripts" / "run_docs.py"
    run([programs / "python", examples, *(ROOT / page for page in pages)], folder)


def try_on(
    python: Path, archives: Mapping[str, tuple[Path, Path]], *, thorough: bool
) -> Iterator[Installed]:
    """Try the archives on one Python. Raises Refused."""
    for plan in plans(thorough=thorough):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            measured, programs = install(python, plan, archives, folder)
            if plan.what in TRIALS:
                TRIALS[plan.what](programs, folder)
            if plan.packages == NAMES:
                run([programs / "heedful", *RECORDED], folder)
                try_with_server(programs, folder)
                try_with_agents(programs, folder)
            if thorough and plan.what == "heedful alone":
                run_pages(programs, folder, "README.md")
            if thorough and plan.what == "all five, all extras":
                run_pages(programs, folder, "README.md", "docs/tutorial.md")
            yield measured


def try_runners(wheel: Path) -> None:
    """Run heedful without installing it, by uvx and by pipx; let twine check what an
    index reads of the archives. Raises Refused.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uvx = [str(UV), "tool", "run", "--quiet"]
        run([*uvx, "twine", "check", "--strict", *DIST.glob("heedful*")], folder)
        run([*uvx, "--from", str(wheel), "heedful", *RECORDED], folder)
        pipx = [*uvx, "pipx", "run", "--no-cache", "--spec", str(wheel)]
        run([*pipx, "heedful", "--version"], folder)


def sizes(archives: Mapping[str, tuple[Path, Path]]) -> str:
    """Return one sentence on the size of the archives."""
    parts = []
    for name, (sdist, wheel) in archives.items():
        megabytes = [f"{path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sdist)]
        parts.append(f"{name} {megabytes[0]} and {megabytes[1]}")
    return f"Wheel and sdist: {'; '.join(parts)}."


def main() -> int:
    """Build and try; print the table, and write it with --write; return 1 if something
    failed.
    """
    heads = "python", "installed", "distributions", "MB", "seconds", "import, × bare"
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    try:
        archives = build()
        print(f"{sizes(archives)}\n", flush=True)
        print("\n".join(lines), flush=True)
        for python in pythons():
            is_own = python == Path(sys.executable)
            for measured in try_on(python, archives, thorough=is_own):
                lines.append(measured.row())
                print(measured.row(), flush=True)
        try_runners(archives["heedful"][1])
    except (Refused, OSError, subprocess.SubprocessError) as error:
        print(error)
        return 1
    if "--write" in sys.argv[1:]:
        section = "\n".join([sizes(archives), "", *lines])
        page = replace_section(PAGE.read_text("utf-8"), "table", section)
        PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
