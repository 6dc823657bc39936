"""The one place each that watches module calls, loaders and GradScaler."""
