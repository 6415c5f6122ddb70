"""Devices over simulated hours: stories of memory, and which alarm each of them must raise and no other."""
