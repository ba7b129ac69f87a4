"""Caches on disk: programs, schedules, and their keys."""
