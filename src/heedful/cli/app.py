"""The `heedful` command. It imports commands when they are called, and reports their
errors.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from heedful.cli import output

# The groups of `heedful --help`: command -> its function or group of commands, and its
# summary.
COMMAND_GROUPS = {
    "Run and understand": {
        "run": ("run:run", "Drive every task of a file until it passes or is stopped."),
        "demo": (
            "run:demo",
            "Run tasks with and without memory, and compare the results.",
        ),
        "why": ("loops:why", "Explain why a loop continued and why it stopped."),
        "ask": ("loops:ask", "Answer why a stage of a pipeline was retried."),
        "loops": ("loops:list_loops", "List the newest loops with their tasks."),
        "runs": ("loops:runs", "List the newest runs of pipelines, or count failures."),
        "log": ("loops:log", "List decisions with their reasons and overrides."),
        "override": (
            "loops:override",
            "Suspend a stop rule, so that a loop can continue.",
        ),
    },
    "Ask memory": {
        "seen": ("lessons:seen", "Say whether an error was seen, and what mended it."),
        "before": (
            "lessons:before",
            "Say how a command failed before, and what mended it.",
        ),
        "recall": (
            "lessons:recall",
            "Show the answers that memory recalls for a task.",
        ),
        "lessons": ("lessons:lessons", "List the lessons, most often seen first."),
        "proof": (
            "memory:proof",
            "Show whether memory helps, with confidence intervals.",
        ),
    },
    "Learn and keep": {
        "reflect": (
            "memory:reflect",
            "List what failed in runs of agents, and learn from it.",
        ),
        "learn-sessions": (
            "sessions:learn_sessions",
            "Learn from sessions of coding agents.",
        ),
        "trust": (
            "memory:trusts",
            "State how far programs, tools and the user are trusted.",
        ),
        "quarantine": (
            "memory:quarantine",
            "Rule on quarantined lessons; revoke sources.",
        ),
        "pin": ("lessons:pin", "Pin a lesson: it is never evicted, pruned or retired."),
        "prune": ("lessons:prune", "Remove lessons that are not useful."),
        "dream": ("memory:dreams", "Merge lessons that say the same."),
        "patterns": (
            "lessons:patterns",
            "Show merged error patterns, and undo a merge.",
        ),
        "export": ("transfer:export", "Write all lessons to a file."),
        "import": (
            "transfer:import_",
            "Import lessons, also those of earlier systems.",
        ),
        "reembed": ("lessons:reembed", "Compute vectors for examples that have none."),
    },
    "Choose when to stop": {
        "replay": (
            "replay:replay",
            "Compare what policies would cost on recorded loops.",
        ),
        "policy": (
            "replay:policies",
            "Show policies, and prove that their rules can fire.",
        ),
    },
    "Set up and serve": {
        "doctor": ("doctor:doctor", "Check what heedful needs, and say how to fix it."),
        "model": ("doctor:models", "Fetch the weights of embedded models."),
        "judge": ("doctor:judges", "Check whether a model can judge answers."),
        "hook": ("hook:hook", "Install the hooks of a coding agent, and answer them."),
        "serve": ("serve:serve", "Serve heedful over HTTP until SIGTERM or Ctrl-C."),
        "ui": ("serve:ui", "Look at loops, lessons and proof in the browser."),
        "mcp": ("serve:mcp", "Serve tools to an agent over MCP, on standard input."),
        "worker": ("serve:worker", "Run the jobs that services put on the queue."),
        "key": (
            "serve:service_keys",
            "Create, list and revoke the keys of the service.",
        ),
        "audit": (
            "serve:audit",
            "List what was done through the service; verify the record.",
        ),
        "db": ("transfer:db", "Copy a SQLite file, as a backup or to PostgreSQL."),
        "migrate": ("transfer:migrate", "Update the schema of a PostgreSQL database."),
    },
}
COMMAND_TABLE = {
    name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()
}

# The options of each command that are settings; most commands also have --db and
# --json.
COMMAND_SETTINGS = {
    "run": "model policy memory holdout jobs timeout max_tokens",
    "serve": "host port model key_required workers rate drain",
    **dict.fromkeys(("demo", "doctor", "reflect", "worker"), "model"),
    "ui": "port tenant",
    **dict.fromkeys(("key", "audit", "mcp"), "tenant"),
}
COMMANDS_WITHOUT_DB = {"hook", "demo", "replay", "policy", "model", "judge", "db"}

# Help without colours, with line breaks as written; `Commands.main` prints errors.
PLAIN_HELP_OPTIONS: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}


class Group(TyperGroup):
    """A group whose help has the whole first paragraph of each command's
    description.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the commands with their summaries."""
        with formatter.section("Commands"):
            helps = {name: one.help or "" for name, one in self.commands.items()}
            formatter.write_dl(
                [(name, help.split("\n\n")[0]) for name, help in helps.items()]
            )


def group() -> typer.Typer:
    """Return an empty group of commands; its description is its summary in `COMMAND_GROUPS`."""
    made = typer.Typer(
        cls=Group, add_completion=False, no_args_is_help=True, **PLAIN_HELP_OPTIONS
    )
    made.callback()(lambda: None)
    return made


def _command(function: Callable[..., Any]) -> Any:
    made = typer.Typer(add_completion=False, **PLAIN_HELP_OPTIONS)
    made.command()(function)
    return typer.main.get_command(made)


def _keep(parameter: typer.CallbackParam, value: Any) -> None:
    if value is not None:
        output.call().options[str(parameter.name)] = value


def _option(help: str, *names: str) -> Any:
    return Option(*names, callback=_keep, help=help)


def _shared(
    model: Annotated[str | None, _option("The model.")] = None,
    policy: Annotated[
        str | None, _option("The policy: when to stop. [default]")
    ] = None,
    memory: Annotated[
        bool | None, _option("Learn and recall.", "--memory/--no-memory")
    ] = None,
    holdout: Annotated[
        float | None, _option("Share of lessons to withhold. [0.1]")
    ] = None,
    jobs: Annotated[int | None, _option("Tasks at the same time. [1]")] = None,
    timeout: Annotated[float | None, _option("Seconds for an attempt. [120]")] = None,
    max_tokens: Annotated[int | None, _option("Tokens for an answer. [256]")] = None,
    host: Annotated[
        str | None, _option("The address to listen on. [127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, _option("The port; 0 selects a free one. [8765]")
    ] = None,
    key_required: Annotated[
        bool | None, _option("Require a key.", "--key-required")
    ] = None,
    workers: Annotated[
        int | None, _option("Jobs at a time, only on SQLite. [2]")
    ] = None,
    rate: Annotated[
        float | None, _option("Requests a second for each key. [no limit]")
    ] = None,
    drain: Annotated[
        float | None, _option("Seconds for requests to end on stop. [30]")
    ] = None,
    tenant: Annotated[str | None, _option("The tenant. [the setting]")] = None,
    db: Annotated[
        str | None, _option("The database. [heedful.db]", "--db", "--store")
    ] = None,
    json: Annotated[
        bool, Option("--json", help="Print exactly one JSON document.")
    ] = False,
) -> None:
    """Declare the options that many commands share. `output.Call` receives their
    values.
    """


def _shared_options(name: str) -> list[Any]:
    options: list[Any] = _command(_shared).params
    for option in options:
        option.expose_value = False
    names = {*COMMAND_SETTINGS.get(name, "").split()}
    names |= {"db"} if name not in COMMANDS_WITHOUT_DB else set()
    names |= {"json"} if name not in {"serve", "ui", "worker"} else set()
    return [option for option in options if option.name in names]


class Commands(TyperGroup):
    """A group that imports a command when it is called, and prints errors without a
    traceback.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = dict.fromkeys(
            COMMAND_TABLE
        )  # the names, for "Did you mean"

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the commands with their summaries, in groups."""
        for title, group in COMMAND_GROUPS.items():
            with formatter.section(title):
                widest = max(map(len, COMMAND_TABLE))
                formatter.write_dl(
                    [(f"{name:<{widest}}", one[1]) for name, one in group.items()]
                )

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command `cmd_name`, or None if there is no such command."""
        if cmd_name in COMMAND_TABLE and self.commands[cmd_name] is None:
            place, summary = COMMAND_TABLE[cmd_name]
            module, _, name = place.partition(":")
            found = getattr(import_module(f"heedful.cli.{module}"), name)
            grouped = isinstance(found, typer.Typer)
            command: Any = typer.main.get_command(found) if grouped else _command(found)
            command.name = cmd_name
            command.help = command.help or summary
            own = not grouped or command.invoke_without_command
            for part in (
                *getattr(command, "commands", {}).values(),
                *([command] if own else []),
            ):
                part.params += _shared_options(cmd_name)
            self.commands[cmd_name] = command
            gc.enable()
        return self.commands.get(cmd_name)

    def main(
        self, args: Sequence[str] | None = None, *rest: Any, **options: Any
    ) -> Any:
        """Run one command line and exit with its code; without `standalone_mode`,
        return the code.

        `--debug` may be anywhere before a `--`.
        """
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        head = words[:end]
        kept = [word for word in head if word != "--debug"] + words[end:]
        alone = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        running = output.CommandLine(
            arguments=words, json="--json" in head, debug="--debug" in head
        )
        token = output.CURRENT_COMMAND.set(running)
        try:
            code = super().main(kept, *rest, **options)
            if (
                code == output.INTERRUPTED_EXIT_CODE
            ):  # Ctrl-C outside of `drive`: typer itself is silent
                raise output.Interrupted("interrupted")
        except typer.Abort:  # the same in earlier versions of typer
            code = output.report_error(output.Interrupted("interrupted"))
        except Exception as error:
            code = output.report_error(error)
        finally:
            if running.progress:
                running.progress.__exit__()
            output.CURRENT_COMMAND.reset(token)
        code = code if isinstance(code, int) else 0
        if alone:
            sys.exit(code)
        return code


def _version(wanted: bool) -> None:
    if wanted:
        from heedful import __version__

        typer.echo(f"heedful {__version__}")
        raise typer.Exit


VERSION_OPTION = Option(
    "--version", is_eager=True, callback=_version, help="Show the version."
)
HELP_SETTINGS = {"help_option_names": ["-h", "--help"]}
app: typer.Typer = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings=HELP_SETTINGS,
    **PLAIN_HELP_OPTIONS,
)


@app.callback()
def heedful(
    version: Annotated[bool, VERSION_OPTION] = False,
    debug: Annotated[
        bool, Option("--debug", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Self-correction for LLM agents: when to try again, when to stop, how to learn
    from errors.

    Settings come from options, HEEDFUL_* in the environment, heedful.toml, and
    [tool.heedful] in pyproject.toml. The first value found counts.
    """
