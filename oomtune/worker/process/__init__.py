"""The worker processes themselves: zygote, child, lifeline and stall watch."""
