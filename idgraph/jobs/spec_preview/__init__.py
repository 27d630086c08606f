"""The effect of a mapping spec on events that the flow has read; changes nothing."""
