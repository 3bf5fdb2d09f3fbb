"""Operators driven by time: temporal filters, stamps and sessions."""
