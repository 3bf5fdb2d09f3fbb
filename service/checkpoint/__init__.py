"""Checkpoints: their metadata, savepoints, upgrades, replays."""
