"""A card that is not there: our stand-ins for the CUDA libraries, which let TensorFlow's GPU path run on any machine.

`source/` is the C code, `build.py` compiles it on first use, `load.py` puts it in place of CUDA inside the worker.
"""
