"""The figures, tables and claims of the LDM-S paper, computed again and judged by stated tests.

Run ``python -m research.paper list`` in the root of the repository.
Nothing here is installed with teeter.
"""
