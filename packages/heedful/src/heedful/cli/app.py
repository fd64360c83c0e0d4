"""The `heedful` command: which commands there are, and which options they share.

A command is imported when it is called, so that `heedful --help` and the other commands
do not wait for it. An option that is a setting is not passed to the command: it is
stored in `output.CommandLine`, from which `settings()` reads it.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

import heedful as package
from heedful.cli import exits, printing
from heedful.doors import COMMANDS, CommandSet
from heedful.errors import PackageMissing
from heedful.knowledge import ROWS_FOLDER, use_rows_of
from heedful.store.projects import user_folder

# The commands of this package. `heedful --help` has more if others are installed.
OWN_GROUPS = {
    "Begin with": {
        "run": (
            "run:run",
            (
                "Drive every task of a file until it passes or is stopped: "
                "heedful run tasks.jsonl"
            ),
        ),
        "demo": (
            "run:demo",
            (
                "Run tasks with and without memory, and compare the results: "
                "heedful demo --recorded"
            ),
        ),
        "why": (
            "loop_commands:why",
            (
                "Explain why a loop or a stage continued and why it stopped: "
                "heedful why last"
            ),
        ),
        "loops": (
            "loop_commands:loops",
            (
                "List the newest loops; override, cancel, correct them: "
                "heedful loops --state failed"
            ),
        ),
        "lessons": (
            "lesson_commands:lessons",
            "List the lessons; show, edit, pin, prune, harden them: heedful lessons 1",
        ),
        "seen": (
            "lesson_commands:seen",
            (
                "Say whether an error was seen before, and what fixed it: "
                "make 2>&1 | heedful seen"
            ),
        ),
        "before": (
            "lesson_commands:before",
            (
                "Say how a command or call failed before, and what fixed it: "
                "heedful before -- npm test"
            ),
        ),
        "recall": (
            "lesson_commands:recall",
            (
                "Show the answers and advice that memory recalls for a task: "
                "heedful recall 'a task'"
            ),
        ),
        "proof": (
            "proof_command:proof",
            (
                "Show whether memory helps, with confidence intervals: "
                "heedful proof --json"
            ),
        ),
        "doctor": (
            "doctor:doctor",
            (
                "Check what heedful needs here, and say how to repair it: "
                "heedful doctor --json"
            ),
        ),
    },
    "Learn and keep": {
        "reflect": (
            "reflect_command:reflect",
            "List what failed in runs of agents, and learn from it.",
        ),
        "trust": (
            "quarantine_commands:trust",
            "Trust sources: agents see their texts at once; list and remove them.",
        ),
        "quarantine": (
            "quarantine_commands:quarantine",
            "Review quarantined lessons; revoke sources.",
        ),
        "forget": (
            "forget_command:forget",
            "Delete the texts of a person, a lesson, a loop, or all old ones.",
        ),
        "consolidate": (
            "dreams:dreams",
            "Reflect on what recurs, and end outdated rules.",
        ),
        "export": ("transfer_commands:export", "Write all lessons to a file."),
        "import": (
            "transfer_commands:import_",
            "Import the lessons of a file of heedful export.",
        ),
        "replay": (
            "replay_command:replay",
            "Compare what policies would cost on recorded loops.",
        ),
    },
    "Set up and serve": {
        "model": (
            "doctor:models",
            "Fetch the weights of embedded models; check a judge.",
        ),
        "db": (
            "transfer_commands:db",
            "Copy a SQLite file; create the tables in PostgreSQL.",
        ),
    },
}
# Commands of other packages, and the extra that installs each.
COMMANDS_ELSEWHERE = {
    **dict.fromkeys(("hook", "learn-sessions", "mcp", "rules"), "agents"),
    **dict.fromkeys(("key", "serve", "worker"), "server"),
    "ui": "ui",
}
# What a person types who has not read the help, and the command that is meant: the
# singular, `list` after a name that lists already, another word for retiring.
COMMAND_SYNONYMS = {
    "lesson": "lessons",
    "lessons delete": "lessons retire",
    "lessons forget": "lessons retire",
    "lessons list": "lessons",
    "lessons remove": "lessons retire",
    "loop": "loops",
    "loops list": "loops",
    "rules list": "rules",
}
# The options that commands share. Those of a group are those of its commands, too,
# unless a command has a line of its own.
OWN_OPTIONS = {
    **dict.fromkeys(("before", "seen", "recall"), "db json as_hooks"),
    **dict.fromkeys(("db", "replay"), "json"),
    "model": "settings json",
    **dict.fromkeys(("demo", "reflect"), "model db json"),
    **dict.fromkeys(("forget", "quarantine", "trust"), "tenant db json"),
    "run": (
        "model prices policy memory holdout jobs timeout max_tokens settings db json"
    ),
    "doctor": "model tenant db json",
    "db migrate": "db json",
}
DEFAULT_OPTIONS = "db json"
OWN_COMMANDS = CommandSet(package="heedful.cli", groups=OWN_GROUPS, options=OWN_OPTIONS)
OWN_NAMES = OWN_COMMANDS.names


class Group(TyperGroup):
    """A group whose help has the whole first paragraph of each command's
    description.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the commands with their summaries."""
        rows = [
            (name, (command.help or "").split("\n\n")[0])
            for name, command in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names.

        A number in its place is the id of what the command `show` shows.
        """
        if args[0].isdecimal() and "show" in self.commands:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


