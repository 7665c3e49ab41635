"""Families of commands and their help, which says what to write and what it does, without the types of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from townlet.cli.console import out

if TYPE_CHECKING:
    from rich.console import RenderableType

Entry = tuple[str, str]  # what to write, and what it does
MANY = " …"


class CommandGroup(typer.Typer):
    """Commands that share their manners; without a word after it, a family shows its help."""

    def __init__(self, help: str) -> None:
        super().__init__(
            help=help, cls=FormattedGroup, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["--help", "-h"]},
        )  # fmt: skip

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Typer's decorator, for commands with this help."""
        return super().command(name, cls=FormattedCommand, **settings)


class FormattedCommand(TyperCommand):
    """One verb."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(format_help(self, ctx))


class FormattedGroup(TyperGroup):
    """Verbs under one word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(format_help(self, ctx))


def format_help(command: Any, ctx: Any) -> str:
    """The whole help of a command, as wide as the terminal."""
    from rich.text import Text

    params = command.get_params(ctx)
    arguments = [p for p in params if isinstance(p, TyperArgument)]
    options = [p for p in params if isinstance(p, TyperOption) and not p.hidden]
    verbs = [command.get_command(ctx, name) for name in command.list_commands(ctx)] if _is_group(command) else []
    usage = [ctx.command_path, *("COMMAND" for _ in verbs[:1]), *map(_in_usage, arguments), "[OPTIONS]"]
    console = out()
    with console.capture() as captured:
        console.print(f"Usage: {' '.join(usage)}", style="bold", markup=False)
        for paragraph in str(command.help or "").split("\n\n"):
            console.print(Text("\n" + " ".join(paragraph.split())))
        for title, entries in (
            ("Commands", [(verb.name, _first_line(verb)) for verb in verbs]),
            ("Arguments", [(_name(p), _said(p, ctx)) for p in arguments]),
            ("Options", [(_written(p), _said(p, ctx)) for p in options]),
        ):
            if entries:
                console.print(f"\n{title}", style="bold")
                console.print(_table(entries))
        if command.epilog:
            console.print("\nExamples", style="bold")
            console.print(Text(command.epilog), soft_wrap=True)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _is_group(command: Any) -> bool:
    return isinstance(command, TyperGroup)


def _table(entries: Sequence[Entry]) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for written, said in entries:
        table.add_row(Text(written), Text(said))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _first_line(command: Any) -> str:
    return str(command.help or "").partition("\n")[0]


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _in_usage(argument: Any) -> str:
    """RUN where it is needed, [RUN] where it is not, [KEY=VALUE …] where there may be several."""
    name = _name(argument)
    name += MANY if argument.nargs != 1 and not name.endswith(MANY) else ""
    return name if argument.required else f"[{name}]"


def _written(option: Any) -> str:
    """The option as it is typed, and what follows it: as it says itself, or a number, or its own name."""
    names = ", ".join(sorted(option.opts, key=len, reverse=True))
    names += "".join(f" / {name}" for name in option.secondary_opts)
    kind = option.type_descriptor.annotation
    follows = "N" if {int, float} & {kind, *get_args(kind)} else option.name.upper()
    return names if option.is_flag else f"{names} {option.metavar or follows}"


def _said(param: Any, ctx: Any) -> str:
    """What it does, and what holds without it."""
    default = None if getattr(param, "is_flag", False) else param.get_default(ctx, call=False)
    shown = default.value if isinstance(default, Enum) else default
    return str(param.help or "") + (f" [{shown}]" if shown not in (None, "") else "")
