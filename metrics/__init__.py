"""Runs the SQL models over units of data; owns prices, SLOs, publishing and the readers' door."""
