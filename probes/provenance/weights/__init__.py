"""What is recorded of parameters and buffers: their bytes, and a sum that does not depend on how they lie on ranks."""
