"""The front end: SQL text to the first logical plan, clause by clause."""
