"""Other programs: webhooks and Label Studio."""
