"""Operators that turn inputs into exact changelogs, make rows expire, and implement scalar subqueries."""
