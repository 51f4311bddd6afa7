"""Engine that runs the gateway's dispatcher and scaler over simulated pods."""
