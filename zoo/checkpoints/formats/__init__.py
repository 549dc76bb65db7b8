"""The formats of published weights, a module for each; `registry` says what a module offers."""
