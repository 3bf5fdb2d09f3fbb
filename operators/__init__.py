"""Incremental relational algebra over columns: changes in, changes out, with state in arrangements.

Nothing here knows Spark, Kafka, a clock or a log; the caller hands in blocks, a blob store and the time.
"""
