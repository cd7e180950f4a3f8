"""What the ROI report looks like: a Summary in each form and language. Pure: it sends nothing."""
