"""Programs of sessions, on top of the engine."""
