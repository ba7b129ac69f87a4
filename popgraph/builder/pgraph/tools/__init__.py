"""Editor support: diagnostics, completion, hover."""
