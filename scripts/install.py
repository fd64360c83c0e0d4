"""Install requirements.lock and heedful into the environment of this Python.

uv does it, itself installed by pip from its block of the lock: an eighth of pip's time
and CPU. uv does not read pip's configuration, so its settings are made of what `pip
config list` says on this machine. Where a setting has no counterpart, or uv fails, pip
installs the same files.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
PIP = (sys.executable, "-m", "pip")
# The lock is complete, so nothing is resolved: a resolver would look for newer releases
# of a requirement that has an extra, and refuse them for want of a hash.
LOCKED = ("--no-deps", "--require-hashes", "--requirement")
# Offline from here: the build backend is among the locked requirements.
HEEDFUL = ["--no-deps", "--no-build-isolation"]
for project in sorted(ROOT.glob("packages/*/pyproject.toml")):
    HEEDFUL += ["--editable", str(project.parent)]
# The setting of uv for each setting of pip.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "keyring-provider": "UV_KEYRING_PROVIDER",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
# uv separates these by commas, pip by white space.
LISTS_WITH_COMMAS = {"find-links"}
# These change nothing about which locked files are installed, or only what is said.
WITHOUT_EFFECT = {
    "break-system-packages",
    "cache-dir",
    "constraint",
    "disable-pip-version-check",
    "no-cache-dir",
    "no-color",
    "no-input",
    "no-warn-script-location",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "retries",
    "root-user-action",
    "user",
    "verbose",
}


class NoCounterpart(Exception):
    """A setting of pip that uv cannot be given."""


def pip_settings(listing: str) -> dict[str, str]:
    """Read the output of `pip config list`: what counts for `pip install`.

    A variable of the environment counts more than the section [install], and that more
    than [global].

    >>> pip_settings("global.timeout='5'\\ninstall.timeout='9'\\ndownload.timeout='1'")
    {'timeout': '9'}
    """
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}."):
                name = key.removeprefix(f"{section}.").replace("_", "-")
                settings[name] = str(ast.literal_eval(value))
    return settings


def uv_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Translate pip's settings to variables for uv. Raises NoCounterpart.

    >>> uv_variables({"find-links": "one two", "cache-dir": "here"})["UV_FIND_LINKS"]
    'one,two'
    """
    # Like pip: any index may have any release, and the machine's certificates count.
    # The hashes decide which file is right.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "true"}
    for name, value in settings.items():
        if name in WITHOUT_EFFECT or not value:
            continue
        if name not in VARIABLES:
            raise NoCounterpart(f"pip's setting {name} has no counterpart in uv")
        separator = "," if name in LISTS_WITH_COMMAS else " "
        variables[VARIABLES[name]] = separator.join(value.split())
    return variables


def locked_uv() -> str:
    """Return the requirement of uv in the lock, with its hashes."""
    match = re.search(r"^uv==(?:.*\\\n)+.*\n", LOCK.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise NoCounterpart("the lock has no uv")
    return match[0]


def uv_environment() -> dict[str, str]:
    """Return this process's variables and, unless set, those made of pip's settings.

    Raises NoCounterpart.
    """
    listing = subprocess.run(
        [*PIP, "config", "list"], check=True, stdout=subprocess.PIPE, text=True
    )
    return uv_variables(pip_settings(listing.stdout)) | os.environ


def install_by_uv() -> None:
    """Install uv, and by it the rest. Raises NoCounterpart, CalledProcessError."""
    environment = uv_environment()
    with tempfile.TemporaryDirectory() as folder:
        requirement = Path(folder, "uv.txt")
        requirement.write_text(locked_uv(), "utf-8")
        run([*PIP, "install", "-qq", *LOCKED, str(requirement)])

    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
    uv += ["--python", sys.executable]
    run([*uv, *LOCKED, str(LOCK)], environment)
    run([*uv, *HEEDFUL], environment)


def install_by_pip() -> None:
    """Install all of it. Raises CalledProcessError."""
    # Errors only: every index that lacks a package would be a warning for each of them.
    run([*PIP, "install", "-qq", *LOCKED, str(LOCK)])
    run([*PIP, "install", "-qq", *HEEDFUL])


def link_lab() -> None:
    """Let Python find the modules of the lab, which is no distribution.

    They use examples and doubles that are beside the sources of the packages.
    """
    path_file = Path(sysconfig.get_path("purelib"), "heedful_lab.pth")
    folders = ("lab", "packages/heedful", "packages/heedful-server")
    path_file.write_text("".join(f"{ROOT / name}\n" for name in folders), "utf-8")


def run(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    """Run a command. Raises CalledProcessError if it fails."""
    subprocess.run(command, env=environment, check=True)


def main() -> int:
    """Install, and say which installer failed; return 1 if both did."""
    link_lab()
    try:
        install_by_uv()
        return 0
    except (NoCounterpart, OSError, subprocess.CalledProcessError) as error:
        print(f"heedful: pip installs the rest, slower: {error}", file=sys.stderr)
    try:
        install_by_pip()
    except subprocess.CalledProcessError as error:
        print(f"heedful: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
