"""A day of faults under the whole program, in fast motion: nothing in it grows."""
