"""Number and shares of the pods that serve a function, from arrival rates and prices."""
