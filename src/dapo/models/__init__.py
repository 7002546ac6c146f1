"""Models: loading, prefix-tree packing, attention, log-probabilities without all logits, chat templates."""
