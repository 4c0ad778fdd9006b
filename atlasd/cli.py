"""The command-line program (filled by experiments)."""
