"""Open-loop load from public traces and published workload statistics, and what the client saw."""
