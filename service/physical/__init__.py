"""The physical plan, which engines execute. It consists of plain, frozen, picklable values."""
