"""The pure core: budget, breakdown, comparison, history. No I/O, no clock, no knowledge of Prometheus."""
