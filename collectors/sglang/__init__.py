"""SGLang, read from outside: its exposition over the versions, its pools, its command lines and process titles."""
