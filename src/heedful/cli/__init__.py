"""The command line.

Each module has related commands, and is imported when one of them runs.
"""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run `heedful` with the arguments of this process, and exit with its code."""
    if sys.argv[1:] == ["--version"]:  # Typer alone takes longer than this
        from heedful import __version__

        print(f"heedful {__version__}")
        return

    gc.disable()  # until the command is imported: nothing of it is garbage
    try:
        from heedful.cli.app import app
        from heedful.cli.exits import leave
    except KeyboardInterrupt:  # Ctrl-C before anything began
        sys.exit(130)

    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    leave(app(prog_name="heedful", standalone_mode=False))
