"""How a command ends: its exit code, its error message, Ctrl-C, and the last step.

Exit codes: 0 success, 1 not passed, 2 usage, 3 not found, 4 storage, 5 model, 130
interrupted.
"""

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from heedful import errors
from heedful.cli.printing import current_command, name_database, print_json, say

T = TypeVar("T")

# How long cancelled work may clean up; a user's check may block for ever.
GRACE_SECONDS = 1.0
# The name of the thread that exits after `GRACE_SECONDS`.
LEAVING_THREAD = "heedful-leave"


class Interrupted(Exception):
    """Ctrl-C was pressed. The message says how to continue."""


USAGE_EXIT_CODE = 2
INTERRUPTED_EXIT_CODE = 130
# An error has the code of the first of these classes that it is an instance of, else 1.
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (Interrupted, INTERRUPTED_EXIT_CODE),
    (errors.UsageError, USAGE_EXIT_CODE),
    (errors.NotFound, 3),
    (errors.StoreError, 4),
    (OSError, 4),
    (errors.ModelError, 5),
)


def run_interruptibly(
    work: Coroutine[Any, Any, T], last_words: Callable[[], str] = lambda: "interrupted"
) -> T:
    """Run a coroutine and return its result. Ctrl-C cancels it and raises Interrupted.

    The message of Interrupted is `last_words()`. If the coroutine has not ended a
    second after Ctrl-C, or if Ctrl-C is pressed again, the process exits with 130.
    Committed data is safe.
    """
    import asyncio  # slow to import, and `heedful --help` does not need it

    def give_up() -> None:
        """Exit, whatever the cancelled work does."""
        say(f"heedful: {last_words()}")
        os._exit(INTERRUPTED_EXIT_CODE)

    grace_timer = threading.Timer(GRACE_SECONDS, give_up)
    grace_timer.daemon = True
    grace_timer.name = LEAVING_THREAD
    was_interrupted = False
    previous_handler = signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(work)

            def interrupt(signum: int, frame: object) -> None:
                """Cancel the task, which may then clean up; exit the second time."""
                nonlocal was_interrupted
                if was_interrupted:
                    os._exit(INTERRUPTED_EXIT_CODE)
                was_interrupted = True
                grace_timer.start()
                loop.call_soon_threadsafe(task.cancel)

            signal.signal(signal.SIGINT, interrupt)
            return loop.run_until_complete(task)
    except asyncio.CancelledError:
        raise Interrupted(last_words()) from None
    except SystemExit as error:
        raise errors.UserCodeError(
            f"a model or a check called sys.exit({error.code!r})"
        ) from error
    finally:
        grace_timer.cancel()
        signal.signal(signal.SIGINT, previous_handler)


def report_error(error: BaseException, **more: Any) -> int:
    """Print the error and return its exit code.

    With --json, it is printed as one document, which includes `more`.
    """
    command = current_command()
    type_name = type(error).__name__
    # Without a command, the message of Typer's error is the help.
    is_help = type_name == "NoArgsIsHelpError"
    codes = (code for cls, code in EXIT_CODES if isinstance(error, cls))
    code = next(codes, 1)
    if _is_of_command_line(error):
        type_name = "UsageError"
        code = USAGE_EXIT_CODE
    message = message_of(error)
    if command.debug and not is_help:
        traceback.print_exception(error, file=sys.stderr)

    if command.json:
        with suppress(OSError):  # if stdout itself is broken, stderr has the message
            print_json({"error": {"type": type_name, "message": message}, **more})
            return code

    say(message if is_help else f"heedful: {message}")
    return code


def _is_of_command_line(error: BaseException) -> bool:
    """Return True if Typer raised the error because of a wrong command line."""
    return hasattr(error, "format_message")


def message_of(error: Any) -> str:
    """Return the message of an error, with its notes or a hint what to do."""
    if isinstance(error, errors.NotFound):
        return name_database(str(error))
    # No command takes the key of a call: a person looks.
    if isinstance(error, errors.StoreInDoubt) and error.argument == "key" and error.key:
        error = errors.StoreInDoubt(error.what, counts=True)
    if isinstance(error, errors.HeedfulError | OSError | Interrupted):
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    if _is_of_command_line(error):
        return str(error.format_message())

    hint = "; run it again with --debug for the traceback"
    if current_command().debug:
        hint = ""
    return f"unexpected {type(error).__name__}: {error}{hint}"


def leave(code: int) -> NoReturn:
    """Exit the process, even while a cancelled call still runs in a thread.

    Python's own exit takes 40 ms to destroy what was imported. It would also destroy
    C++ objects that the thread uses, and the process would abort.
    """
    try:
        sys.stdout.flush()
    except OSError:  # at exit Python would write again, and change the exit code
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())

    deadline = time.monotonic() + GRACE_SECONDS
    for thread in threading.enumerate():
        is_awaited = not thread.daemon or thread.name == LEAVING_THREAD
        if is_awaited and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
