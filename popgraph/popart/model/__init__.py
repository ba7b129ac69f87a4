"""The model of a session: what PopART makes of it before it is compiled."""
