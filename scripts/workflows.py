"""Check what the platform that hosts the repository reads: workflows, forms, updates.

check-jsonschema compares them with the published schemas that it brings along; zizmor
finds workflows that give away too much, and actions that are not pinned. Both work
offline.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".github"
BIN = Path(sys.executable).parent
SCHEMAS = {
    "vendor.github-workflows": "workflows/*.yml",
    "vendor.dependabot": "dependabot.yml",
    "vendor.github-issue-forms": "ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": "ISSUE_TEMPLATE/config.yml",
}


def main() -> int:
    """Run both; return 1 if one has found something."""
    zizmor = [BIN / "zizmor", "--offline", "--persona", "pedantic", "-q", PLACE]
    commands = [list(map(str, zizmor))]
    for schema, pattern in SCHEMAS.items():
        files = sorted(PLACE.glob(pattern))
        checker = [str(BIN / "check-jsonschema"), "--builtin-schema", schema]
        commands.append([*checker, *map(str, files)])
    codes = [
        subprocess.run(command, cwd=ROOT, check=False).returncode
        for command in commands
    ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
