"""A library that functions get from a layer."""

GREETING = "hello from the layer"
