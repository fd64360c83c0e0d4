"""The `heedful` command: imports a command when it is called, turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heedful.cli.output import INTERRUPTED, Interrupted, report_error, report_usage

# Command -> the module and the name of its function or its group.
COMMANDS = {
    "run": "run:run",
    "demo": "demo:demo",
    "why": "loops:why",
    "ask": "runs:ask",
    "runs": "runs:runs",
    "loops": "loops:loops",
    "log": "loops:log",
    "override": "loops:override",
    "replay": "replay:replay",
    "tune": "replay:tune",
    "policy": "replay:policies",
    "reflect": "reflect:reflect",
    "lessons": "lessons:lessons",
    "seen": "lessons:seen",
    "recall": "lessons:recall",
    "quarantine": "quarantine:app",
    "patterns": "lessons:patterns",
    "pin": "lessons:pin",
    "prune": "lessons:prune",
    "dream": "dream:app",
    "export": "transfer:export",
    "import": "transfer:import_",
    "reembed": "transfer:reembed",
    "proof": "proof:proof",
    "model": "doctor:models",
    "db": "transfer:db",
    "migrate": "transfer:migrate",
    "worker": "worker:worker",
    "doctor": "doctor:doctor",
    "serve": "serve:serve",
    "key": "key:app",
    "audit": "key:audit",
}

# Help as it is written, without colours; errors are printed here.
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


def group(help: str) -> typer.Typer:
    """Return an empty group of commands."""
    made = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)
    made.callback(help=help)(lambda: None)
    return made


class Commands(TyperGroup):
    """A group that imports a command when it is called, and reports what goes wrong."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, or None."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, _, name = COMMANDS[cmd_name].partition(":")
            found = getattr(import_module(f"heedful.cli.{module}"), name)
            self.commands[cmd_name] = _command(cmd_name, found)
        return self.commands.get(cmd_name)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run one command line and exit with its code, or return it without `standalone_mode`.

        `--debug` is taken out wherever it stands before a `--`.
        """
        given = list(sys.argv[1:] if args is None else args)
        end = given.index("--") if "--" in given else len(given)
        head = given[:end]
        kept = [arg for arg in head if arg != "--debug"] + given[end:]
        alone = options.pop("standalone_mode", True)
        options |= {"standalone_mode": False, "obj": given}
        run = partial(super().main, kept, *rest, **options)
        code = exit_code(run, json="--json" in head, debug="--debug" in head)
        if alone:
            sys.exit(code)
        return code


def exit_code(run: Callable[[], Any], *, json: bool, debug: bool) -> int:
    """Return the exit code of `run`; an error is printed in words or as a JSON document."""
    try:
        code = run()
        if code == INTERRUPTED:  # Ctrl-C outside of `drive`: typer itself is silent
            raise Interrupted("interrupted")
        return code if isinstance(code, int) else 0
    except typer.Abort:  # the same in earlier versions of typer
        return report_error(Interrupted("interrupted"), json=json, debug=debug)
    except Exception as error:
        if hasattr(error, "format_message"):
            return report_usage(error, json=json)
        return report_error(error, json=json, debug=debug)


def _command(name: str, found: Any) -> Any:
    made = found
    if not isinstance(found, typer.Typer):
        made = typer.Typer(add_completion=False, **PLAIN)
        made.command(name)(found)
    command: Any = typer.main.get_command(made)
    command.name = name
    return command


def _version(wanted: bool) -> None:
    if wanted:
        from heedful import __version__

        typer.echo(f"heedful {__version__}")
        raise typer.Exit


app: typer.Typer = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    **PLAIN,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def heedful(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; works after any command, too.")
    ] = False,
) -> None:
    """Self-correction for LLM agents: when to think again, when to stop, never the same mistake.

    Settings come from options, HEEDFUL_* in the environment, heedful.toml and [tool.heedful] in
    pyproject.toml, in this order.
    """
