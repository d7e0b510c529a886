"""S-CNN and K-CNN of the paper, trained many at a time by fused kernels on GPUs.

The kernels serve these two networks only, so they are a part of the benchmark: experiments register
``program.make_program`` with ``teeter.training``. README.md explains how the kernels work.
"""
