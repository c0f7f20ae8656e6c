"""From a result to what people read: HTML, Markdown, terminal and JSON."""
