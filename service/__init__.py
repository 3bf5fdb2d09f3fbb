"""Everything that touches the world: job files, plans, Spark, Kafka, running queries."""
