"""Every way of having data: read it, scan it, batch it."""
