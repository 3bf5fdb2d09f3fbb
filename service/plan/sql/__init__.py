"""The front end: builds a query's initial logical plan from its SQL text, clause by clause."""
