"""Measuring: timing, peers, peaks, accuracy, and the tuner of schedules."""