def group() -> typer.Typer:
    """Return an empty group of commands; its summary is in `COMMAND_GROUPS`."""
    commands = _plain_typer(Group, no_args_is_help=True)
    # Without a callback, Typer would take a group of one command for that command.
    commands.callback()(lambda: None)
    return commands


def group_with_default() -> typer.Typer:
    """Return an empty group whose callback is what the group does without a command."""
    return _plain_typer(Group)


def _plain_typer(
    cls: type[TyperGroup], *, no_args_is_help: bool = False
) -> typer.Typer:
    """Return a Typer whose help has no colours, with line breaks as written.

    Errors pass through it: `Commands.main` prints them.
    """
    return typer.Typer(
        cls=cls,
        add_completion=False,
        no_args_is_help=no_args_is_help,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def _command_of(function: Callable[..., Any]) -> Any:
    """Return the command that calls a function with the options of its signature."""
    single = _plain_typer(TyperGroup)
    single.command()(function)
    return typer.main.get_command(single)


def _store_option(parameter: typer.CallbackParam, value: Any) -> None:
    """Store a setting that is given as an option in the running command line."""
    if value is not None:
        printing.current_command().options[str(parameter.name)] = value


def _store_settings_file(file: Path | None) -> None:
    """Store which settings file the running command line names."""
    if file is not None:
        printing.current_command().settings_file = file


def _setting_option(help: str, *names: str) -> Any:
    """Return the declaration of an option that is a setting."""
    return Option(*names, callback=_store_option, help=help)


def _shared(
    model: Annotated[
        str | None, _setting_option("The model; for a run also several: small,large.")
    ] = None,
    prices: Annotated[
        str | None, _setting_option("Cost of a token of each model: 0,0.00001.")
    ] = None,
    policy: Annotated[
        str | None, _setting_option("The policy: when to stop. [default]")
    ] = None,
    memory: Annotated[
        bool | None, _setting_option("Learn and recall.", "--memory/--no-memory")
    ] = None,
    holdout: Annotated[
        float | None, _setting_option("Share of lessons to withhold. [0.1]")
    ] = None,
    jobs: Annotated[int | None, _setting_option("Tasks at the same time. [1]")] = None,
    timeout: Annotated[
        float | None, _setting_option("Seconds for an attempt. [120]")
    ] = None,
    max_tokens: Annotated[
        int | None, _setting_option("Most tokens of an answer.")
    ] = None,
    host: Annotated[
        str | None, _setting_option("The address to listen on. [127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, _setting_option("The port; 0 selects a free one. [8765]")
    ] = None,
    key_required: Annotated[
        bool | None, _setting_option("Require a key.", "--key-required")
    ] = None,
    workers: Annotated[
        int | None, _setting_option("Jobs at a time, only on SQLite. [2]")
    ] = None,
    rate: Annotated[
        float | None, _setting_option("Requests a second for each key. [no limit]")
    ] = None,
    drain: Annotated[
        float | None, _setting_option("Seconds for requests to end on stop. [30]")
    ] = None,
    tenant: Annotated[str | None, _setting_option("The tenant. [the setting]")] = None,
    db: Annotated[
        str | None, _setting_option("The database. [heedful.db]", "--db")
    ] = None,
    settings: Annotated[
        Path | None,
        Option(
            callback=_store_settings_file,
            help="Read this file of settings instead of those in this folder.",
        ),
    ] = None,
    json: Annotated[
        bool, Option("--json", help="Print exactly one JSON document.")
    ] = False,
    as_hooks: Annotated[
        bool,
        Option("--as-hooks", help="Follow only what hooks follow: no file here."),
    ] = False,
) -> None:
    """Declare the options that many commands share. `output.CommandLine` receives
    their values.
    """


def _shared_options(path: str) -> list[Any]:
    """Return the options that the command `path`, such as "db copy", shares."""
    options_of = _command_set(path.split(maxsplit=1)[0]).options
    while path and path not in options_of:
        path = path.rpartition(" ")[0]
    names = options_of.get(path, DEFAULT_OPTIONS).split()

    options: list[Any] = _command_of(_shared).params
    for option in options:
        option.expose_value = False  # the function of the command has no such parameter
    return [option for option in options if option.name in names]


def _add_shared_options(command: Any, path: str) -> None:
    """Add the options that a command and the commands below it share with others."""
    inner = getattr(command, "commands", {})
    for name, part in inner.items():
        _add_shared_options(part, f"{path} {name}")
    if not inner or command.invoke_without_command:
        command.params += _shared_options(path)


class Commands(TyperGroup):
    """The commands of heedful: each is imported when it is called.

    Errors are printed without a traceback.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Names for "Did you mean"; `get_command` imports the commands.
        self.commands: Any = dict.fromkeys(OWN_NAMES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the commands with their summaries, in groups."""
        groups = command_groups()
        width = max(map(len, chain.from_iterable(groups.values())))
        for title, commands in groups.items():
            rows = [
                (f"{name:<{width}}", summary) for name, (_, summary) in commands.items()
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command `cmd_name`, or None if there is no such command.

        Raises PackageMissing if it is one of a package that is not installed.
        """
        command = None
        if cmd_name not in OWN_NAMES:
            self.commands = dict.fromkeys(
                chain.from_iterable(command_groups().values())
            )
        if cmd_name in self.commands:
            command = _import_command(cmd_name)
        elif cmd_name in COMMANDS_ELSEWHERE:
            extra = COMMANDS_ELSEWHERE[cmd_name]
            raise PackageMissing(f"heedful {cmd_name}", "its package", extra)
        # `heedful.cli.main` disables it in a process of its own, until here.
        if not gc.isenabled():
            gc.freeze()  # what was imported stays, so no collection has to look at it
            gc.enable()
        return command

    def main(
        self, args: Sequence[str] | None = None, *rest: Any, **options: Any
    ) -> Any:
        """Run one command line, and exit with its code.

        `--debug` may be anywhere before a `--`.
        """
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        words_before_dashes = words[:end]
        command_words = [word for word in words_before_dashes if word != "--debug"]
        arguments = _without_synonym(command_words) + words[end:]

        running = printing.CommandLine(
            arguments=arguments,
            json="--json" in words_before_dashes,
            debug="--debug" in words_before_dashes,
            as_hooks="--as-hooks" in words_before_dashes,
        )
        token = printing.CURRENT_COMMAND.set(running)
        with suppress(RuntimeError):  # a user without a home has no rows
            use_rows_of(user_folder() / ROWS_FOLDER)
        # Typer would print errors itself.
        options["standalone_mode"] = False
        try:
            code = super().main(arguments, *rest, **options)
            # Typer itself is silent about Ctrl-C outside of `drive`.
            if code == exits.INTERRUPTED_EXIT_CODE:
                raise exits.Interrupted("interrupted")
        except Exception as error:
            code = exits.report_error(error)
        finally:
            printing.CURRENT_COMMAND.reset(token)
        sys.exit(code if isinstance(code, int) else 0)


def _without_synonym(words: list[str]) -> list[str]:
    """Return a command line with the name of the command, if it has a synonym."""
    for synonym, name in COMMAND_SYNONYMS.items():
        synonym_words = synonym.split()
        if words[: len(synonym_words)] == synonym_words:
            printing.say(f"heedful {synonym} is called heedful {name}")
            return name.split() + words[len(synonym_words) :]
    return words


# A process that calls `main` again and again would build the command each time: 5 ms,
# and 45 ms if it is a group like `hook`.
@cache
def _import_command(name: str) -> Any:
    """Import the command `name`, and add the options that it shares with others."""
    commands = _command_set(name)
    place, summary = next(
        group[name] for group in commands.groups.values() if name in group
    )
    module, _, attribute = place.partition(":")
    target = getattr(import_module(f"{commands.package}.{module}"), attribute)

    is_group = isinstance(target, typer.Typer)
    command: Any = typer.main.get_command(target) if is_group else _command_of(target)
    command.name = name
    command.help = command.help or summary
    _add_shared_options(command, name)
    return command


@cache
def _command_set(name: str) -> CommandSet:
    """Return the commands to which the command `name` belongs.

    Those of other packages are looked for only if it is none of this one: it takes as
    long as all else of a small command.
    """
    if name in OWN_NAMES:
        return OWN_COMMANDS
    others = COMMANDS.load_all().values()
    return next(commands for commands in others if name in commands.names)


def command_groups() -> dict[str, dict[str, tuple[str, str]]]:
    """Return all commands as `heedful --help` shows them: by title, then by name."""
    groups = {title: dict(commands) for title, commands in OWN_GROUPS.items()}
    for commands in COMMANDS.load_all().values():
        for title, added in commands.groups.items():
            groups[title] = {**groups.get(title, {}), **added}
    return groups


def _print_version(wanted: bool) -> None:
    """Print the version and end, if `--version` is given."""
    if wanted:
        typer.echo(f"heedful {package.__version__}")
        raise typer.Exit


app: typer.Typer = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def heedful(
    version: Annotated[
        bool,
        Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Show the version.",
        ),
    ] = False,
    debug: Annotated[
        bool, Option("--debug", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Self-correction for LLM agents: when to try again, when to stop, how to learn
    from errors.

    Settings come from options, HEEDFUL_* in the environment, heedful.toml, and
    [tool.heedful] in pyproject.toml. The first value found counts. A file that is only
    found in the folder names no Python code; that of --settings may.
    """
