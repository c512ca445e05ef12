"""OTLP and files to typed columns, durable before it answers. Decides no number's meaning."""
