"""The command `popgraph`, also as `python -m popgraph`."""

from popgraph.support.signals import terminating_on_sigint


def main() -> None:
    with terminating_on_sigint():
        import popgraph.cli
    popgraph.cli.main()


if __name__ == "__main__":
    main()
