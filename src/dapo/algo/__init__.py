"""The mathematics as pure functions on tensors: no configuration, no I/O, no state."""
