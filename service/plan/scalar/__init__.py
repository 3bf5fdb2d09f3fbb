"""Scalar expressions: Spark SQL in meaning, DuckDB SQL in writing."""
