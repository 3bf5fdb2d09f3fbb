"""Incremental relational operators over columnar changes, with their state in arrangements.

This package does not depend on Spark, Kafka, a clock or logging. The caller passes in the changes, the blob stores and
the time.
"""
