"""What limits a program that knows nothing of traceprobe: parts taken out, delays put in."""
