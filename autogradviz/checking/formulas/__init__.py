"""Tests the derivatives that a program gives itself: custom Functions and custom operators."""
