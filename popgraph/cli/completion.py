"""`popgraph completion`: the script with which a shell completes our commands and options."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer

VARIABLE = "_POPGRAPH_COMPLETE"
"""With this in its environment, the command is asked by a shell what may come next."""


class Shell(StrEnum):
    """The shells that have scripts."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def command(
    shell: Annotated[Shell, typer.Argument(case_sensitive=False, help="For which shell.")],
) -> None:
    """
    Print the script with which a shell completes commands and options.

    \b
    eval "$(popgraph completion bash)"                     in ~/.bashrc
    eval "$(popgraph completion zsh)"                      in ~/.zshrc, behind compinit
    popgraph completion fish > ~/.config/fish/completions/popgraph.fish
    """
    script = import_module("typer.completion").get_completion_script
    typer.echo(script(prog_name="popgraph", complete_var=VARIABLE, shell=shell.value))


def answer() -> None:
    """Lets Typer answer what a shell asks; nothing is asked in usual runs."""
    import_module("typer.completion").completion_init()
