"""PopART's Builder: its calls, annotations, names and checks."""
