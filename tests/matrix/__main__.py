"""`python -m tests.matrix` updates the table in docs/reference/source-formats.md."""

from tests.matrix.page import PAGE, replaced

if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
