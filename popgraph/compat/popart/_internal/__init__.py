"""PopART's private package, of which programs take some names."""
