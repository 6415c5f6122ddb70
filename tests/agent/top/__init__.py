"""Tests of the terminal that stays."""
