"""Tasks, as `zoo.load` returns them: models with what it takes to use them, such as tokenizers."""
