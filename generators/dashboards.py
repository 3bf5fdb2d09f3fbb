"""Generate deploy/grafana: one dashboard for consumers of a job's results, one for operators of the service."""

from __future__ import annotations

from pathlib import Path

from generators.panels import Dashboard, Panel, gauge, growth, hour, of, quantile, rate, stat

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana"

RESULTS = Dashboard(
    "rowkind",
    "Rowkind: results",
    "For users of the result topics: how fresh they are, which changes they get, and what is missing in them.",
    {
        "Can I rely on the results?": [
            stat(
                "Lag",
                "Age of the oldest unread record.",
                "s",
                gauge("rowkind_lag_seconds", over="max"),
                60,
            ),
            stat(
                "Latency",
                "Median time from a record's Kafka timestamp until its results were written.",
                "s",
                quantile(0.5, "rowkind_latency_seconds"),
            ),
            stat(
                "Since the last batch",
                "Time since the last batch ended. Without input there are no batches.",
                "s",
                f"time() - max({of('rowkind_last_batch_timestamp_seconds')})",
            ),
            stat(
                "Down",
                "Jobs of a service without a process, and failed queries that have not restarted yet.",
                "short",
                f"(count({of('rowkind_job_up')} == 0) or vector(0)) + (count({of('rowkind_up')} == 0) or vector(0))",
                1,
            ),
            stat(
                "Missing, last hour",
                "Records that could not be decoded, rows on which an expression failed, and late changes.",
                "short",
                hour("rowkind_dead_letters_total", "rowkind_failed_rows_total", "rowkind_late_rows_total"),
                1,
            ),
            stat(
                "Suspect, last hour",
                "Records that violate a constraint of the job, and retractions that matched no row.",
                "short",
                hour("rowkind_broken_promises_total", "rowkind_unmatched_retractions_total"),
                1,
            ),
        ],
        "Freshness": [
            Panel(
                "Latency",
                "Time from a record's Kafka timestamp until its results were written, by table.",
                "s",
                {
                    "{{table}} median": quantile(0.5, "rowkind_latency_seconds", "table"),
                    "{{table}} 99 %": quantile(0.99, "rowkind_latency_seconds", "table"),
                },
                width=8,
            ),
            Panel(
                "Lag",
                "Age of the oldest unread record, by topic.",
                "s",
                {"{{topic}}": gauge("rowkind_lag_seconds", "topic", over="max")},
                width=8,
            ),
            Panel(
                "Watermarks",
                "How far each table's watermark is behind. A window closes when the watermark passes its end.",
                "s",
                {"{{table}}": gauge("rowkind_watermark_lag_seconds", "table", over="max")},
                width=8,
            ),
        ],
        "Changes": [
            Panel(
                "Changes read",
                "Changes per second, by table and row kind.",
                "cps",
                {"{{table}} {{kind}}": rate("rowkind_rows_in_total", "table", "kind")},
            ),
            Panel(
                "Changes written",
                "Changes per second, by sink and row kind.",
                "cps",
                {"{{sink}} {{kind}}": rate("rowkind_rows_out_total", "sink", "kind")},
            ),
        ],
        "Missing and suspect rows": [
            Panel(
                "Dead letters",
                "Records per second that could not be decoded, or on which an expression failed, by reason.",
                "cps",
                {"{{table}}: {{reason}}": rate("rowkind_dead_letters_total", "table", "reason")},
                width=6,
            ),
            Panel(
                "Dropped by operators",
                "Per second: changes that arrived too late, and rows on which an expression failed.",
                "cps",
                {
                    "late: {{sink}} {{operator}}": rate("rowkind_late_rows_total", "sink", "operator"),
                    "failed: {{sink}} {{operator}}": rate("rowkind_failed_rows_total", "sink", "operator"),
                },
                width=6,
            ),
            Panel(
                "Suspect",
                "Per second: retractions that matched no row, retractions of expired rows, and violated constraints.",
                "cps",
                {
                    "unmatched: {{sink}} {{operator}}": rate("rowkind_unmatched_retractions_total", "sink", "operator"),
                    "expired: {{sink}} {{operator}}": rate("rowkind_expired_retractions_total", "sink", "operator"),
                    "{{table}}: {{promise}}": rate("rowkind_broken_promises_total", "table", "promise"),
                },
                width=6,
            ),
            Panel(
                "Incomplete topics",
                "1 for a topic that has lost rows or may lack deletes. Also automatic rebuilds per second.",
                "short",
                {
                    "{{topic}}: {{reason}}": gauge("rowkind_incomplete_topic", "topic", "reason", over="max"),
                    "rebuilt: {{query}}": rate("rowkind_rebuilds_total", "query"),
                },
                width=6,
            ),
            Panel(
                "Waits",
                "How long the job has waited for a system, and how long a transaction has blocked a partition.",
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
    "For operators of the service: whether it is running, where its time goes, and what it stores.",
    {
        "Is it running?": [
            stat("Queries", "Queries that are running.", "short", gauge("rowkind_up")),
            stat(
                "Up since",
                "When the most recently started process began.",
                "dateTimeFromNow",
                f"1000 * max({of('rowkind_start_timestamp_seconds')})",
            ),
            stat(
                "Restarts, last hour",
                "Restarts of queries after temporary failures.",
                "short",
                hour("rowkind_restarts_total"),
                1,
            ),
            stat(
                "Outages, last hour", "How often Kafka became unavailable.", "short", hour("rowkind_outages_total"), 1
            ),
            stat("Lag", "Offsets still to be read.", "short", gauge("rowkind_lag_rows")),
            stat("State", "Bytes stored by all operators.", "bytes", gauge("rowkind_state_bytes")),
        ],
        "Batches": [
            Panel(
                "Duration",
                "Time from a batch's start to its end.",
                "s",
                {
                    "{{query}} median": quantile(0.5, "rowkind_batch_duration_seconds", "query"),
                    "{{query}} 95 %": quantile(0.95, "rowkind_batch_duration_seconds", "query"),
                },
                width=8,
            ),
            Panel(
                "Phases",
                "Seconds per second that batches spend in each phase. Commit is a part of tasks, summed over them.",
                "s",
                {"{{stage}}": rate("rowkind_batch_seconds_total", "stage")},
                width=8,
            ),
            Panel(
                "Transactions",
                "Kafka transactions per second, by outcome.",
                "cps",
                {"{{query}} {{outcome}}": rate("rowkind_transactions_total", "query", "outcome")},
                width=8,
            ),
        ],
        "Task time": [
            Panel(
                "Reading and writing",
                "Seconds per second of all tasks that read and write, by stage.",
                "s",
                {
                    "read: {{stage}}": rate("rowkind_read_seconds_total", "stage"),
                    "write: {{stage}}": rate("rowkind_write_seconds_total", "stage"),
                },
            ),
            Panel(
                "Operators",
                "Seconds per second of all tasks, by operator and stage.",
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
                "Offsets still to be read, including the offsets of transaction markers.",
                "short",
                {"{{query}}: {{topic}} {{partition}}": gauge("rowkind_lag_rows", "query", "topic", "partition")},
                width=8,
            ),
            Panel(
                "Bytes",
                "Bytes per second of values read, and of keys and values written.",
                "Bps",
                {
                    "read {{table}}": rate("rowkind_bytes_in_total", "table"),
                    "written {{sink}}": rate("rowkind_bytes_out_total", "sink"),
                },
                width=8,
            ),
            Panel(
                "Memory",
                "Memory of the job's processes on their machine.",
                "bytes",
                {"{{process}}": gauge("rowkind_memory_bytes", "process")},
                width=8,
            ),
            Panel(
                "Operator input",
                "Changes per second, by row kind.",
                "cps",
                {"{{sink}} {{operator}} {{kind}}": rate("rowkind_operator_rows_in_total", "sink", "operator", "kind")},
            ),
            Panel(
                "Operator output",
                "Changes per second, by row kind, and TTL refreshes passed on.",
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
                "Rows stored by each operator.",
                "short",
                {"{{sink}} {{operator}}": gauge("rowkind_state_rows", "sink", "operator")},
                width=8,
            ),
            Panel(
                "Bytes",
                "Bytes stored by each operator.",
                "bytes",
                {"{{sink}} {{operator}}": gauge("rowkind_state_bytes", "sink", "operator")},
                width=8,
            ),
            Panel(
                "Growth",
                "Growth of state in bytes per second, over 15 minutes.",
                "Bps",
                {"{{sink}} {{operator}}": growth("rowkind_state_bytes", "sink", "operator")},
                width=8,
            ),
            Panel(
                "Hottest shard",
                "Rows in an operator's fullest shard, divided by the mean. With many rows, 2 means a hot key.",
                "short",
                {"{{sink}} {{operator}}": gauge("rowkind_state_hottest_shard_ratio", "sink", "operator", over="max")},
                width=6,
            ),
            Panel(
                "Merges",
                "Rows per second that are rewritten when sorted runs are merged.",
                "cps",
                {"{{sink}} {{operator}}": rate("rowkind_state_merged_rows_total", "sink", "operator")},
                width=6,
            ),
            Panel(
                "Runs",
                "Sorted runs of each operator. A lookup searches all of them.",
                "short",
                {"{{sink}} {{operator}}": gauge("rowkind_state_runs", "sink", "operator")},
                width=6,
            ),
            Panel(
                "Expiry",
                "Rows per second evicted because their TTL had expired or their time had passed.",
                "cps",
                {"{{sink}} {{operator}}": rate("rowkind_state_expired_rows_total", "sink", "operator")},
                width=6,
            ),
        ],
    },
)

DASHBOARDS = (RESULTS, SERVICE)
