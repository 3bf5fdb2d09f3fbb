"""Normalization of inputs to exact changelogs, and expiry of rows."""
