"""What doctor looks at: facts in, findings out. Pure but for `examining`, which asks for them."""
