"""The bundled serving stack: router, prefill workers, KV handoff, decode workers, on torch."""
