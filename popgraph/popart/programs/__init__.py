"""The program of a session, over the engine."""
