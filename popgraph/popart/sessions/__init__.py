"""PopART's sessions, over the engine."""
