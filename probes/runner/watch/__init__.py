"""The single watches of module calls, loaders, optimizers' scalers and backward calls in a process."""
