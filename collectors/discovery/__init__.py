"""Finding inference servers in the process table, without a word of configuration."""
