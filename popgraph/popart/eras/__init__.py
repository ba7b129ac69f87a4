"""PopONNX, and PopART as it was in older times."""
