"""The program `atlasd`; heavy modules are imported by the command that needs them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer

from atlasd.errors import AtlasdError
from atlasd.runtime.context import within
from atlasd.runtime.interrupt import prompt_interrupt
from atlasd.runtime.text import escaped

if TYPE_CHECKING:
    from atlasd.runtime.stages import Stages

INTERRUPTED = "atlasd: interrupted; "
_LONGEST = 2000
"""Characters of a line that says what was wrong; a file may hold names of any length."""
AGAIN = "run the same command again."

app = typer.Typer(
    name="atlasd",
    help="Find the local symmetry of your data, and be told how sure that is.",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"atlasd {version('atlasd')}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


# Name of each command: the module and the function that does it.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "demo"),
    "list": ("listing", "list_experiments"),
    "run": ("run", "run"),
    "discover": ("discover", "discover"),
    "resume": ("resume", "resume"),
    "report": ("report", "report"),
    "audit": ("audit", "audit"),
    "compare": ("compare", "compare"),
    "zoo": ("zoo", "zoo"),
    "data": ("data", "data"),
    "doctor": ("doctor", "doctor"),
}
for _name, (_module, _function) in COMMANDS.items():
    _command = getattr(importlib.import_module(f"atlasd.cli.{_module}"), _function)
    # The whole first line: left to itself, the list of commands would cut it off.
    app.command(_name, short_help=_command.__doc__.splitlines()[0])(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status: 0 done, 2 bad input, 130 interrupted."""
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    interrupted: Callable[[], bool] = lambda: False  # noqa: E731
    unfinished: list[Stages] = []
    try:
        with prompt_interrupt(partial(_abandoned, unfinished)) as interrupted, within(unfinished=unfinished):
            status = command.main(given, prog_name="atlasd", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except Exception as error:
        if interrupted():  # a library that is interrupted while it is imported raises something else
            status = 130
        elif isinstance(error, AtlasdError | OSError):
            return _fail(str(error))
        elif isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch has its own
            return _fail("the work must fit into memory, got no room; give it fewer samples or a larger machine.")
        # Usage errors: their class is click's in older typer and typer's own in newer.
        elif callable(getattr(error, "format_message", None)):
            return _fail(error.format_message())  # type: ignore[attr-defined]
        else:
            raise
    if status == 130:
        exec("")  # an interrupt that passed through `exec` is remembered until the next one, and would set the status
        print(escaped(_interrupted(unfinished)), file=sys.stderr)
    return status if isinstance(status, int) else 0


def _interrupted(unfinished: Sequence[Stages]) -> str:
    """What to say after Ctrl-C, with the command that goes on where there is one."""
    hint = next((stages.hint for stages in unfinished), None)
    return INTERRUPTED + (f"`{hint}` goes on with it." if hint else AGAIN)


def _abandoned(unfinished: Sequence[Stages]) -> str:
    """The same for a process that ends at once: nothing else will tidy its run directory."""
    for stages in unfinished:
        stages.abandon()
    return _interrupted(unfinished)


def _fail(message: str) -> int:
    line = " ".join(message.split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    print(f"atlasd: error: {escaped(line)}", file=sys.stderr)
    return 2
