"""PopGraph."""
