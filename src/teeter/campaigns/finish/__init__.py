"""Let a campaign's model label the rest of the items, and promise how many labels are wrong.

``promise`` explains the method and ``freezing`` says which items count. ``bounds``, ``promise``,
``plan``, ``class_shares`` and ``calibration`` are statistics without a database.
"""
