"""What a memory is, what may be asked about it, and the model that embeds it. Imports nothing of ours."""
