"""The front end: builds the first logical plan from SQL text, clause by clause."""
