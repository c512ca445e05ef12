"""A streaming reverse proxy that measures OpenAI-compatible traffic it carries."""
