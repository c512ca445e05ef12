"""What things cost and what was promised: files read into tables, nothing computed."""
