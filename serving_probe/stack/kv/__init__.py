"""Block-paged KV: page accounting, the shared-memory pool, prefix hashes and the prefix cache."""
