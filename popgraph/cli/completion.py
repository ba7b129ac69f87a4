"""`popgraph completion`: prints the completion script of a shell."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer

VARIABLE = "_POPGRAPH_COMPLETE"
"""Environment variable with which a shell requests completions."""


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def command(
    shell: Annotated[Shell, typer.Argument(case_sensitive=False, help="The shell.")],
) -> None:
    """
    Print the completion script of a shell.

    \b
    eval "$(popgraph completion bash)"                     in ~/.bashrc
    eval "$(popgraph completion zsh)"                      in ~/.zshrc, after compinit
    popgraph completion fish > ~/.config/fish/completions/popgraph.fish
    """
    script = import_module("typer.completion").get_completion_script
    typer.echo(script(prog_name="popgraph", complete_var=VARIABLE, shell=shell.value))


def answer() -> None:
    """Answers a completion request of a shell through Typer."""
    import_module("typer.completion").completion_init()
