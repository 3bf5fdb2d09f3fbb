"""The front end: builds a query's first logical plan from its SQL text, clause by clause."""
