"""Training: the loop (the procedure of DAPO), the policy, batches, the optimiser and checkpoints."""
