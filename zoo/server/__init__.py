"""A server for exported models: TensorFlow Serving's REST and gRPC APIs, and a web page."""
