"""KV handoff between workers behind one one-sided interface."""
