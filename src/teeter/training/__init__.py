"""Train models: configuration, the training loop, and batched training of many networks."""
