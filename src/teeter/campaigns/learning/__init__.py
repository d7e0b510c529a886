"""A campaign's model: encode, train, judge and save it."""
