"""Row patterns."""
