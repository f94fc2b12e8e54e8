"""What a run leaves on disk and on the console: checkpoints, tables, TensorBoard, progress."""
