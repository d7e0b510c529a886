"""What people's answers say: consensus, agreement and the state of a campaign."""
