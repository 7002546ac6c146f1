"""Who runs where. local.py: one process, CPU or one GPU, the engine sharing the trainer's model."""
