"""The `heedful` command: finds its commands when they are called, turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heedful.cli.output import INTERRUPTED, Interrupted, told, usage_told

# Command -> where its function, or its own group, lives.
COMMANDS = {
    "run": "heedful.cli.run:run",
    "demo": "heedful.cli.demo:demo",
    "why": "heedful.cli.told:why",
    "ask": "heedful.cli.asking:ask",
    "runs": "heedful.cli.asking:runs",
    "loops": "heedful.cli.told:loops",
    "log": "heedful.cli.override:log",
    "override": "heedful.cli.override:override",
    "replay": "heedful.cli.replay:replay",
    "tune": "heedful.cli.tune:tune",
    "policy": "heedful.cli.policy:app",
    "reflect": "heedful.cli.reflect:reflect",
    "lessons": "heedful.cli.told:lessons",
    "seen": "heedful.cli.told:seen",
    "recall": "heedful.cli.told:recall",
    "quarantine": "heedful.cli.quarantine:app",
    "patterns": "heedful.cli.patterns:app",
    "pin": "heedful.cli.prune:pin",
    "prune": "heedful.cli.prune:prune",
    "dream": "heedful.cli.dream:app",
    "export": "heedful.cli.transfer:export",
    "import": "heedful.cli.transfer:import_",
    "reembed": "heedful.cli.reembed:reembed",
    "proof": "heedful.cli.proof:proof",
    "model": "heedful.cli.model:app",
    "db": "heedful.cli.db:app",
    "migrate": "heedful.cli.migrate:migrate",
    "worker": "heedful.cli.worker:worker",
    "doctor": "heedful.cli.doctor:doctor",
    "serve": "heedful.cli.serve:serve",
    "key": "heedful.cli.key:app",
    "audit": "heedful.cli.audit:app",
}

# Help as it is written, without colours; errors are told here.
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


class Commands(TyperGroup):
    """A group that imports a command when it is called, and reports what goes wrong."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, None where there is none."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, _, name = COMMANDS[cmd_name].partition(":")
            self.commands[cmd_name] = _command(cmd_name, getattr(import_module(module), name))
        return self.commands.get(cmd_name)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run one command line; exits with its code, or returns it without `standalone_mode`.

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
    """What `run` answers, as an exit code; an error is told in words or as a JSON document."""
    try:
        answer = run()
        if answer == INTERRUPTED:  # Ctrl-C outside of the work that can be resumed; typer is silent
            raise Interrupted("interrupted")
        return answer if isinstance(answer, int) else 0
    except typer.Abort:  # the same, of earlier versions of typer
        return told(Interrupted("interrupted"), json=json, debug=debug)
    except Exception as error:
        if hasattr(error, "format_message"):
            return usage_told(error, json=json)
        return told(error, json=json, debug=debug)


def _command(name: str, found: Any) -> Any:
    group = found
    if not isinstance(found, typer.Typer):
        group = typer.Typer(add_completion=False, **PLAIN)
        group.command(name)(found)
    command: Any = typer.main.get_command(group)
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
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Say which heedful.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; works behind any command.")
    ] = False,
) -> None:
    """Self-correction for LLM agents: when to think again, when to stop, never the same mistake.

    Settings come from options, HEEDFUL_* in the environment, heedful.toml and [tool.heedful] in
    pyproject.toml, in this order.
    """
