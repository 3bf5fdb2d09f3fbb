"""Inputs made exact, and rows that expire."""
