"""For trying things on one machine: a broker, a folder of schemas, the demo."""
