"""PopART's sessions: what a program is told to do, step by step."""
