"""Calls of clients through the dispatcher to pods, and answers back; it knows no protocol."""
