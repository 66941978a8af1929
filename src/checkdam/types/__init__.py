"""What a value is: type information, rows, serializers, evolution and the JSON form."""
