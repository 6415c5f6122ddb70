"""What a ``model_type`` means beyond the numbers in its config: one literal row for each known kind of model."""
