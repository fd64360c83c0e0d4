"""Write requirements.lock again: the newest releases, for every Python ≥ 3.11 and every
platform. With --check, say what the locks lack, and write nothing.

The resolver runs in a clean environment without configuration, so that only the default
index counts: a machine's own indexes may carry files that nobody else has, and their
hashes would fail everywhere else. No address is written down; each installation uses
its own index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from pathlib import Path

from scripts import workspace
from scripts.workspace import ROOT, required

LOCK = ROOT / "requirements.lock"
HEADER = (
    "# What heedful is developed, tested and demonstrated with. Remake with: make "
    "lock\n"
)
COMPILE = (
    "pip compile - --no-config --no-python-downloads --universal --generate-hashes "
    "--python-version 3.11 --fork-strategy fewest --no-header"
)
NETWORK_VARIABLES = (
    "PATH",
    "HOME",
    "PIP_CERT",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
)


def clean_environment() -> dict[str, str]:
    """The variables that the network needs, without indexes and configuration."""
    variables = {
        name: os.environ[name] for name in NETWORK_VARIABLES if name in os.environ
    }
    authorities = os.environ.get("SSL_CERT_FILE") or variables.get("PIP_CERT")
    if authorities:
        variables["SSL_CERT_FILE"] = authorities
        variables["PIP_CERT"] = authorities
    variables["PIP_CONFIG_FILE"] = os.devnull
    return variables


def pinned_uv() -> str:
    """The requirement of uv, of the release in the lock that is written again."""
    match = re.search(r"^uv==[\w.]+", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return match[0] if match else "uv"


def compiled() -> str:
    """The resolved requirements as uv writes them."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        environment = clean_environment()
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", pinned_uv()],
            env=environment,
            check=True,
        )
        command = [python, "-m", "uv", *COMPILE.split()]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            check=True,
            input="\n".join(all_requirements()),
            stdout=subprocess.PIPE,
            text=True,
        )
    return done.stdout


def all_requirements() -> list[str]:
    """Return what the packages and their development require of others."""
    requirements = [*required()]
    for name in workspace.project(ROOT)["dependency-groups"]:
        requirements += workspace.group(name)
    return requirements


IMAGE = ROOT / "deploy" / "requirements.lock"
EXTRAS = {"postgres", "telemetry"}


def blocks_for(text: str, requirements: Iterable[str]) -> dict[str, str]:
    """The blocks of a lock, by name, that some requirements and what they need have.

    A block is a pin with its hashes, and with what needs the distribution.
    """
    names = set()
    for requirement in requirements:
        names |= {name.lower() for name in re.findall(r"\A[\w.-]+", requirement)}
    blocks = {}
    for match in re.finditer(r"^([\w.-]+)==.*\n(?:    .*\n)*", text, re.MULTILINE):
        blocks[match[1]] = match[0]
    added = True
    while added:
        added = False
        for name, block in blocks.items():
            needed_by = set(re.findall(r"#\s+(?:via )?([\w.-]+)", block))
            if name not in names and names & needed_by:
                names.add(name)
                added = True
    return {name: block for name, block in blocks.items() if name in names}


def for_image(text: str) -> str:
    """The requirements of a lock that the image needs: its extras, and what builds
    heedful.
    """
    requirements = [*required(EXTRAS), *workspace.group("build")]
    head = (
        "# The part of requirements.lock that the image installs. Remake with: make "
        "lock\n"
    )
    return head + "".join(blocks_for(text, requirements).values())


def problems(text: str) -> list[str]:
    """Find what a lock must not contain: addresses, options, requirements without a
    hash.
    """
    lines = text.splitlines()
    wrong = []
    for line in lines:
        if "://" in line or " @ " in line:
            wrong.append(f"an address: {line}")
        if line.startswith("-"):
            wrong.append(f"an option: {line}")
        if re.match(r"[A-Za-z0-9]", line) and not line.endswith("\\"):
            wrong.append(f"no hash: {line}")
    return wrong


def lacking(text: str) -> list[str]:
    """Find what the packages ask for and the lock does not have."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    versions = dict(re.findall(r"^([\w.-]+)==([\w.!+]+)", text, re.MULTILINE))
    wrong = []
    for line in all_requirements():
        requirement = Requirement(line)
        version = versions.get(canonicalize_name(requirement.name))
        if version is None:
            wrong.append(f"{LOCK.name} has no {line}")
        elif not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{LOCK.name} has {version}, the packages ask for {line}")
    return wrong


def check() -> int:
    """Say what the locks lack; return 1 if they lack anything.

    What the requirements need in turn is looked up in this environment, which was
    installed from the lock without resolving anything.
    """
    text = LOCK.read_text(encoding="utf-8")
    wrong = problems(text) + lacking(text)
    if IMAGE.read_text(encoding="utf-8") != for_image(text):
        wrong.append(f"{IMAGE.relative_to(ROOT)} is not the part of {LOCK.name}")
    uv = Path(sys.executable).with_name("uv")
    installed = subprocess.run(
        [uv, "pip", "check", "--quiet", "--no-config", "--python", sys.executable],
        check=False,
    )
    print("\n".join(wrong) or f"{LOCK.name} has all that the packages ask for")
    return 1 if wrong or installed.returncode else 0


def main() -> int:
    """Write the lock, unless it has a problem."""
    if sys.argv[1:] == ["--check"]:
        return check()
    text = HEADER + compiled()
    wrong = problems(text)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    LOCK.write_text(text, encoding="utf-8")
    IMAGE.write_text(for_image(text), encoding="utf-8")
    requirements = re.findall(r"^[A-Za-z0-9]", text, re.MULTILINE)
    print(f"{LOCK.name}: {len(requirements)} requirements")
    return 0


if __name__ == "__main__":
    sys.exit(main())
