"""The model of a session: PopART's rewrites and checks before compilation."""
