"""PostgreSQL, Kafka Connect, Debezium and Rowkind, together."""
