"""One page a kind of record: the record in, a document out."""
