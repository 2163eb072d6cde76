"""Training a student from teacher rankings or clicks."""
