"""The command line.

Each module has related commands, and is imported when one of them runs.
"""

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `heedful` with these arguments, and return its exit code.

    Without arguments, take those of the process, and end the process with the code.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        gc.disable()  # until the command is imported: nothing of it is garbage
    try:
        from heedful.cli.app import app
        from heedful.cli.exits import leave
    except KeyboardInterrupt:  # Ctrl-C before anything began
        sys.exit(130)

    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    code = 0
    try:
        app(words, prog_name="heedful")
    except SystemExit as end:
        code = int(end.code or 0)
    if arguments is None:
        leave(code)
    return code
