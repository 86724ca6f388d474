"""The decoding engine: slots, steps of static shape, compiled steps and CUDA graphs."""
