"""The HDF5 file of one epoch: layout, writing, reading, codecs."""
