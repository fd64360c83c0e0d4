"""Fail if the type of a public name is unknown or ambiguous for a user's type checker.

Left out are the adapters of frameworks: they are imported where their framework is
installed, and mypy checks them there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
VERIFY = ("--verifytypes", "heedful", "--ignoreexternal", "--outputjson")


def main() -> int:
    """Print the names; return 1 if there is one."""
    ran = subprocess.run(
        [BIN / "pyright", *VERIFY], capture_output=True, text=True, check=False
    )
    found = 0
    for symbol in json.loads(ran.stdout)["typeCompleteness"]["symbols"]:
        known = symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]
        if symbol["isExported"] and not known:
            found += 1
            print(
                symbol["name"],
                *(one["message"] for one in symbol["diagnostics"]),
                sep="\n  ",
            )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
