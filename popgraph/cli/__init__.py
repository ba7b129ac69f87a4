"""The command `popgraph`: subcommands, global options, error reports and exit codes."""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from popgraph.cli.completion import VARIABLE, answer
from popgraph.cli.options import Load
from popgraph.cli.report import show_error
from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest
from popgraph.support.ranks.launched import is_launched
from popgraph.support.signals import terminating_on_sigint
from popgraph.support.spelling import as_options

COMMANDS = (
    "print",
    "info",
    "view",
    "run",
    "generate",
    "train",
    "zoo",
    "convert",
    "gradient",
    "lora",
    "quantize",
    "check",
    "fmt",
    "lsp",
    "bench",
    "profile",
    "scale",
    "schedules",
    "tune",
    "emit",
    "export",
    "opt",
    "bisect",
    "passes",
    "ops",
    "popart",
    "conformance",
    "doctor",
    "completion",
)
"""One module per command, in the order of `--help`."""

ABOUT = """
Compile ONNX and .pgraph models to C, run them, train them, and inspect every step between.

\b
First steps:
  popgraph run model.onnx --random             run a model on random inputs
  popgraph run model.onnx -i x=x.npy -o y=y.npy
  popgraph info model.onnx                     inputs, outputs, size, cost
  popgraph view model.onnx                     everything in the browser
  popgraph print model.pgraph --at graphcore   what is computed
  popgraph print model.pgraph --at c           the C that runs
  popgraph train net.pgraph x=x.npy labels=labels.npy --epochs 5 -o trained.onnx
  popgraph doctor                              is a C compiler there?

\b
Models are .onnx files, .pgraph texts and .mlir files (IR of any level; below graphcore it is code).
POPGRAPH_DEBUG=1 shows every pass and its time; 2 the IR, 3 kernels, 4 the C.
POPGRAPH_PATH=lib:more (or -I lib) is the search path for imports of texts.
--load my_passes.py imports passes, operators or targets (docs/extend.md).
POPGRAPH_TARGET=avx2 (avx512, sse2, neon, native) selects the target machine.

Exit codes: 0 success, 1 wrong model or data, 2 wrong usage.
"""


class CommandsByName(UserDict[str, Any]):
    """The commands; each module is imported when its command is looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name)(import_module(f"popgraph.cli.{name}").command)
            self.data[name] = typer.main.get_command(alone)
        return self.data[name]


class Commands(TyperGroup):
    """Reports errors of commands as messages instead of tracebacks."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandsByName()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _as_messages():  # `--load` runs code here.
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _as_messages(), _plain_warnings(), as_options():
            return super().invoke(ctx)


@contextmanager
def _as_messages() -> Iterator[None]:
    """Reports errors as messages, and exits."""
    try:
        yield
        return
    except PopgraphError as error:
        if _debugging():
            raise
        show_error(error)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has closed the pipe; avoid Python's
        # complaint at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if _debugging():
            raise
        show_error(PopgraphError(error.strerror or str(error), str(error.filename or "")))
    except Exception as error:
        if _is_typers(error):
            _word(error)
            raise
        if _debugging():
            raise
        show_error(
            PopgraphError(
                f"internal error: {type(error).__name__}: {error}",
                hint="; ".join(
                    [
                        "please report this",
                        *getattr(error, "__notes__", ()),
                        "POPGRAPH_DEBUG=1 shows where it happened",
                    ]
                ),
            )
        )
    raise typer.Exit(1)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Prints warnings without the source line in PopGraph that issued them."""
    before = warnings.formatwarning
    if not _debugging():
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _is_typers(error: Exception) -> bool:
    """Whether typer or click raised the exception, for wrong usage or a normal exit."""
    return type(error).__module__.split(".")[0] in ("typer", "click")


def _word(error: Any) -> None:
    """Rewords an invalid value: drops the name of the Python error, suggests the closest choice."""
    message = getattr(error, "message", None)
    if not isinstance(message, str):
        return
    message = message.removeprefix("Value error, ")
    if found := re.fullmatch(r"'(.*)' is not one of (.*)\.", message):
        close = closest(found[1], re.findall("'([^']*)'", found[2]))
        message += f" Did you mean {close!r}?" if close else ""
    error.message = message


def _debugging() -> bool:
    return os.environ.get("POPGRAPH_DEBUG", "0") in ("1", "2", "3", "4")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"popgraph {import_module('popgraph').__version__}")
        raise typer.Exit


def _reference(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from popgraph.cli.command_page import page

        typer.echo(page(context.command))
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    name="popgraph",
    help=ABOUT,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def _callback(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
    markdown: bool = typer.Option(
        False, "--markdown", help="Print the page docs/cli.md.", callback=_reference, is_eager=True
    ),
    load: Load = None,
) -> None:
    """Defines the options of `popgraph` itself."""


_callback.__doc__ = ABOUT


def main() -> None:
    """The entry point of the script."""
    # Start-up creates many long-lived objects; scanning them for garbage repeatedly would take a
    # third of it.
    gc.set_threshold(100_000, 50, 50)
    if VARIABLE in os.environ:
        answer()
    with terminating_on_sigint():
        command = typer.main.get_command(app)
    if not is_launched():
        command(prog_name="popgraph")
        return
    from popgraph.support.ranks.world import ending_all_ranks

    with ending_all_ranks():
        command(prog_name="popgraph")
