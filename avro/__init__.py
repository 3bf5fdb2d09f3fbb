"""Rows as Avro: SQL types and schemas, columnar codecs, comparable bytes, Confluent framing, registries."""
