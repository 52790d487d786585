"""Optimizer, learning rates, batches, limits of time, adversarial training, further training."""
