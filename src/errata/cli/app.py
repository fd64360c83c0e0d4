"""The `errata` command: finds its commands when they are called, and turns errors into exit codes.

Exit codes: 0 all is well, 1 something did not pass, 2 usage, 3 not found, 4 storage, 5 model or
provider, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from errata.cli.failure import Interrupted, told, usage_told

# Command -> where its function, or its own group, lives.
COMMANDS = {
    "run": "errata.cli.run:run",
    "demo": "errata.cli.demo:demo",
    "why": "errata.cli.why:why",
    "loops": "errata.cli.why:loops",
    "lessons": "errata.cli.lessons:lessons",
    "seen": "errata.cli.lessons:seen",
    "recall": "errata.cli.lessons:recall",
    "model": "errata.cli.model:app",
    "doctor": "errata.cli.doctor:doctor",
}


class Commands(TyperGroup):
    """A group that imports a command when it is called, and reports what goes wrong."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands that are there, in the order of the help."""
        return [name for name in COMMANDS if self.get_command(ctx, name) is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, None where there is none."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            found = _found(COMMANDS[cmd_name])
            if found is not None:
                self.commands[cmd_name] = _command(cmd_name, found)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that `ctx` names."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before or after the work that can be resumed
            raise Interrupted("interrupted") from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line; exits with its code, or returns it without `standalone_mode`."""
        given = list(sys.argv[1:] if args is None else args)
        end = given.index("--") if "--" in given else len(given)
        debug = "--debug" in given[:end]
        kept = [arg for at, arg in enumerate(given) if at >= end or arg != "--debug"]
        call = super().main

        def work() -> Any:
            return call(kept, prog_name, complete_var, standalone_mode=False, obj=given, **extra)

        code = exit_code(work, json="--json" in given[:end], debug=debug)
        if standalone_mode:
            sys.exit(code)
        return code


def exit_code(work: Callable[[], Any], *, json: bool, debug: bool) -> int:
    """What `work` answers, as an exit code; an error is told in words or as a JSON document."""
    try:
        answer = work()
        return answer if isinstance(answer, int) else 0
    except Exception as error:
        if callable(getattr(error, "format_message", None)):
            return usage_told(error, json=json)
        return told(error, json=json, debug=debug)


def _found(place: str) -> Any:
    """What is at `module:name`, None where there is no such module."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None


def _command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_command(found)
        command.name = name
        return command
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


def _version(wanted: bool) -> None:
    if wanted:
        from errata import __version__

        typer.echo(f"errata {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def errata(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Say which errata.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; works behind any command.")
    ] = False,
) -> None:
    """Self-correction for LLM agents: when to think again, when to stop, never the same mistake.

    Settings come from options, ERRATA_* in the environment, errata.toml and [tool.errata] in
    pyproject.toml, in this order.
    """
