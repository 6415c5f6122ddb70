"""What engines write to their logs: the sizes of a start-up and the lines of a memory that ran out, numbers only."""
