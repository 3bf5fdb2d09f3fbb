"""Joins of two inputs on equal keys."""
