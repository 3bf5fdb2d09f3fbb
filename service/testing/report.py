"""The results of tests as text, with each failure and its table of differences, and as JUnit XML for CI servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from rowkind.service.testing.differences import Style, plain, table
from rowkind.service.testing.run import SqlTestResult


def lines_of(file: Path, result: SqlTestResult, style: Style = plain) -> Iterator[str]:
    """Yield the lines about the failures of a test, without its name."""
    for failure in result.failures:
        first, *more = failure.text.splitlines()
        yield f"{file}:{failure.line}: {first}"
        yield from (f"    {line}" for line in more)
        if failure.differences is not None:
            yield from (f"    {line}" for line in table(failure.differences, style, failure.labels))
    if result.failures:
        yield from (f"note: {note}" for note in result.notes)


def junit(files: Sequence[tuple[Path, Sequence[SqlTestResult]]]) -> str:
    """Return the results of each file as a test suite."""
    top = ET.Element("testsuites")
    for file, results in files:
        suite = ET.SubElement(
            top,
            "testsuite",
            name=str(file),
            tests=str(len(results)),
            failures=str(sum(bool(each.failures) for each in results)),
            errors="0",
            time=f"{sum(each.seconds for each in results):.3f}",
        )
        for each in results:
            where = {"classname": str(file), "name": each.test.name, "time": f"{each.seconds:.3f}"}
            case = ET.SubElement(suite, "testcase", where, file=str(file), line=str(each.test.line))
            if each.failures:
                failure = ET.SubElement(case, "failure", message=each.failures[0].text)
                failure.text = "\n".join(lines_of(file, each))
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True) + "\n"
