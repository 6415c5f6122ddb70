"""The flight recorder: the last minutes of readings on disk, replayed and looked into afterwards."""
