"""Write a starter spec."""
