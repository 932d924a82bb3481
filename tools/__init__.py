"""Tools for the documentation and the tests: the API reference, outputs of tutorials, pictures, mutation testing."""
