"""Type information, rows, serializers, schema evolution and the JSON form of values."""
