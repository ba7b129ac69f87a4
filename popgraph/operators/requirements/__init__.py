"""What operators ask of their nodes."""
