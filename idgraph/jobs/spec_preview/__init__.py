"""What a mapping spec would make of events that the flow has read; changes nothing."""
