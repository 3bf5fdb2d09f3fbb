"""What connectors send, in each format, into each declared type: the right value, or a refusal that says what to do."""
