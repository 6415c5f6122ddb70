"""Logs of engines."""
