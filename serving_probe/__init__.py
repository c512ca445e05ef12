"""Measures serving and sends what it saw. Imports no other room, never blocks serving."""
