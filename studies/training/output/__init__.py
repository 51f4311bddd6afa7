"""Files of a run of a training cluster: CSV of its jobs, Chrome trace of its placements."""
