"""What everything else stands on: errors, debug settings, element types, shape arithmetic."""
