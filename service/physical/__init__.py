"""The physical plan, which an engine executes. It consists of plain, frozen, picklable values."""
