"""The HTTP side: routes over what the last tick left, and the server that bounds what a client can cost."""
