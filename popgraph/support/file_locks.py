"""Locks of open files, which end with their process."""

from __future__ import annotations

import sys

if sys.platform == "win32":

    def lock(descriptor: int) -> None:
        """Does nothing: Windows neither removes nor renames a file that is open, which locks it."""

else:
    import fcntl

    def lock(descriptor: int) -> None:
        """Locks an open file until its last descriptor is closed; OSError if it is locked."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
