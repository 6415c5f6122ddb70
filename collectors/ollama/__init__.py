"""Ollama, read from outside: which models it has loaded, its runners, and where its models lie."""
