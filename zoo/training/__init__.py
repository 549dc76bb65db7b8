from zoo.training.run import Run
