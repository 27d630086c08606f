"""Files of earlier versions of the formats, and that this idgraph goes on over them."""
