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
KEPT = (
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
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    authorities = os.environ.get("SSL_CERT_FILE") or kept.get("PIP_CERT")
    if authorities:
        kept |= {"SSL_CERT_FILE": authorities, "PIP_CERT": authorities}
    return kept | {"PIP_CONFIG_FILE": os.devnull}


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
    wanted = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["build"],
    ]
    for extra in EXTRAS:
        wanted += project["project"]["optional-dependencies"][extra]
    names = {re.match(r"[\w.-]+", one)[0].lower() for one in wanted}  # type: ignore[index]
    blocks = dict(re.findall(r"^(([\w.-]+)==.*\n(?:    .*\n)*)", text, re.MULTILINE))
    by_name = {name: block for block, name in blocks.items()}
    while more := {
        name
        for name, block in by_name.items()
        if name not in names
        and names & set(re.findall(r"#\s+(?:via )?([\w.-]+)", block))
    }:
        names |= more
    head = (
        "# The part of requirements.lock that the image installs. Remake with: make "
        "lock\n"
    )
    return head + "".join(block for name, block in by_name.items() if name in names)


def problems(text: str) -> list[str]:
    """Find what a lock must not contain: addresses, options, requirements without a
    hash.
    """
    lines = text.splitlines()
    found = [f"an address: {line}" for line in lines if "://" in line or " @ " in line]
    found += [f"an option: {line}" for line in lines if line.startswith("-")]
    found += [
        f"no hash: {line}"
        for line in lines
        if re.match(r"[A-Za-z0-9]", line) and not line.endswith("\\")
    ]
    return found


def main() -> int:
    """Write the lock, unless it has a problem."""
    text = HEADER + compiled()
    if wrong := problems(text):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    LOCK.write_text(text, encoding="utf-8")
    IMAGE.write_text(for_image(text), encoding="utf-8")
    print(
        f"{LOCK.name}: {len(re.findall(r'^[A-Za-z0-9]', text, re.MULTILINE))} "
        "requirements"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
