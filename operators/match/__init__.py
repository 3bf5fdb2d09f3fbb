"""The operator for row pattern matching (MATCH_RECOGNIZE)."""
