"""Other programs: Label Studio, webhooks and notebooks."""
