"""Topics read and written, offsets, transactions, progress, dead letters; knows no Spark."""
