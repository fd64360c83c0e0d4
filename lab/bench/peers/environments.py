"""The peers, their versions, and an environment for each: a folder that is kept."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.workspace import ROOT, SOURCES

VERSIONS = Path(__file__).with_name("versions.toml")
FOLDER = ROOT / ".venv-peers"
MAX_INSTALL_SECONDS = 1_200
MAX_REASON_CHARS = 160
# No peer may call home, nor read the settings of this machine.
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MEM0_TELEMETRY": "False",
    "OTEL_SDK_DISABLED": "true",
}
LIST_PACKAGES = """
import json
from importlib.metadata import distributions
print(json.dumps({each.metadata["Name"]: each.version for each in distributions()}))
"""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library: its program is `bench.peers.NAME`, which does these kinds of work."""

    name: str
    title: str
    packages: Sequence[str] = ()
    kinds: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A peer with the Python that runs it and its packages, or why there is none."""

    peer: Peer
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    @property
    def version(self) -> str:
        """The version of the first package that the peer needs."""
        first = self.peer.packages[0].partition("==")[0]
        return self.packages.get(first, "")

    def variables(self, home: str) -> dict[str, str]:
        """Return the environment variables of a program of this peer."""
        paths = [str(ROOT), str(ROOT / "lab")]
        if self.peer == OURS:
            paths += [str(source.parent) for source in SOURCES]
        return {
            **QUIET,
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": home,
            "DSPY_CACHEDIR": f"{home}/dspy",
            "PYTHONPATH": os.pathsep.join(paths),
        }


OURS = Peer(
    name="ours",
    title="heedful",
    packages=("heedful",),
    kinds=("cycle", "durable", "together", "bytes", "lessons", "sighting", "write"),
)


def read_peers(text: str) -> list[Peer]:
    """Return the peers of a file of versions."""
    return [Peer(name=name, **fields) for name, fields in tomllib.loads(text).items()]


def open_ours() -> Environment:
    """Return heedful, which runs in the environment of this process."""
    return Environment(
        peer=OURS, python=sys.executable, packages=list_packages(sys.executable)
    )


def make_environment(peer: Peer) -> Environment:
    """Install a peer, unless its environment has these versions already."""
    place = FOLDER / peer.name
    python = place / "bin" / "python"
    mark = place / "installed.json"
    wanted = json.dumps([sys.version, *peer.packages])
    if not mark.exists() or mark.read_text("utf-8") != wanted:
        shutil.rmtree(place, ignore_errors=True)
        reason = install(peer, place, python)
        if reason:
            return Environment(peer=peer, reason=reason)
        mark.write_text(wanted, "utf-8")
    return Environment(
        peer=peer, python=str(python), packages=list_packages(str(python))
    )


def install(peer: Peer, place: Path, python: Path) -> str:
    """Make an environment; return why it failed, "" if it did not."""
    steps = [
        [sys.executable, "-m", "venv", str(place)],
        [str(python), "-m", "pip", "install", "--no-input", "-q", *peer.packages],
    ]
    for step in steps:
        try:
            process = subprocess.run(
                step,
                check=False,
                capture_output=True,
                text=True,
                timeout=MAX_INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"not installed within {MAX_INSTALL_SECONDS} seconds"
        if process.returncode:
            return find_reason(process.stderr)
    return ""


def find_reason(errors: str) -> str:
    """Return the last error of pip, without paths and addresses."""
    lines = [line for line in errors.splitlines() if line.startswith("ERROR:")]
    reason = (lines or errors.splitlines() or ["no reason was given"])[-1]
    return hide_places(reason.removeprefix("ERROR:").strip())


def hide_places(text: str) -> str:
    """Return a text without addresses and paths of this machine, and not too long."""
    return re.sub(r"(\w+://|(?<!\w)/)\S+", "…", text)[:MAX_REASON_CHARS]


def list_packages(python: str) -> dict[str, str]:
    """Return the distributions of an environment with their versions."""
    process = subprocess.run(
        [python, "-c", LIST_PACKAGES], check=True, capture_output=True, text=True
    )
    packages: dict[str, str] = json.loads(process.stdout)
    return packages
