"""What a recording says of an incident: what moved before it, what happened, which alarm would have come how early."""
