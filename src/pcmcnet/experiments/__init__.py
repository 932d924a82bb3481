"""The paper's experiments, one module each: ``run`` fits, measures and writes a report beside the published figures."""
