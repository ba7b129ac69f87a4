"""PopART's private package; programs use a few of its names."""
