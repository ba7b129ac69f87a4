"""What PopART reports of a session and its graph."""
