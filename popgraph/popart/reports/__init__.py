"""PopART's reports of a session and its graph."""
