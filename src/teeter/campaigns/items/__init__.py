"""Items of a campaign: read, add and change them, with the columns of their table."""
