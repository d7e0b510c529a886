"""Sample projects that come with teeter: real texts and images, labelled in part.

``README.md`` in this folder says where the data comes from and under which licences.
"""

from teeter.samples.samples import (
    SAMPLES,
    Sample,
    SampleItem,
    find_sample,
    make_sample,
    read_items,
    remove_sample,
    sample_file,
)

__all__ = [
    "SAMPLES",
    "Sample",
    "SampleItem",
    "find_sample",
    "make_sample",
    "read_items",
    "remove_sample",
    "sample_file",
]
