"""`python -m tests.matrix` writes the table of docs/sources.md from the outcomes of the values."""

from tests.matrix.page import PAGE, replaced

if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
