"""The policies: each says under which configurations a queue's jobs may run, and nothing else."""
