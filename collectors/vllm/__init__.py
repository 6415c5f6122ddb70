"""vLLM, read from outside: its exposition over the versions, what a KV pool holds, which rank a process title names."""
