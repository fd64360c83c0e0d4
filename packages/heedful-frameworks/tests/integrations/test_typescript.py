"""The TypeScript package with the newest releases of its SDKs: types, tests, and the
package that `npm pack` makes.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.store.support import unmeasured
from tests.tables import cases

PACKAGE = Path(__file__).parents[4] / "clients" / "typescript"


@cases("script", {"types fit those of the SDKs": "check", "tests pass": "test"})
def test_the_package_works_with_its_sdks(script):
    environment = unmeasured()
    environment["HEEDFUL_COMMAND"] = f"{sys.executable} -m heedful"
    path = (str(Path(sys.executable).parent), os.environ["PATH"])
    environment["PATH"] = os.pathsep.join(path)
    done = subprocess.run(
        ["npm", "run", script],
        cwd=PACKAGE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
