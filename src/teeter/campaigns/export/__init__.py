"""Write what a campaign holds: rows, formats of other tools, and the model."""
