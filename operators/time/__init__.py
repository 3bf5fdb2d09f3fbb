"""Operators that go by time: temporal filters, stamps and sessions."""
