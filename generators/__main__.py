"""`python -m generators` writes all generated files: docs pages, the schema of the job file, and the dashboards."""

from __future__ import annotations

from generators import dashboards, function_reference, job_reference, job_schema, metrics_page, panels

job_reference.PAGE.write_text(job_reference.page(), encoding="utf-8")
job_schema.PATH.write_text(job_schema.text(), encoding="utf-8")
function_reference.PAGE.write_text(function_reference.page(), encoding="utf-8")
metrics_page.PAGE.write_text(metrics_page.page(), encoding="utf-8")
for each in dashboards.DASHBOARDS:
    (dashboards.FOLDER / f"{each.file}.json").write_text(panels.text(each), encoding="utf-8")
