"""How each engine turns arguments and memory into a KV pool: one module per engine."""
