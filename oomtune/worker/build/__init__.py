"""Build the Keras model for a candidate: from layers, a builder, a saved file or `keras.applications`."""
