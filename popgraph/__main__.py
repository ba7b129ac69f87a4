"""The command `popgraph`, also as `python -m popgraph`."""

from popgraph.support.signals import ending_at_once


def main() -> None:
    with ending_at_once():
        import popgraph.cli
    popgraph.cli.main()


if __name__ == "__main__":
    main()
