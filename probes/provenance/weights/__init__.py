"""The recorded identity of parameters and buffers: digests of their bytes, and sums that are independent of the layout on ranks."""
