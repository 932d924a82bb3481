"""What a fitted model has learnt. Every question is put as probabilities of choice sets that are a little different."""
