"""`rowkind why`: which source rows make a row of a result, or which step leaves the row out."""
