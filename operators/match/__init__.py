"""Row pattern matching."""
