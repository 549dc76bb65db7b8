"""A server for exported models: TensorFlow Serving's REST API and a web page."""
