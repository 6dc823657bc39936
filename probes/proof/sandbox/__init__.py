"""What the kernel keeps a process from that reads the files of strangers."""
