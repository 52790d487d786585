"""What the systems are worth and what they cost: `python -m benchmarks.NAME --help`.

compare, ablation, thresholds, run_time, diffusion_steps and mrc_zero_shot measure F1; growth,
inference, mrc_cost, where_time_goes, speed and gpu measure time and memory. Run them from the root
of the repository. `harness` runs and records them all.
"""
