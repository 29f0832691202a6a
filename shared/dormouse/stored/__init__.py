"""The parts of every stored form: names of objects, checksums, strict decoding."""
