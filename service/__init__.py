"""The Rowkind service: job files, query plans, Spark and Kafka, and running queries."""
