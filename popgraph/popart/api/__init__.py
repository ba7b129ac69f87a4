"""PopART's Builder: its calls, annotations, names, and what it refuses."""
