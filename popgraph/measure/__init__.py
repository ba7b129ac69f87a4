"""Measurement: timing, peer runtimes, peak rates, accuracy, and the schedule tuner."""
