"""The hooks that are put on modules and tensors, one file per kind."""
