"""Let a campaign's model label the rest of the items, and promise how many labels are wrong.

``promise`` explains the method and ``frozen_model`` says which items count. ``bounds``, ``promise``
and ``estimates`` are statistics without a database.
"""
