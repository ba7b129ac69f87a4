"""Caches on disk: programs, schedules, and the keys under which they are kept."""
