"""Functions, their pods and documents: events of the watches in the form that the gateway needs."""
