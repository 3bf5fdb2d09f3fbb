"""Rowkind keeps the results of streaming SQL queries over Kafka changelogs up to date, on PySpark."""
