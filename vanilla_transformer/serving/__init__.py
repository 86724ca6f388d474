"""A model over HTTP: requests that arrive together are translated together."""
