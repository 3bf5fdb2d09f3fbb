"""Time-based operators: temporal filters, stamps and sessions."""
