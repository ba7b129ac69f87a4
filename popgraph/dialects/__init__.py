"""The IR: one dialect per level, and `pg`, the frame that the two lower levels share."""
