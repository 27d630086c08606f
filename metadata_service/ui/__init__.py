"""Profile Self Serve: the admin pages, server-made, over the same functions as the REST routes."""
