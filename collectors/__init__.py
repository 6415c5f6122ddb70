"""Sources of readings. Importing this package imports nothing else, so the NVML child stays small."""
