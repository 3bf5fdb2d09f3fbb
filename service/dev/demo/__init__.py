"""The demo: a changing order book joined with its payments, on an embedded broker, checked against DuckDB."""
