"""The operator for window functions over ordered rows."""
