"""The pages of the documentation, and the playground: python -m docs.playground."""
