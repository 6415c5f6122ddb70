"""The pictures of docs/images, of the simulated node. Making them needs chromium, npm, prometheus and promtool."""
