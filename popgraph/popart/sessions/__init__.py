"""PopART's sessions, on top of the engine."""
