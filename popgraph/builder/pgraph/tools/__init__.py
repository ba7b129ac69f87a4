"""What editors ask for: diagnostics, completion, hover."""
