"""Readers of published dataset formats, one module per format.

A reader takes the files that match each pattern of a ``Layout`` and returns a ``RawDataset``. The
catalogue combines patterns and readers into layouts.
"""
