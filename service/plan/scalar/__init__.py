"""Scalar expressions: Spark SQL semantics, compiled to DuckDB SQL."""
