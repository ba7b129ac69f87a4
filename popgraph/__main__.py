"""The command `popgraph`, also as `python -m popgraph`."""

import atexit
import gc
import io
import sys

from popgraph.support.signals import terminating_on_sigint


def main() -> None:
    if sys.platform == "win32":  # Pipes get UTF-8, as on other systems; consoles have it.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")
    # At exit, Python searches all objects for cycles: an eighth of the time of a first answer.
    atexit.register(gc.freeze)
    with terminating_on_sigint():
        import popgraph.cli
    popgraph.cli.main()


if __name__ == "__main__":
    main()
