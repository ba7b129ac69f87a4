"""The command `popgraph`, which `python -m popgraph` is, too."""

from popgraph.support.signals import ending_at_once


def main() -> None:
    """Runs the command that the arguments name."""
    with ending_at_once():
        import popgraph.cli
    popgraph.cli.main()


if __name__ == "__main__":
    main()
