"""Turns new segments into published relations by running the SQL models over units of data."""
