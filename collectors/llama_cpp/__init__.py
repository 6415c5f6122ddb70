"""llama.cpp's server, read from outside: its slots, what they hold of the cache, its counters and command lines."""
