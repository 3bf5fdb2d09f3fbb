"""Scalar expressions with Spark SQL's semantics, compiled to DuckDB SQL."""
