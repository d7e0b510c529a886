"""Select rows from arrays, files, models and shards."""
