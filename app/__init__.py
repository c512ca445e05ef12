"""The command line and the dashboard: reads marts, draws. Computes no metric."""
