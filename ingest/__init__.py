"""OTLP to typed, immutable Parquet: durable before it answers."""
