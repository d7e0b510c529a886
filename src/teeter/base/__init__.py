"""What everything may use: arrays, seeds, threads, registries, files and processes."""
