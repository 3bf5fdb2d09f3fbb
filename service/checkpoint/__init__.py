"""Checkpoints: what they are of, savepoints, upgrades, replays."""
