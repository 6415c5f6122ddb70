"""Pools that fill, simulated by the hundred: what the forecast is tuned on, and what it is scored on."""
