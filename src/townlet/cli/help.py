"""Command groups and their help pages, which show metavars (`--steps N`) instead of click's type names (`INTEGER`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from townlet.cli.console import out

if TYPE_CHECKING:
    from rich.console import RenderableType

REPEATED = " …"


class CommandGroup(typer.Typer):
    """Typer application with the project's help format; without a command it prints its help."""

    def __init__(self, help: str) -> None:
        super().__init__(
            help=help, cls=FormattedGroup, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["--help", "-h"]},
        )  # fmt: skip

    def with_examples(
        self, *examples: str, name: str | None = None, cls: type[FormattedCommand] | None = None
    ) -> Callable[[Any], Any]:
        """Typer's decorator `command`, for formatted commands; the examples are shown at the end of the help page."""
        epilog = "\n".join(f"  $ {example}" for example in examples)
        return self.command(name, cls=cls or FormattedCommand, epilog=epilog)


def format_help(command: Any, ctx: Any) -> str:
    """The help page of a command, wrapped to the terminal."""
    from rich.text import Text

    params = command.get_params(ctx)
    arguments = [p for p in params if isinstance(p, TyperArgument)]
    options = [p for p in params if isinstance(p, TyperOption) and not p.hidden]
    names = command.list_commands(ctx) if isinstance(command, TyperGroup) else []
    commands = [command.get_command(ctx, name) for name in names]
    usage = [ctx.command_path, *("COMMAND" for _ in names[:1]), *map(_usage, arguments), "[OPTIONS]"]
    console = out()
    with console.capture() as captured:
        console.print(f"Usage: {' '.join(usage)}", style="bold", markup=False)
        note = command.note() if isinstance(command, FormattedCommand) else ""
        for paragraph in filter(None, [*str(command.help or "").split("\n\n"), note]):
            console.print(Text("\n" + " ".join(paragraph.split())))
        for title, entries in (
            ("Commands", [(c.name, str(c.help or "").partition("\n")[0]) for c in commands]),
            ("Arguments", [(_name(p), _description(p, ctx)) for p in arguments]),
            ("Options", [(_syntax(p), _description(p, ctx)) for p in options]),
        ):
            if entries:
                console.print(f"\n{title}", style="bold")
                console.print(_table(entries))
        if command.epilog:
            console.print("\nExamples", style="bold")
            console.print(Text(command.epilog), soft_wrap=True)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


class FormattedCommand(TyperCommand):
    """A command with the project's help format."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(format_help(self, ctx))

    def note(self) -> str:
        """A last paragraph of the description, composed when the help page is shown."""
        return ""


class FormattedGroup(TyperGroup):
    """A command group with the project's help format."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(format_help(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])


def _table(entries: Sequence[tuple[str, str]]) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for syntax, description in entries:
        table.add_row(Text(syntax), Text(description))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _usage(argument: Any) -> str:
    """RUN if required, [RUN] if optional; a repeatable argument ends in " …"."""
    name = _name(argument)
    name += REPEATED if argument.nargs != 1 and not name.endswith(REPEATED) else ""
    return name if argument.required else f"[{name}]"


def _syntax(option: Any) -> str:
    """The option's names and, unless it is a flag, its metavar: the given one, N for numbers, or its name."""
    names = ", ".join(sorted(option.opts, key=len, reverse=True))
    names += "".join(f" / {name}" for name in option.secondary_opts)
    kind = option.type_descriptor.annotation
    metavar = option.metavar or ("N" if {int, float} & {kind, *get_args(kind)} else option.name.upper())
    return names if option.is_flag else f"{names} {metavar}"


def _description(param: Any, ctx: Any) -> str:
    """The help text with the default value in brackets, if there is one."""
    default = None if getattr(param, "is_flag", False) else param.get_default(ctx, call=False)
    shown = default.value if isinstance(default, Enum) else default
    return str(param.help or "") + (f" [{shown}]" if shown not in (None, "") else "")
