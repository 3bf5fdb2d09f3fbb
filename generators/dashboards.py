"""Generate deploy/grafana: one dashboard for consumers of a job's results, one for operators of the service."""

from __future__ import annotations

from pathlib import Path

from generators.panels import Dashboard, Panel, gauge, growth, hour, of, quantile, rate, stat

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana"

RESULTS = Dashboard(
    "rowkind",
    "Rowkind: results",
    "For who reads the result topics: how fresh they are, what comes and goes, and what is missing in them.",
    {
        "Can I rely on the results?": [
            stat(
                "Behind",
                "Age of the oldest record that is still to be read.",
                "s",
                gauge("rowkind_lag_seconds", over="max"),
                60,
            ),
            stat(
                "Latency",
                "By the time a result was written, half of the records behind it were younger than this.",
                "s",
                quantile(0.5, "rowkind_latency_seconds"),
            ),
            stat(
                "Since the last batch",
                "Time since results were last written; without input there are none.",
                "s",
                f"time() - max({of('rowkind_last_batch_timestamp_seconds')})",
            ),
            stat(
                "Down",
                "Jobs of a service that have no process, and queries that have failed and do not run yet.",
                "short",
                f"(count({of('rowkind_job_up')} == 0) or vector(0)) + (count({of('rowkind_up')} == 0) or vector(0))",
                1,
            ),
            stat(
                "Missing, last hour",
                "Records that were no rows, rows on which an expression failed, and changes that came too late.",
                "short",
                hour("rowkind_dead_letters_total", "rowkind_failed_rows_total", "rowkind_late_rows_total"),
                1,
            ),
            stat(
                "Doubtful, last hour",
                "Records that were not what the job promises of them, and retractions of rows that were not there.",
                "short",
                hour("rowkind_broken_promises_total", "rowkind_unmatched_retractions_total"),
                1,
            ),
        ],
        "How fresh": [
            Panel(
                "Latency",
                "From the time of a record at Kafka to when its results were written, by table.",
                "s",
                {
                    "{{table}} median": quantile(0.5, "rowkind_latency_seconds", "table"),
                    "{{table}} 99 %": quantile(0.99, "rowkind_latency_seconds", "table"),
                },
                width=8,
            ),
            Panel(
                "Behind",
                "Age of the oldest record that is still to be read, by topic.",
                "s",
                {"{{topic}}": gauge("rowkind_lag_seconds", "topic", over="max")},
                width=8,
            ),
            Panel(
                "Watermarks",
                "How far the time in a table's rows is behind; windows close by it.",
                "s",
                {"{{table}}": gauge("rowkind_watermark_lag_seconds", "table", over="max")},
                width=8,
            ),
        ],
        "What comes and goes": [
            Panel(
                "Changes read",
                "Changes a second by table and row kind.",
                "cps",
                {"{{table}} {{kind}}": rate("rowkind_rows_in_total", "table", "kind")},
            ),
            Panel(
                "Changes written",
                "Changes a second by sink and row kind.",
                "cps",
                {"{{sink}} {{kind}}": rate("rowkind_rows_out_total", "sink", "kind")},
            ),
        ],
        "What is missing or doubtful": [
            Panel(
                "Dead letters",
                "Records a second that were no row of their table, or on which an expression failed, by reason.",
                "cps",
                {"{{table}}: {{reason}}": rate("rowkind_dead_letters_total", "table", "reason")},
                width=6,
            ),
            Panel(
                "Left out by operators",
                "Changes a second that came too late, and rows on which an expression failed.",
                "cps",
                {
                    "late: {{sink}} {{operator}}": rate("rowkind_late_rows_total", "sink", "operator"),
                    "failed: {{sink}} {{operator}}": rate("rowkind_failed_rows_total", "sink", "operator"),
                },
                width=6,
            ),
            Panel(
                "Doubtful",
                "A second: retractions of rows that are not there, of rows that had expired, and broken promises.",
                "cps",
                {
                    "unmatched: {{sink}} {{operator}}": rate("rowkind_unmatched_retractions_total", "sink", "operator"),
                    "expired: {{sink}} {{operator}}": rate("rowkind_expired_retractions_total", "sink", "operator"),
                    "{{table}}: {{promise}}": rate("rowkind_broken_promises_total", "table", "promise"),
                },
                width=6,
            ),
            Panel(
                "Topics that are not whole",
                "1 for a topic that has lost rows or may lack deletes; rebuilds by itself, a second.",
                "short",
                {
                    "{{topic}}: {{reason}}": gauge("rowkind_incomplete_topic", "topic", "reason", over="max"),
                    "rebuilt: {{query}}": rate("rowkind_rebuilds_total", "query"),
                },
                width=6,
            ),
            Panel(
                "Waits",
                "For how long the job has waited for another system, and an open transaction has held a partition.",
                "s",
                {
                    "{{system}}": gauge("rowkind_waiting_seconds", "system", over="max"),
                    "held: {{topic}} {{partition}}": gauge("rowkind_held_seconds", "topic", "partition", over="max"),
                },
                width=24,
            ),
        ],
    },
)

