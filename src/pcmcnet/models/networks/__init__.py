"""Networks: PCMC-Net, the pointer network, and what their fits share."""
