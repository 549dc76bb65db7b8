"""What `zoo.load` returns: a model with all that it takes to use it."""