SERVICE = Dashboard(
    "rowkind-service",
    "Rowkind: service",
    "For who runs the service: whether it lives, where its time goes, what it keeps.",
    {
        "Does it live?": [
            stat("Queries", "Queries that run.", "short", gauge("rowkind_up")),
            stat(
                "Up since",
                "When the process that was started last began.",
                "dateTimeFromNow",
                f"1000 * max({of('rowkind_start_timestamp_seconds')})",
            ),
            stat(
                "Restarts, last hour",
                "Starts of a query after a failure that passes.",
                "short",
                hour("rowkind_restarts_total"),
                1,
            ),
            stat(
                "Outages, last hour", "Times that Kafka stopped answering.", "short", hour("rowkind_outages_total"), 1
            ),
            stat("Still to read", "Offsets still to be read.", "short", gauge("rowkind_lag_rows")),
            stat("State", "Bytes kept by all operators.", "bytes", gauge("rowkind_state_bytes")),
        ],
        "Batches": [
            Panel(
                "Duration",
                "From a batch's start to its end.",
                "s",
                {
                    "{{query}} median": quantile(0.5, "rowkind_batch_duration_seconds", "query"),
                    "{{query}} 95 %": quantile(0.95, "rowkind_batch_duration_seconds", "query"),
                },
                width=8,
            ),
            Panel(
                "Phases",
                "Seconds a second that batches spend in each phase; commit is a part of tasks, of all of them.",
                "s",
                {"{{stage}}": rate("rowkind_batch_seconds_total", "stage")},
                width=8,
            ),
            Panel(
                "Transactions",
                "Kafka transactions a second, by outcome.",
                "cps",
                {"{{query}} {{outcome}}": rate("rowkind_transactions_total", "query", "outcome")},
                width=8,
            ),
        ],
        "Where the time of tasks goes": [
            Panel(
                "Reading and writing",
                "Seconds a second of all tasks that read and write, by stage.",
                "s",
                {
                    "read: {{stage}}": rate("rowkind_read_seconds_total", "stage"),
                    "write: {{stage}}": rate("rowkind_write_seconds_total", "stage"),
                },
            ),
            Panel(
                "Operators",
                "Seconds a second of all tasks, by operator and stage.",
                "s",
                {
                    "{{sink}} {{operator}}: {{stage}}": rate(
                        "rowkind_operator_seconds_total", "sink", "operator", "stage"
                    )
                },
            ),
        ],
        "Load": [
            Panel(
                "Lag by partition",
                "Offsets still to be read. Transaction markers take offsets too.",
                "short",
                {"{{query}}: {{topic}} {{partition}}": gauge("rowkind_lag_rows", "query", "topic", "partition")},
                width=8,
            ),
            Panel(
                "Bytes",
                "Bytes a second of values read, and of keys and values written.",
                "Bps",
                {
                    "read {{table}}": rate("rowkind_bytes_in_total", "table"),
                    "written {{sink}}": rate("rowkind_bytes_out_total", "sink"),
                },
                width=8,
            ),
            Panel(
                "Memory",
                "What the job's processes take on their machine.",
                "bytes",
                {"{{process}}": gauge("rowkind_memory_bytes", "process")},
                width=8,
            ),
            Panel(
                "Into operators",
                "Changes a second by row kind.",
                "cps",
                {"{{sink}} {{operator}} {{kind}}": rate("rowkind_operator_rows_in_total", "sink", "operator", "kind")},
            ),
            Panel(
                "Out of operators",
                "Changes a second by row kind, and rows passed on because they were written again.",
                "cps",
                {
                    "{{sink}} {{operator}} {{kind}}": rate(
                        "rowkind_operator_rows_out_total", "sink", "operator", "kind"
                    ),
                    "{{sink}} {{operator}} refreshed": rate("rowkind_operator_refreshes_total", "sink", "operator"),
                },
            ),
        ],
        "State": [
            Panel(
                "Rows",
                "Rows kept by each operator.",
                "short",
                {"{{sink}} {{operator}}": gauge("rowkind_state_rows", "sink", "operator")},
                width=8,
            ),
            Panel(
                "Bytes",
                "Bytes kept by each operator, as stored.",
                "bytes",
                {"{{sink}} {{operator}}": gauge("rowkind_state_bytes", "sink", "operator")},
                width=8,
            ),
            Panel(
                "Growth",
                "By how many bytes a second state grows, seen over a quarter of an hour.",
                "Bps",
                {"{{sink}} {{operator}}": growth("rowkind_state_bytes", "sink", "operator")},
                width=8,
            ),
            Panel(
                "Hottest shard",
                "Rows in the fullest of an operator's shards over their mean; of many rows, 2 means a hot key.",
                "short",
                {"{{sink}} {{operator}}": gauge("rowkind_state_hottest_shard_ratio", "sink", "operator", over="max")},
                width=6,
            ),
            Panel(
                "Merges",
                "Rows a second that are rewritten when sorted runs are merged.",
                "cps",
                {"{{sink}} {{operator}}": rate("rowkind_state_merged_rows_total", "sink", "operator")},
                width=6,
            ),
            Panel(
                "Runs",
                "Sorted runs kept by each operator: what a lookup goes through.",
                "short",
                {"{{sink}} {{operator}}": gauge("rowkind_state_runs", "sink", "operator")},
                width=6,
            ),
            Panel(
                "Expiry",
                "Rows a second that are let go of because their time is over.",
                "cps",
                {"{{sink}} {{operator}}": rate("rowkind_state_expired_rows_total", "sink", "operator")},
                width=6,
            ),
        ],
    },
)

DASHBOARDS = (RESULTS, SERVICE)
