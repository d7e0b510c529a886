"""Files as arrays: tables, pools and heads, with a sentence for whatever cannot be read."""
