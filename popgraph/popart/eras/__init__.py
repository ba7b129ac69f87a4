"""PopONNX, and earlier versions of PopART."""
