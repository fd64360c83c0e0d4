"""Write requirements.lock again: the newest releases, for every Python ≥ 3.11 and every
platform.

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
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
UV = "uv==0.13.8"
HEADER = (
    "# What heedful is developed, tested and demonstrated with. Remake with: make "
    "lock\n"
)
COMPILE = (
    "pip compile pyproject.toml --no-config --no-python-downloads --universal "
    "--generate-hashes "
    "--python-version 3.11 --fork-strategy fewest --all-extras --group dev --no-header"
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


def compiled() -> str:
    """The resolved requirements as uv writes them."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        environment = clean_environment()
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", UV], env=environment, check=True
        )
        command = [python, "-m", "uv", *COMPILE.split()]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return done.stdout


IMAGE = ROOT / "deploy" / "requirements.lock"
EXTRAS = ("server", "postgres", "telemetry")


def for_image(text: str) -> str:
    """The requirements of a lock that the image needs: its extras, and what builds
    heedful.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["build"],
    ]
    for extra in EXTRAS:
        requirements += project["project"]["optional-dependencies"][extra]
    names = set()
    for requirement in requirements:
        names |= {name.lower() for name in re.findall(r"\A[\w.-]+", requirement)}
    blocks = {}  # by name, with the hashes and with what needs the distribution
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
    head = (
        "# The part of requirements.lock that the image installs. Remake with: make "
        "lock\n"
    )
    return head + "".join(block for name, block in blocks.items() if name in names)


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


def main() -> int:
    """Write the lock, unless it has a problem."""
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
