"""The terminal that stays: what ``vramscope top`` shows and how it is asked for."""
